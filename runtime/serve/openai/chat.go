package openai

import (
	"encoding/json"
	"fmt"
	"slices"

	"cedrun/runtime/engine"
	"cedrun/runtime/prompt"
	"cedrun/runtime/sample"
	"cedrun/runtime/serve/job"
	"cedrun/runtime/serve/wire"
)

// chatRequest is a decoded chat completion request.
type chatRequest struct {
	job.Spec
	stream, usage bool
	hideReasoning bool
}

// Chat answers POST /v1/chat/completions.
func (a *API) Chat(c *wire.Call) error {
	q, err := a.decodeChat(c.Body)
	if err != nil {
		return err
	}
	q.Owner, q.Caller = c.Caller, owner(c, q.Caller)
	j, err := a.Runner.Start(c.R.Context(), q.Spec)
	if err != nil {
		return err
	}
	if q.stream {
		return a.streamChat(c, j, q)
	}
	outs, err := j.Collect()
	if err != nil {
		return err
	}
	r := chatResponse{head: a.head(c, "chatcmpl-", "chat.completion")}
	for i, o := range outs {
		x := chatChoice{Index: i, Message: newMessage(c.ID, i, o, q.hideReasoning), Finish: finishReason(&o.Finish), Warning: warning(&o.Finish)}
		if q.Sampling.Logprobs {
			x.Logprobs = newChatLogprobs(a, o.ContentTokens, o.ReasoningTokens)
		}
		r.Choices = append(r.Choices, x)
		c.Note.Finish = x.Finish
	}
	r.Usage, r.Debug = newUsage(c, j.Usage()), j.Debug(c.Asks("cache"))
	return c.JSON(r)
}

func (a *API) decodeChat(body []byte) (q chatRequest, err error) {
	f, err := wire.Object(body)
	if err != nil {
		return q, err
	}
	q.Spec = a.common(f)
	messages := readMessages(f)
	o := prompt.Options{}
	thinking := a.readThinking(f, &q)
	o.Thinking, o.Effort, o.Keep = thinking.On, thinking.Effort, thinking.Keep
	var names map[string]bool
	o.Tools, names = readTools(f)
	var form job.Form
	readToolChoice(f, true).apply(f, &o, &form, names)
	readFormat(f, "response_format", true, &form)
	readParallel(f, "parallel_tool_calls", &form)
	q.Stops = f.Strings("stop", sample.MaxStops)
	f.Int("n", &q.Choices, 1, maxChoices)
	readLimit(f, &q.Spec, "max_tokens", "max_completion_tokens")
	f.Bool("logprobs", &q.Sampling.Logprobs)
	if f.Int("top_logprobs", &q.Top, 0, engine.MaxTopLogprobs) && !q.Sampling.Logprobs {
		f.Fail("top_logprobs", "needs logprobs to be true")
	}
	q.stream, q.usage = readStream(f)
	show := true
	f.Bool("include_reasoning", &show)
	q.hideReasoning = !show
	f.Ignore("prompt_cache_key", "verbosity", "prediction")
	for _, name := range []string{"functions", "function_call", "audio", "web_search_options"} {
		if f.Has(name) {
			f.FailWith(wire.Unsupported(name, "%s is not possible here%s", name, map[bool]string{true: ": use tools and tool_choice"}[name[0] == 'f']))
		}
	}
	if m := f.Strings("modalities", 8); m != nil && !slices.Equal(m, []string{"text"}) {
		f.FailWith(wire.Unsupported("modalities", "modalities: this model writes text only"))
	}
	if err := f.Err(a.Strict); err != nil {
		return q, err
	}
	err = a.render(&q.Spec, messages, o, &form)
	return q, err
}

// render makes the prompt of a conversation and the grammar of its answers.
func (a *API) render(s *job.Spec, messages []prompt.Message, o prompt.Options, form *job.Form) error {
	if err := form.Demand(&o); err != nil {
		return err
	}
	m := a.Runner.Model
	ids, start, err := m.Conversation(messages, o)
	if err != nil {
		return err
	}
	s.Prompts, s.Start = [][]int32{ids}, start
	s.Grammar, err = m.Grammar(form, &o, start)
	return err
}

// readParallel reads whether several calls may be made.
func readParallel(f *wire.Fields, name string, form *job.Form) {
	several := true
	f.Bool(name, &several)
	form.One = !several
}

// readThinking reads the four ways to ask for reasoning, or none. "thinking" wins.
func (a *API) readThinking(f *wire.Fields, q *chatRequest) job.Thinking {
	t := a.Runner.Model.DefaultThinking()
	if k := f.Object("chat_template_kwargs"); k != nil {
		k.Bool("thinking", &t.On)
		k.Bool("enable_thinking", &t.On)
		k.Bool("drop_thinking", &t.Keep)
		if k.Has("drop_thinking") {
			t.Keep = !t.Keep
		}
		on := t.On
		if t.ReadEffort(k, "reasoning_effort"); k.Has("thinking") || k.Has("enable_thinking") {
			t.On = on
		}
	}
	t.ReadEffort(f, "reasoning_effort")
	t.ReadSwitch(f, "thinking")
	return t
}

// readLimit reads the number of tokens to write, which newer clients name otherwise.
func readLimit(f *wire.Fields, s *job.Spec, names ...string) {
	for _, n := range names {
		f.Int(n, &s.MaxTokens, 1, 1<<40)
	}
}

func readStream(f *wire.Fields) (stream, usage bool) {
	f.Bool("stream", &stream)
	if o := f.Object("stream_options"); o != nil {
		if !stream {
			f.Fail("stream_options", "needs stream to be true")
		}
		o.Bool("include_usage", &usage)
		o.Ignore("include_obfuscation", "continuous_usage_stats")
	}
	return stream, usage
}

// readMessages reads the conversation. A developer is the system; a result must answer a call before it.
func readMessages(f *wire.Fields) []prompt.Message {
	list := f.List("messages")
	if len(list) == 0 {
		f.Fail("messages", "is missing or empty: give at least one message")
	}
	var messages []prompt.Message
	var calls []prompt.ToolCall
	for i, raw := range list {
		name := fmt.Sprintf("messages[%d]", i)
		m, err := readMessage(raw)
		if err != nil {
			f.FailWith(wire.Invalid(name, "%s: %v", name, err))
			return nil
		}
		switch m.Role {
		case "assistant":
			if len(m.ToolCalls) > 0 {
				calls = m.ToolCalls
			}
		case "tool":
			if m.ToolCallID == "" {
				f.Fail(name, "is a tool result without tool_call_id")
			} else if !slices.ContainsFunc(calls, func(c prompt.ToolCall) bool { return c.ID == m.ToolCallID }) {
				f.Fail(name, "answers the call %q, which the assistant message before it does not make", wire.Clip(m.ToolCallID))
			}
		}
		messages = append(messages, m)
	}
	return messages
}

func readMessage(raw json.RawMessage) (m prompt.Message, err error) {
	var keys map[string]json.RawMessage
	if json.Unmarshal(raw, &keys) != nil || keys == nil {
		return m, fmt.Errorf("must be an object, not %s", wire.Clip(string(raw)))
	}
	again := false
	if string(keys["role"]) == `"developer"` {
		keys["role"], again = json.RawMessage(`"system"`), true
	}
	if r, ok := keys["reasoning"]; ok && keys["reasoning_content"] == nil && len(r) > 0 && r[0] == '"' {
		keys["reasoning_content"], again = r, true
	}
	if again {
		if raw, err = json.Marshal(keys); err != nil {
			return m, err
		}
	}
	err = json.Unmarshal(raw, &m)
	return m, err
}

// finishReason is how OpenAI names the end of a text. A call that cannot be read ends as one without calls.
func finishReason(f *prompt.Finish) string {
	switch f.Reason {
	case prompt.ReasonLength, prompt.ReasonToolCalls:
		return string(f.Reason)
	}
	return "stop"
}

// warning says what is wrong with a text that ended well.
func warning(f *prompt.Finish) string {
	if f.Err == nil {
		return ""
	}
	return f.Err.Error()
}
