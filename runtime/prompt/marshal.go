package prompt

import (
	"bytes"
	"encoding/json"
)

// marshal is json.Marshal that leaves <, > and & as they are: files are read by people.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// MarshalJSON writes the message as ParseMessages reads it.
func (m Message) MarshalJSON() ([]byte, error) {
	content, err := contentJSON(m.Content)
	if err != nil {
		return nil, err
	}
	return marshal(struct {
		Role             string            `json:"role"`
		Content          json.RawMessage   `json:"content,omitempty"`
		ReasoningContent string            `json:"reasoning_content,omitempty"`
		ToolCalls        []ToolCall        `json:"tool_calls,omitempty"`
		ToolCallID       string            `json:"tool_call_id,omitempty"`
		Name             string            `json:"name,omitempty"`
		Tools            []json.RawMessage `json:"tools,omitempty"`
		ResponseFormat   json.RawMessage   `json:"response_format,omitempty"`
		Task             string            `json:"task,omitempty"`
		Prefix           bool              `json:"prefix,omitempty"`
	}{m.Role, content, m.ReasoningContent, m.ToolCalls, m.ToolCallID, m.Name, m.Tools, m.ResponseFormat, m.Task, m.Prefix})
}

// contentJSON is a string for a single text, else a list of blocks; nil for no content.
func contentJSON(blocks []Block) (json.RawMessage, error) {
	switch {
	case blocks == nil:
		return nil, nil
	case len(blocks) == 1 && blocks[0].Type == "text":
		return marshal(blocks[0].Text)
	}
	return marshal(blocks)
}

// MarshalJSON writes the block as ParseMessages reads it.
func (b Block) MarshalJSON() ([]byte, error) {
	switch b.Type {
	case "image":
		return b.Image, nil
	case "tool_result":
		content, err := contentJSON(b.Content)
		if err != nil {
			return nil, err
		}
		return marshal(struct {
			Type      string          `json:"type"`
			ToolUseID string          `json:"tool_use_id,omitempty"`
			Content   json.RawMessage `json:"content,omitempty"`
		}{b.Type, b.ToolUseID, content})
	}
	return marshal(struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}{b.Type, b.Text})
}

// MarshalJSON writes the call as ParseMessages reads it.
func (c ToolCall) MarshalJSON() ([]byte, error) {
	type function struct {
		Namespace string          `json:"namespace,omitempty"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	return marshal(struct {
		ID       string   `json:"id,omitempty"`
		Type     string   `json:"type"`
		Function function `json:"function"`
	}{c.ID, "function", function{c.Namespace, c.Name, c.Arguments}})
}

// MarshalJSON writes the conversation as ParseMessages reads it.
func (c *Conversation) MarshalJSON() ([]byte, error) {
	return marshal(struct {
		Messages       []Message         `json:"messages"`
		Tools          []json.RawMessage `json:"tools,omitempty"`
		ResponseFormat json.RawMessage   `json:"response_format,omitempty"`
		Thinking       *bool             `json:"thinking,omitempty"`
		Effort         int               `json:"effort,omitempty"`
	}{c.Messages, c.Tools, c.ResponseFormat, c.Thinking, c.Effort})
}
