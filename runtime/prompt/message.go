package prompt

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Message is one turn of a conversation. Its JSON form is that of the chat API (serving.md 7.2) with
// the extra keys of the official script.
type Message struct {
	Role             string            // system, user, assistant, tool or latest_reminder
	Content          []Block           // a plain string is one text block
	ReasoningContent string            // assistant: what was thought before the content
	ToolCalls        []ToolCall        // assistant
	ToolCallID       string            // tool: the call that this message answers
	Name             string            // accepted for compatibility; the encoding has no place for it
	Tools            []json.RawMessage // system: {"type": "function", "function": {...}} as the client wrote them
	ResponseFormat   json.RawMessage   // system: the schema or {"type": "json_object"}
	Task             string            // user or assistant: action, query, authority, domain, title, read_url
	Prefix           bool              // last assistant message: the model continues it (also spelled wo_eos)
}

// Block is one piece of a message's content.
type Block struct {
	Type      string          // text, image or tool_result
	Text      string          // text
	Image     json.RawMessage // image: the block as the client wrote it
	ToolUseID string          // tool_result: the call that it answers
	Content   []Block         // tool_result: text and image blocks
}

// ToolCall is a call made by the assistant.
type ToolCall struct {
	ID        string
	Namespace string
	Name      string
	Arguments json.RawMessage // an object, or a string that holds one
}

// Text is the content that consists of s.
func Text(s string) []Block { return []Block{{Type: "text", Text: s}} }

// Conversation is the content of a messages file.
type Conversation struct {
	Messages       []Message
	Tools          []json.RawMessage // nil if not given
	ResponseFormat json.RawMessage   // nil if not given
	Thinking       *bool             // nil if not given
	Effort         int               // 0 if not given
}

// Options are the options that the file asks for; what it does not mention is zero.
func (c *Conversation) Options() Options {
	o := Options{Tools: c.Tools, ResponseFormat: c.ResponseFormat, Effort: c.Effort}
	if c.Thinking != nil {
		o.Thinking = *c.Thinking
	}
	return o
}

// ParseMessages reads a messages file: a JSON array of messages, or an object with "messages" and, if
// wanted, "tools", "response_format", "thinking" (true or false) and "effort" (1 to 100, or low, high,
// max). Unknown keys are errors, so that a misspelled one is not silently lost.
func ParseMessages(data []byte) (*Conversation, error) {
	if err := checkSyntax(data); err != nil {
		return nil, fmt.Errorf("messages: %w", err)
	}
	c := &Conversation{}
	raw := json.RawMessage(data)
	if firstByte(data) == '{' {
		file, err := fields(data, "messages", "tools", "response_format", "thinking", "effort")
		if err != nil {
			return nil, fmt.Errorf("messages: %w", err)
		}
		if c.Tools, err = rawList(file["tools"]); err != nil {
			return nil, fmt.Errorf("messages: tools: %w", err)
		}
		if format := file["response_format"]; !isNull(format) {
			c.ResponseFormat = format
		}
		if thinking := file["thinking"]; !isNull(thinking) {
			if err := json.Unmarshal(thinking, &c.Thinking); err != nil {
				return nil, fmt.Errorf("messages: thinking must be true or false, not %s", clip(string(thinking)))
			}
		}
		if effort := file["effort"]; !isNull(effort) {
			if c.Effort, err = EffortFromJSON(effort); err != nil {
				return nil, fmt.Errorf("messages: %w", err)
			}
		}
		if raw = file["messages"]; raw == nil {
			return nil, errors.New(`messages: the object has no "messages"`)
		}
	}
	list, err := rawList(raw)
	if err != nil {
		return nil, fmt.Errorf("messages: %w", err)
	}
	if len(list) == 0 {
		return nil, errors.New("messages: the list is empty")
	}
	for i, item := range list {
		m, err := parseMessage(item, true)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		c.Messages = append(c.Messages, m)
	}
	return c, nil
}

// UnmarshalJSON reads one message and ignores keys that it does not know, as an API does.
func (m *Message) UnmarshalJSON(data []byte) error {
	parsed, err := parseMessage(data, false)
	if err != nil {
		return err
	}
	*m = parsed
	return nil
}

var messageKeys = []string{
	"role", "content", "content_blocks", "reasoning_content", "tool_calls", "tool_call_id",
	"name", "tools", "response_format", "task", "prefix", "wo_eos",
}

func parseMessage(raw []byte, strict bool) (Message, error) {
	var keys []string
	if strict {
		keys = messageKeys
	}
	f, err := fields(raw, keys...)
	if err != nil {
		return Message{}, err
	}
	m := Message{}
	for _, s := range []struct {
		key string
		to  *string
	}{
		{"role", &m.Role}, {"reasoning_content", &m.ReasoningContent}, {"tool_call_id", &m.ToolCallID},
		{"name", &m.Name}, {"task", &m.Task},
	} {
		if err := readString(f, s.key, s.to); err != nil {
			return Message{}, err
		}
	}
	if err := checkRole(m.Role); err != nil {
		return Message{}, err
	}
	content := f["content"]
	if blocks := f["content_blocks"]; !isNull(blocks) {
		if firstByte(blocks) != '[' {
			return Message{}, errors.New("content_blocks must be a list")
		}
		content = blocks
	}
	if m.Content, err = parseContent(content, 0); err != nil {
		return Message{}, err
	}
	if m.Tools, err = rawList(f["tools"]); err != nil {
		return Message{}, fmt.Errorf("tools: %w", err)
	}
	if format := f["response_format"]; !isNull(format) {
		m.ResponseFormat = format
	}
	calls, err := rawList(f["tool_calls"])
	if err != nil {
		return Message{}, fmt.Errorf("tool_calls: %w", err)
	}
	for i, item := range calls {
		call, err := parseToolCall(item)
		if err != nil {
			return Message{}, fmt.Errorf("tool_calls[%d]: %w", i, err)
		}
		m.ToolCalls = append(m.ToolCalls, call)
	}
	for _, key := range []string{"prefix", "wo_eos"} {
		var set bool
		if v := f[key]; !isNull(v) {
			if err := json.Unmarshal(v, &set); err != nil {
				return Message{}, fmt.Errorf("%s must be true or false, not %s", key, clip(string(v)))
			}
		}
		m.Prefix = m.Prefix || set
	}
	return m, nil
}

func parseContent(raw json.RawMessage, depth int) ([]Block, error) {
	if isNull(raw) {
		return nil, nil
	}
	switch firstByte(raw) {
	case '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, fmt.Errorf("content: %w", err)
		}
		return Text(s), nil
	case '[':
	default:
		return nil, fmt.Errorf("content must be a string or a list of blocks, not %s", clip(string(raw)))
	}
	list, err := rawList(raw)
	if err != nil {
		return nil, fmt.Errorf("content: %w", err)
	}
	blocks := make([]Block, 0, len(list))
	for i, item := range list {
		b, err := parseBlock(item, depth)
		if err != nil {
			return nil, fmt.Errorf("content[%d]: %w", i, err)
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

func parseBlock(raw json.RawMessage, depth int) (Block, error) {
	f, err := fields(raw)
	if err != nil {
		return Block{}, err
	}
	var kind string
	if err := readString(f, "type", &kind); err != nil {
		return Block{}, err
	}
	switch kind {
	case "text":
		b := Block{Type: "text"}
		if isNull(f["text"]) {
			return Block{}, errors.New(`a text block needs "text"`)
		}
		return b, readString(f, "text", &b.Text)
	case "image_url", "image":
		return Block{Type: "image", Image: append(json.RawMessage(nil), raw...)}, nil
	case "tool_result":
		b := Block{Type: "tool_result"}
		if depth > 0 {
			return Block{}, errors.New("a tool_result cannot hold another tool_result")
		}
		if err := readString(f, "tool_use_id", &b.ToolUseID); err != nil {
			return Block{}, err
		}
		b.Content, err = parseContent(f["content"], depth+1)
		return b, err
	}
	return Block{}, fmt.Errorf("block type %q is not one of text, image_url, image, tool_result", kind)
}

func parseToolCall(raw json.RawMessage) (ToolCall, error) {
	f, err := fields(raw)
	if err != nil {
		return ToolCall{}, err
	}
	c := ToolCall{}
	if err := readString(f, "id", &c.ID); err != nil {
		return ToolCall{}, err
	}
	if isNull(f["function"]) {
		return ToolCall{}, errors.New(`a tool call needs "function"`)
	}
	function, err := fields(f["function"])
	if err != nil {
		return ToolCall{}, fmt.Errorf("function: %w", err)
	}
	if err := readString(function, "name", &c.Name); err != nil {
		return ToolCall{}, err
	}
	if err := readString(function, "namespace", &c.Namespace); err != nil {
		return ToolCall{}, err
	}
	if c.Name == "" {
		return ToolCall{}, errors.New("the function has no name")
	}
	if c.Arguments = function["arguments"]; c.Arguments == nil {
		c.Arguments = json.RawMessage("{}")
	}
	return c, nil
}

var roles = []string{"system", "user", "assistant", "tool", "latest_reminder"}

func checkRole(role string) error {
	if slices.Contains(roles, role) {
		return nil
	}
	if role == "" {
		return fmt.Errorf("no role; it must be one of %s", strings.Join(roles, ", "))
	}
	return fmt.Errorf("role %q is not one of %s", role, strings.Join(roles, ", "))
}

// fields splits a JSON object. If keys are named, any other key is an error.
func fields(raw []byte, keys ...string) (map[string]json.RawMessage, error) {
	var f map[string]json.RawMessage
	if err := json.Unmarshal(raw, &f); err != nil || f == nil {
		return nil, fmt.Errorf("expected an object, not %s", clip(string(raw)))
	}
	if len(keys) == 0 {
		return f, nil
	}
	var unknown []string
	for k := range f {
		if !slices.Contains(keys, k) {
			unknown = append(unknown, k)
		}
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("unknown key %q; known are %s", slices.Min(unknown), strings.Join(keys, ", "))
	}
	return f, nil
}

func rawList(raw json.RawMessage) ([]json.RawMessage, error) {
	if isNull(raw) {
		return nil, nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("expected a list, not %s", clip(string(raw)))
	}
	return list, nil
}

func readString(f map[string]json.RawMessage, key string, to *string) error {
	raw := f[key]
	if isNull(raw) {
		return nil
	}
	if err := json.Unmarshal(raw, to); err != nil {
		return fmt.Errorf("%s must be a string, not %s", key, clip(string(raw)))
	}
	return nil
}

func isNull(raw json.RawMessage) bool { return raw == nil || string(raw) == "null" }

func firstByte(raw []byte) byte {
	for _, c := range raw {
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return c
		}
	}
	return 0
}

// clip shortens s for an error message.
func clip(s string) string {
	const most = 60
	runes := []rune(strings.Join(strings.Fields(s), " ")) // one line, whatever was given
	if len(runes) <= most {
		return string(runes)
	}
	return string(runes[:most]) + "…"
}
