package anthropic

import (
	"encoding/json"
	"net/http"

	"cedrun/runtime/grammar"
	"cedrun/runtime/prompt"
	"cedrun/runtime/sample"
	"cedrun/runtime/serve/job"
	"cedrun/runtime/serve/wire"
)

// API answers calls by a Runner.
type API struct {
	Runner *job.Runner
	Strict bool // fields without a meaning here are refused
}

// WriteError writes an error in this dialect.
func WriteError(w http.ResponseWriter, e *wire.Error, id string) {
	e.Head(w.Header())
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Status)
	data, _ := wire.Marshal(failure(e, id)) // strings only
	_, _ = w.Write(append(data, '\n'))
}

type failed struct {
	Type    string    `json:"type"`
	Error   errorBody `json:"error"`
	Request string    `json:"request_id"`
}

type errorBody struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

func failure(e *wire.Error, id string) failed {
	kind := "invalid_request_error"
	switch e.Status {
	case http.StatusUnauthorized:
		kind = "authentication_error"
	case http.StatusForbidden:
		kind = "permission_error"
	case http.StatusNotFound:
		kind = "not_found_error"
	case http.StatusRequestEntityTooLarge:
		kind = "request_too_large"
	case http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case http.StatusServiceUnavailable:
		kind = "overloaded_error"
	case http.StatusGatewayTimeout:
		kind = "timeout_error"
	case http.StatusInternalServerError:
		kind = "api_error"
	}
	return failed{"error", errorBody{kind, e.Message}, id}
}

// request is a decoded request for a message.
type request struct {
	job.Spec
	stream bool
}

func (a *API) decode(body []byte, counting bool) (q request, err error) {
	m := a.Runner.Model
	f, err := wire.Object(body)
	if err != nil {
		return q, err
	}
	var name string
	f.String("model", &name)
	if err := m.Check(name); err != nil && !claude(name) {
		f.FailWith(err)
	}
	q.MaxTokens = -1
	if !f.Int("max_tokens", &q.MaxTokens, 1, 1<<40) && !counting {
		f.Fail("max_tokens", "is missing")
	}
	q.Sampling = m.ReadSampling(f)
	q.Cache, q.Caller = m.ReadCache(f)
	f.Int("priority", &q.Priority, -job.MaxPriority, job.MaxPriority)
	q.Stops = f.Strings("stop_sequences", sample.MaxStops)
	f.Bool("stream", &q.stream)
	var form job.Form
	thinking := m.DefaultThinking()
	if c := f.Object("output_config"); c != nil {
		thinking.ReadEffort(c, "effort")
		readFormat(c, &form)
	}
	thinking.ReadSwitch(f, "thinking")
	o := prompt.Options{Thinking: thinking.On, Effort: thinking.Effort, Keep: thinking.Keep}
	names := readTools(f, &o)
	readToolChoice(f, &o, &form, names)
	messages := readMessages(f)
	f.Ignore("metadata", "service_tier", "inference_geo", "cache_control", "context_management")
	for _, name := range []string{"container", "mcp_servers"} {
		if f.Has(name) {
			f.FailWith(wire.Unsupported(name, "%s: this server runs no tools", name))
		}
	}
	if err := f.Err(a.Strict); err != nil {
		return q, err
	}
	if err := form.Demand(&o); err != nil {
		return q, err
	}
	ids, start, err := m.Conversation(messages, o)
	if err != nil {
		return q, err
	}
	q.Prompts, q.Start = [][]int32{ids}, start
	q.Grammar, err = m.Grammar(&form, &o, start)
	return q, err
}

// readFormat reads the schema of the text.
func readFormat(f *wire.Fields, form *job.Form) {
	o := f.Object("format")
	if o == nil {
		return
	}
	kind := ""
	if o.String("type", &kind); kind != "json_schema" {
		o.Fail("type", "must be json_schema, not %q", wire.Clip(kind))
	}
	if form.Schema = o.Raw("schema"); form.Schema == nil {
		o.Fail("schema", "is missing")
	}
	form.Format, form.At = grammar.Schema, o.Name("schema")
}

// claude reports a name of the models that clients of this dialect ask for.
func claude(name string) bool { return len(name) > 7 && name[:7] == "claude-" }

// readTools reads functions; those that a server would run are refused.
func readTools(f *wire.Fields, o *prompt.Options) map[string]bool {
	names := map[string]bool{}
	for i, raw := range f.List("tools") {
		t := f.Item("tools", i, raw)
		if t == nil {
			return names
		}
		kind, name, description := "custom", "", ""
		t.String("type", &kind)
		if kind != "custom" {
			t.FailWith(wire.Unsupported(t.Name("type"), "%s: tools of type %q are run by a server and not possible here", t.Name("type"), wire.Clip(kind)))
			return names
		}
		if !t.String("name", &name) || name == "" {
			t.Fail("name", "is missing")
		}
		if _, twice := names[name]; twice {
			t.Fail("name", "is given to two tools: %q", wire.Clip(name))
		}
		strict := false
		t.Bool("strict", &strict)
		names[name] = strict
		t.String("description", &description)
		t.Ignore("cache_control", "eager_input_streaming", "input_examples", "defer_loading", "allowed_callers")
		tool, err := job.FunctionTool(name, description, t.Raw("input_schema"))
		if err != nil {
			t.FailWith(err)
		}
		o.Tools = append(o.Tools, tool)
	}
	return names
}

func readToolChoice(f *wire.Fields, o *prompt.Options, form *job.Form, names map[string]bool) {
	form.Strict = names
	c := f.Object("tool_choice")
	if c == nil {
		return
	}
	kind, name := "", ""
	c.String("type", &kind)
	c.Bool("disable_parallel_tool_use", &form.One)
	switch kind {
	case "auto":
		return
	case "none":
		o.Tools = nil
		return
	case "any":
		if len(names) == 0 {
			f.Fail("tool_choice", "is any, and there are no tools")
		}
	case "tool":
		c.String("name", &name)
		if _, known := names[name]; !known {
			c.Fail("name", "%q is not among the tools", wire.Clip(name))
		}
	default:
		c.Fail("type", "must be auto, any, tool or none, not %q", wire.Clip(kind))
		return
	}
	form.Require, form.Name = true, name
}

// readMessages reads system and messages.
func readMessages(f *wire.Fields) []prompt.Message {
	var messages []prompt.Message
	if f.Has("system") {
		messages = append(messages, prompt.Message{Role: "system", Content: readBlocks(f, "system", nil)})
	}
	list := f.List("messages")
	if len(list) == 0 {
		f.Fail("messages", "is missing or empty: give at least one message")
	}
	calls := map[string]bool{}
	for i, raw := range list {
		it := f.Item("messages", i, raw)
		if it == nil {
			return nil
		}
		m := prompt.Message{}
		it.String("role", &m.Role)
		switch m.Role {
		case "user", "system":
			m.Content = readBlocks(it, "content", calls)
		case "assistant":
			readAssistant(it, &m)
			clear(calls)
			for _, c := range m.ToolCalls {
				calls[c.ID] = true
			}
			m.Prefix = i == len(list)-1
		default:
			it.Fail("role", "must be user, assistant or system, not %q", wire.Clip(m.Role))
		}
		messages = append(messages, m)
	}
	return messages
}

// readBlocks reads a text or blocks: texts, documents that are text, and, where calls were made, their results.
func readBlocks(it *wire.Fields, name string, calls map[string]bool) []prompt.Block {
	raw := it.Raw(name)
	var s string
	if raw == nil {
		it.Fail(name, "is missing")
		return nil
	}
	if json.Unmarshal(raw, &s) == nil {
		return prompt.Text(s)
	}
	var out []prompt.Block
	for i, raw := range it.List(name) {
		b := it.Item(name, i, raw)
		if b == nil {
			return nil
		}
		kind, text := "", ""
		b.String("type", &kind)
		b.Ignore("cache_control", "citations")
		switch kind {
		case "text":
			b.String("text", &text)
			out = append(out, prompt.Block{Type: "text", Text: text})
		case "document":
			out = append(out, readDocument(b))
		case "tool_result":
			r := prompt.Block{Type: "tool_result"}
			if b.String("tool_use_id", &r.ToolUseID); !calls[r.ToolUseID] {
				b.Fail("tool_use_id", "names no tool_use of the message before: %q", wire.Clip(r.ToolUseID))
			}
			b.Ignore("is_error")
			if b.Has("content") {
				r.Content = readBlocks(b, "content", nil)
			}
			out = append(out, r)
		default:
			b.FailWith(wire.Unsupported(b.Name("type"), "%s: blocks of type %q are not possible here: this build reads text only", b.Name("type"), wire.Clip(kind)))
			return nil
		}
	}
	return out
}

func readDocument(b *wire.Fields) prompt.Block {
	var title, kind, data string
	b.String("title", &title)
	b.Ignore("context")
	if src := b.Object("source"); src != nil {
		src.String("type", &kind)
		src.Ignore("media_type")
		if kind != "text" {
			src.FailWith(wire.Unsupported(src.Name("type"), "%s: documents of type %q are not possible here, only text", src.Name("type"), wire.Clip(kind)))
		}
		src.String("data", &data)
	}
	if title != "" {
		data = title + "\n\n" + data
	}
	return prompt.Block{Type: "text", Text: data}
}

// readAssistant reads what the model said: a text, or blocks of thinking, text and calls.
func readAssistant(it *wire.Fields, m *prompt.Message) {
	raw := it.Raw("content")
	var s string
	if json.Unmarshal(raw, &s) == nil {
		m.Content = prompt.Text(s)
		return
	}
	for i, raw := range it.List("content") {
		b := it.Item("content", i, raw)
		if b == nil {
			return
		}
		kind, text := "", ""
		b.String("type", &kind)
		b.Ignore("cache_control", "citations", "signature", "data", "caller")
		switch kind {
		case "text":
			b.String("text", &text)
			m.Content = append(m.Content, prompt.Block{Type: "text", Text: text})
		case "thinking":
			b.String("thinking", &text)
			m.ReasoningContent += text
		case "redacted_thinking":
		case "tool_use":
			c := prompt.ToolCall{Arguments: b.Raw("input")}
			b.String("id", &c.ID)
			b.String("name", &c.Name)
			if c.ID == "" || c.Name == "" {
				b.Fail("id", "and name are needed")
			}
			m.ToolCalls = append(m.ToolCalls, c)
		default:
			b.FailWith(wire.Unsupported(b.Name("type"), "%s: blocks of type %q are not possible here", b.Name("type"), wire.Clip(kind)))
			return
		}
	}
}
