package prompt

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Options of Render. The zero value is chat mode (no thinking).
type Options struct {
	Thinking       bool
	Effort         int               // 1 to 100; 0 means EffortDefault. Written in thinking mode only
	Keep           bool              // keep all earlier reasoning and always end with an assistant header (S2)
	Tools          []json.RawMessage // for the first system message, which is made if there is none (S3)
	ResponseFormat json.RawMessage   // for the first system message
	RequireTool    bool              // begin a tool call, which the model must finish; not with Thinking
	ToolName       string            // with RequireTool: the tool that must be called
	Context        []Message         // messages before these, already in the sequence: not rendered again
}

// Render writes the conversation in the V4.1 encoding (serving.md 6.1). It does not change messages.
func Render(messages []Message, o Options) (*Prompt, error) {
	if len(messages) == 0 {
		return nil, errors.New("rendering the prompt: there are no messages")
	}
	if o.Effort == 0 {
		o.Effort = EffortDefault
	}
	if o.Effort < 1 || o.Effort > 100 {
		return nil, effortError(fmt.Sprint(o.Effort))
	}
	if o.RequireTool && o.Thinking {
		return nil, errors.New("thinking mode does not support a required tool call; disable thinking or let the model choose")
	}
	r := renderer{Options: o}
	messages, err := r.attach(messages)
	if err != nil {
		return nil, err
	}
	for i, m := range messages {
		if err := checkMessage(m, i == len(messages)-1); err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		if len(m.Tools) > 0 && m.Role != "system" {
			r.warnings = append(r.warnings, fmt.Sprintf(
				"message %d: the model does not see tools of a %s message; give them with a system message or for the whole conversation", i, m.Role))
		}
	}
	context := mergeUsers(o.Context)
	r.messages = append(slices.Clone(context), mergeUsers(messages)...)
	orderResults(r.messages)
	r.drop = o.Thinking && !o.Keep
	r.lastUser = -1
	for i, m := range r.messages {
		if len(m.Tools) > 0 {
			r.drop = false
		}
		if m.Role == "user" || m.Role == "system" && i > 0 {
			r.lastUser = i
		}
	}
	if len(context) == 0 {
		r.control(BOS)
	}
	for i := len(context); i < len(r.messages); i++ {
		if err := r.message(i); err != nil {
			return nil, err
		}
	}
	return r.finish(), nil
}

type renderer struct {
	writer
	Options
	messages []Message
	drop     bool // earlier reasoning is not written
	lastUser int  // index of the last user or mid-conversation system message
	images   []json.RawMessage
	warnings []string
	start    Start
}

// attach gives the tools and the response format of the options to the first message, which becomes an
// empty system message if it is none.
func (r *renderer) attach(messages []Message) ([]Message, error) {
	format := r.ResponseFormat
	if len(r.Tools) == 0 && isNull(format) {
		return messages, nil
	}
	messages = slices.Clone(messages)
	if messages[0].Role != "system" {
		messages = slices.Insert(messages, 0, Message{Role: "system"})
	}
	first := &messages[0]
	if len(r.Tools) > 0 {
		if len(first.Tools) > 0 {
			return nil, errors.New("tools are given both for the conversation and in its system message; give them once")
		}
		first.Tools = r.Tools
	}
	if !isNull(format) {
		if first.ResponseFormat != nil {
			return nil, errors.New("a response format is given both for the conversation and in its system message; give it once")
		}
		first.ResponseFormat = format
	}
	return messages, nil
}

func checkMessage(m Message, last bool) error {
	if err := checkRole(m.Role); err != nil {
		return err
	}
	if _, ok := taskTokens[m.Task]; !ok && m.Task != "" {
		return fmt.Errorf("task %q is not one of action, query, authority, domain, title, read_url", m.Task)
	}
	if m.Prefix && (m.Role != "assistant" || !last) {
		return errors.New("only the last message, by the assistant, can be a prefix")
	}
	for _, b := range m.Content {
		switch {
		case b.Type == "text":
			if (m.Role == "user" || m.Role == "assistant") && strings.Contains(b.Text, ImagePad) {
				return fmt.Errorf("the text contains the image placeholder %s; give images as image blocks", ImagePad)
			}
		case m.Role == "user", m.Role == "tool" && b.Type == "image":
		default:
			return fmt.Errorf("a %s message cannot contain a block of type %s", m.Role, b.Type)
		}
	}
	return nil
}

// mergeUsers makes tool messages blocks of user messages and joins consecutive user messages.
func mergeUsers(messages []Message) []Message {
	var merged []Message
	for _, m := range messages {
		switch m.Role {
		case "tool":
			m = Message{Role: "user", Tools: m.Tools, Content: []Block{{Type: "tool_result", ToolUseID: m.ToolCallID, Content: m.Content}}}
		case "user":
			if len(m.Content) == 0 {
				m.Content = Text("")
			}
			m.Content = slices.Clone(m.Content)
		default:
			merged = append(merged, m)
			continue
		}
		if n := len(merged); n > 0 && merged[n-1].Role == "user" && merged[n-1].Task == "" {
			previous := &merged[n-1]
			previous.Content = append(previous.Content, m.Content...)
			previous.Tools = append(slices.Clone(previous.Tools), m.Tools...)
			previous.Task = m.Task
			continue
		}
		merged = append(merged, m)
	}
	return merged
}

// orderResults sorts the tool results of each user message by the order of the calls that they answer.
// Results of unknown calls count as answers to the first one.
func orderResults(messages []Message) {
	rank := map[string]int{}
	for _, m := range messages {
		if m.Role == "assistant" && len(m.ToolCalls) > 0 {
			rank = map[string]int{}
			for i, call := range m.ToolCalls {
				rank[call.ID] = i
			}
			delete(rank, "")
		}
		if m.Role != "user" {
			continue
		}
		var places []int
		var results []Block
		for i, b := range m.Content {
			if b.Type == "tool_result" {
				places = append(places, i)
				results = append(results, b)
			}
		}
		sort.SliceStable(results, func(i, j int) bool { return rank[results[i].ToolUseID] < rank[results[j].ToolUseID] })
		for i, place := range places {
			m.Content[place] = results[i]
		}
	}
}

func (r *renderer) message(i int) error {
	m := r.messages[i]
	if i == 0 && (r.Thinking || m.Role == "system") {
		r.control(SystemRole)
		if r.Thinking {
			r.text(fmt.Sprintf("Reasoning Effort: %d (range 1-100, the higher the value, the more thorough the reasoning)\n\n", r.Effort))
		}
	}
	var err error
	switch m.Role {
	case "system":
		err = r.system(m, i)
	case "user":
		r.control(UserRole)
		r.blocks(m.Content)
	case "latest_reminder":
		r.control(LatestReminder)
		r.blocks(m.Content)
	case "assistant":
		err = r.assistant(m, i)
	}
	if err != nil {
		return err
	}
	if i+1 < len(r.messages) {
		if next := r.messages[i+1].Role; next != "assistant" && next != "latest_reminder" {
			return nil
		}
	}
	switch {
	case m.Task == "action":
		r.header(r.Thinking)
		r.control(taskTokens[m.Task])
	case m.Task != "":
		r.control(taskTokens[m.Task])
		r.start = Start{}
	case m.Role == "user", m.Role == "system" && i > 0:
		r.header(r.Thinking && (!r.drop || i >= r.lastUser))
	}
	return nil
}

func (r *renderer) system(m Message, i int) error {
	if i > 0 {
		r.control(SystemRole)
	}
	r.blocks(m.Content)
	if len(m.Tools) > 0 {
		schemas, err := toolSchemas(m.Tools)
		if err != nil {
			return err
		}
		r.text("\n\n")
		r.template(toolsBefore)
		r.text(schemas)
		r.template(toolsAfter)
	}
	if m.ResponseFormat != nil {
		format, err := parseValue(m.ResponseFormat)
		if err != nil {
			return fmt.Errorf("response_format: %w", err)
		}
		r.text("\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n" + format.String())
	}
	return nil
}

func (r *renderer) assistant(m Message, i int) error {
	answersTask := i > 0 && r.messages[i-1].Task != ""
	if r.Thinking && !answersTask && (!r.drop || i > r.lastUser) {
		r.text(m.ReasoningContent)
		if m.Prefix && m.ReasoningContent != "" && plain(m.Content) == "" && len(m.ToolCalls) == 0 {
			r.start = Start{Reasoning: true, Continues: true}
			return nil
		}
		r.control(ThinkEnd)
	}
	r.blocks(m.Content)
	if len(m.ToolCalls) > 0 {
		r.text("\n\n")
		if err := writeCalls(&r.writer, m.ToolCalls); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	if !m.Prefix {
		r.control(EOS)
	}
	r.start = Start{Continues: plain(m.Content) != ""}
	return nil
}

func (r *renderer) header(thinking bool) {
	r.control(AssistantRole)
	if thinking {
		r.control(ThinkStart)
	} else {
		r.control(ThinkEnd)
	}
	r.start = Start{Reasoning: thinking}
}

// finish ends the prompt as the options ask.
func (r *renderer) finish() *Prompt {
	last := r.messages[len(r.messages)-1]
	finished := last.Role == "assistant" && !last.Prefix && last.Task == ""
	if finished && r.Keep {
		r.header(r.Thinking)
		finished = false
	}
	if r.RequireTool && !finished {
		r.start.Prefill = "\n\n" + callsOpen + "\n"
		r.text("\n\n")
		r.template(callsOpen + "\n")
		if r.ToolName != "" {
			r.start.Prefill += invokeOpen + r.ToolName + "\">\n"
			r.template(invokeOpen)
			r.text(r.ToolName + "\">\n")
		}
	}
	return &Prompt{Segments: r.done(), Images: r.images, Warnings: r.warnings, start: r.start, finished: finished}
}

// blocks writes content, its blocks set apart by an empty line.
func (r *renderer) blocks(blocks []Block) {
	for i, b := range blocks {
		if i > 0 {
			r.text("\n\n")
		}
		switch b.Type {
		case "text":
			r.text(b.Text)
		case "image":
			r.control(ImagePad)
			r.images = append(r.images, b.Image)
		case "tool_result":
			r.text("<tool_result>")
			r.blocks(b.Content)
			r.text("</tool_result>")
		}
	}
}

// plain is the text of content without images.
func plain(blocks []Block) string {
	var parts []string
	for _, b := range blocks {
		if b.Type == "text" {
			parts = append(parts, b.Text)
		}
	}
	return strings.Join(parts, "\n\n")
}
