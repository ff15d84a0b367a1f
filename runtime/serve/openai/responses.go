package openai

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"cedrun/runtime/prompt"
	"cedrun/runtime/serve/job"
	"cedrun/runtime/serve/wire"
)

// responseRequest is a decoded request for a response. What the client sent is shown again in the response.
type responseRequest struct {
	job.Spec
	stream   bool
	thinking job.Thinking
	shown    shown
}

// shown are the settings that a response repeats.
type shown struct {
	Instructions json.RawMessage `json:"instructions"`
	MaxOutput    json.RawMessage `json:"max_output_tokens"`
	Metadata     json.RawMessage `json:"metadata"`
	Temperature  float64         `json:"temperature"`
	TopP         float64         `json:"top_p"`
	ToolChoice   json.RawMessage `json:"tool_choice"`
	Tools        json.RawMessage `json:"tools"`
	Reasoning    shownReasoning  `json:"reasoning"`
	Text         shownText       `json:"text"`
	Parallel     bool            `json:"parallel_tool_calls"`
	Previous     *string         `json:"previous_response_id"`
	Truncation   string          `json:"truncation"`
	User         json.RawMessage `json:"user,omitempty"`
}

type shownReasoning struct {
	Effort  *string `json:"effort"`
	Summary *string `json:"summary"`
}

type shownText struct {
	Format json.RawMessage `json:"format"`
}

func (a *API) decodeResponse(body []byte) (q responseRequest, err error) {
	f, err := wire.Object(body)
	if err != nil {
		return q, err
	}
	q.Spec = a.common(f)
	f.Int("max_output_tokens", &q.MaxTokens, 1, 1<<40)
	q.thinking = a.Runner.Model.DefaultThinking()
	if r := f.Object("reasoning"); r != nil {
		q.thinking.ReadEffort(r, "effort")
		r.Ignore("summary", "generate_summary")
	}
	o := prompt.Options{Thinking: q.thinking.On, Effort: q.thinking.Effort, Keep: q.thinking.Keep}
	var names map[string]bool
	o.Tools, names = readFlatTools(f)
	var form job.Form
	readToolChoice(f, false).apply(f, &o, &form, names)
	readParallel(f, "parallel_tool_calls", &form)
	q.shown.Text.Format = json.RawMessage(`{"type":"text"}`)
	if t := f.Object("text"); t != nil {
		readFormat(t, "format", false, &form)
		if raw := t.Raw("format"); raw != nil {
			q.shown.Text.Format = raw
		}
		t.Ignore("verbosity")
	}
	var instructions string
	f.String("instructions", &instructions)
	messages := readInput(f)
	if instructions != "" {
		messages = slices.Insert(messages, 0, prompt.Message{Role: "system", Content: prompt.Text(instructions)})
	}
	f.Bool("stream", &q.stream)
	if o := f.Object("stream_options"); o != nil {
		o.Ignore("include_obfuscation")
	}
	f.Ignore("truncation", "include", "prompt_cache_key", "max_tool_calls")
	for _, name := range []string{"previous_response_id", "conversation", "prompt"} {
		if f.Has(name) {
			f.FailWith(wire.Unsupported(name, "%s: this server keeps no responses; send the whole conversation as input", name))
		}
	}
	var on bool
	if f.Bool("background", &on); on {
		f.FailWith(wire.Unsupported("background", "background: this server answers at once"))
	}
	if n := 0; f.Int("top_logprobs", &n, 0, 20) && n > 0 {
		f.FailWith(wire.Unsupported("top_logprobs", "top_logprobs: responses carry no log-probabilities here; chat completions do"))
	}
	q.show(f)
	if err := f.Err(a.Strict); err != nil {
		return q, err
	}
	if err := a.render(&q.Spec, messages, o, &form); err != nil {
		e := wire.AsError(err)
		if e.Param != "messages" {
			return q, e
		}
		return q, &wire.Error{Status: e.Status, Code: e.Code, Param: "input", Message: strings.Replace(e.Message, "messages:", "input:", 1)}
	}
	return q, nil
}

func (q *responseRequest) show(f *wire.Fields) {
	or := func(name, other string) json.RawMessage {
		if raw := f.Raw(name); raw != nil {
			return raw
		}
		return json.RawMessage(other)
	}
	s := &q.shown
	s.Instructions, s.MaxOutput, s.User = or("instructions", "null"), or("max_output_tokens", "null"), f.Raw("user")
	s.Metadata, s.ToolChoice, s.Tools = or("metadata", "{}"), or("tool_choice", `"auto"`), or("tools", "[]")
	s.Temperature, s.TopP = q.Sampling.Temperature, q.Sampling.TopP
	s.Parallel, s.Truncation = true, "disabled"
	effort := "none"
	if q.thinking.On {
		switch n := q.thinking.Effort; n {
		case prompt.EffortLow:
			effort = "low"
		case prompt.EffortMax:
			effort = "max"
		case 0, prompt.EffortHigh:
			effort = "high"
		default:
			effort = fmt.Sprint(n)
		}
	}
	s.Reasoning.Effort = &effort
}

// readFlatTools reads tools whose function is not nested and writes them as the model's prompts have them.
func readFlatTools(f *wire.Fields) (tools []json.RawMessage, names map[string]bool) {
	names = map[string]bool{}
	for i, raw := range f.List("tools") {
		t := f.Item("tools", i, raw)
		if t == nil {
			return nil, names
		}
		var kind, name, description string
		t.String("type", &kind)
		if kind != "function" {
			t.FailWith(wire.Unsupported(t.Name("type"), "%s: tools of type %q are not possible here, only functions", t.Name("type"), wire.Clip(kind)))
			return nil, names
		}
		strict := false
		t.Bool("strict", &strict)
		if !t.String("name", &name) || name == "" {
			t.Fail("name", "is missing")
		}
		if _, twice := names[name]; twice {
			t.Fail("name", "is given to two tools: %q", wire.Clip(name))
		}
		names[name] = strict
		t.String("description", &description)
		tool, err := job.FunctionTool(name, description, t.Raw("parameters"))
		if err != nil {
			t.FailWith(err)
		}
		tools = append(tools, tool)
	}
	return tools, names
}

// readInput reads a text, or items: messages, calls, their results, earlier reasoning.
func readInput(f *wire.Fields) []prompt.Message {
	var s string
	raw := f.Raw("input")
	if raw == nil {
		f.Fail("input", "is missing: give a text or a list of items")
		return nil
	}
	if json.Unmarshal(raw, &s) == nil {
		return []prompt.Message{{Role: "user", Content: prompt.Text(s)}}
	}
	b := inputBuilder{f: f}
	for i, raw := range f.List("input") {
		it := f.Item("input", i, raw)
		if it == nil {
			return nil
		}
		b.item(it)
	}
	return b.messages
}

// inputBuilder joins the items of one assistant turn to one message.
type inputBuilder struct {
	f        *wire.Fields
	messages []prompt.Message
	calls    map[string]bool
}

// assistant is the turn that is being built.
func (b *inputBuilder) assistant() *prompt.Message {
	if n := len(b.messages); n == 0 || b.messages[n-1].Role != "assistant" {
		b.messages = append(b.messages, prompt.Message{Role: "assistant"})
	}
	return &b.messages[len(b.messages)-1]
}

func (b *inputBuilder) item(it *wire.Fields) {
	kind := "message"
	it.String("type", &kind)
	it.Ignore("id", "status", "phase")
	switch kind {
	case "message":
		b.message(it)
	case "reasoning":
		it.Ignore("summary", "encrypted_content")
		if it.Has("content") {
			b.assistant().ReasoningContent += readParts(it, "content")
		}
	case "function_call":
		var c prompt.ToolCall
		var arguments string
		it.String("call_id", &c.ID)
		it.String("namespace", &c.Namespace)
		it.String("arguments", &arguments)
		if !it.String("name", &c.Name) || c.Name == "" {
			it.Fail("name", "is missing")
		}
		if c.ID == "" {
			it.Fail("call_id", "is missing")
		}
		c.Arguments, _ = json.Marshal(arguments) // a string
		if b.calls == nil {
			b.calls = map[string]bool{}
		}
		b.calls[c.ID] = true
		m := b.assistant()
		m.ToolCalls = append(m.ToolCalls, c)
	case "function_call_output":
		m := prompt.Message{Role: "tool"}
		if !it.String("call_id", &m.ToolCallID) || !b.calls[m.ToolCallID] {
			it.Fail("call_id", "names no function_call before it: %q", wire.Clip(m.ToolCallID))
		}
		m.Content = prompt.Text(readParts(it, "output"))
		b.messages = append(b.messages, m)
	default:
		it.FailWith(wire.Unsupported(it.Name("type"), "%s: items of type %q are not possible here", it.Name("type"), wire.Clip(kind)))
	}
}

func (b *inputBuilder) message(it *wire.Fields) {
	role := ""
	it.String("role", &role)
	content := prompt.Text(readParts(it, "content"))
	switch role {
	case "assistant":
		m := b.assistant()
		m.Content = append(m.Content, content...)
	case "developer", "system":
		b.messages = append(b.messages, prompt.Message{Role: "system", Content: content})
	case "user":
		b.messages = append(b.messages, prompt.Message{Role: "user", Content: content})
	default:
		it.Fail("role", "must be user, assistant, system or developer, not %q", wire.Clip(role))
	}
}

// readParts reads a text, or a list of parts that are texts.
func readParts(it *wire.Fields, name string) string {
	var s string
	raw := it.Raw(name)
	if json.Unmarshal(raw, &s) == nil || raw == nil {
		return s
	}
	var parts []string
	for i, raw := range it.List(name) {
		p := it.Item(name, i, raw)
		if p == nil {
			return ""
		}
		var kind, text string
		p.String("type", &kind)
		p.Ignore("annotations", "logprobs")
		switch kind {
		case "input_text", "output_text", "text", "reasoning_text", "summary_text":
			p.String("text", &text)
		case "refusal":
			p.String("refusal", &text)
		default:
			p.FailWith(wire.Unsupported(p.Name("type"), "%s: parts of type %q are not possible here: this build reads text only", p.Name("type"), wire.Clip(kind)))
			return ""
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "\n\n")
}
