package serve_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"cedrun/runtime/serve/job"
)

// whole is what a request brought, whatever the dialect and whether streamed.
type whole struct {
	Content, Reasoning []string // by choice
	Calls              []string // name(arguments)
	Finish             []string
	Usage              object
	Logprobs           []any
}

func (w *whole) grow(n int) {
	for len(w.Content) <= n {
		w.Content, w.Reasoning, w.Finish = append(w.Content, ""), append(w.Reasoning, ""), append(w.Finish, "")
	}
}

// dialect sends a request both ways.
type dialect struct {
	path     string
	body     func(messages []object, tools []string, maxTokens int, more object) object
	complete func(t *testing.T, o object) whole
	streamed func(t *testing.T, es []event) whole
}

func merged(a, b object) object {
	for k, v := range b {
		a[k] = v
	}
	return a
}

var schema = object{"type": "object", "properties": object{"city": object{"type": "string"}}}

var dialects = map[string]dialect{
	"chat": {
		path: "/v1/chat/completions",
		body: func(m []object, tools []string, n int, more object) object {
			o := object{"messages": m, "max_tokens": n, "seed": 7}
			var list []object
			for _, name := range tools {
				list = append(list, object{"type": "function", "function": object{"name": name, "parameters": schema}})
			}
			if list != nil {
				o["tools"] = list
			}
			return merged(o, more)
		},
		complete: func(t *testing.T, o object) (w whole) {
			for i := range len(at(o, "choices").([]any)) {
				w.grow(i)
				c := at(o, "choices", i)
				w.Content[i], w.Reasoning[i], w.Finish[i] = text(c, "message", "content"), text(c, "message", "reasoning_content"), text(c, "finish_reason")
				calls, _ := at(c, "message", "tool_calls").([]any)
				for _, call := range calls {
					w.Calls = append(w.Calls, text(call, "function", "name")+"("+text(call, "function", "arguments")+")")
				}
				w.Logprobs = append(w.Logprobs, logprobs(at(c, "logprobs"))...)
			}
			w.Usage, _ = o["usage"].(map[string]any)
			return w
		},
		streamed: func(t *testing.T, es []event) (w whole) {
			if last := es[len(es)-1]; last.data != "[DONE]" {
				t.Errorf("the stream ends in %q", last.data)
			}
			byChoice := map[int][]any{}
			for _, e := range es[:len(es)-1] {
				if u, ok := at(e.object, "usage").(map[string]any); ok {
					w.Usage = u
				}
				for _, c := range at(e.object, "choices").([]any) {
					i := number(c, "index")
					w.grow(i)
					w.Content[i] += text(c, "delta", "content")
					w.Reasoning[i] += text(c, "delta", "reasoning_content")
					w.Finish[i] += text(c, "finish_reason")
					calls, _ := at(c, "delta", "tool_calls").([]any)
					for _, call := range calls {
						if n := number(call, "index"); n == len(w.Calls) {
							if !strings.HasPrefix(text(call, "id"), "call_") || text(call, "type") != "function" {
								t.Errorf("a call begins with %v", call)
							}
							w.Calls = append(w.Calls, text(call, "function", "name")+"(")
						}
						w.Calls[number(call, "index")] += text(call, "function", "arguments")
					}
					byChoice[i] = append(byChoice[i], logprobs(at(c, "logprobs"))...)
				}
			}
			for i := range w.Calls {
				w.Calls[i] += ")"
			}
			for i := range len(w.Content) {
				w.Logprobs = append(w.Logprobs, byChoice[i]...)
			}
			return w
		},
	},
	"messages": {
		path: "/v1/messages",
		body: func(m []object, tools []string, n int, more object) object {
			o := object{"messages": m, "max_tokens": n, "seed": 7}
			var list []object
			for _, name := range tools {
				list = append(list, object{"name": name, "input_schema": schema})
			}
			if list != nil {
				o["tools"] = list
			}
			return merged(o, more)
		},
		complete: func(t *testing.T, o object) (w whole) {
			w.grow(0)
			for _, b := range o["content"].([]any) {
				switch text(b, "type") {
				case "text":
					w.Content[0] += text(b, "text")
				case "thinking":
					w.Reasoning[0] += text(b, "thinking")
					if text(b, "signature") != o["id"] {
						t.Errorf("signature %q of message %q", text(b, "signature"), o["id"])
					}
				case "tool_use":
					input, _ := json.Marshal(at(b, "input"))
					w.Calls = append(w.Calls, text(b, "name")+"("+string(input)+")")
				}
			}
			w.Finish[0] = text(o, "stop_reason") + "/" + text(o, "stop_sequence")
			w.Usage, _ = o["usage"].(map[string]any)
			for _, k := range []string{"service_tier", "cache_creation", "inference_geo"} { // a stream's end has them not
				delete(w.Usage, k)
			}
			return w
		},
		streamed: func(t *testing.T, es []event) (w whole) {
			w.grow(0)
			open, kind, arguments := -1, "", ""
			for i, e := range es {
				if e.name != text(e.object, "type") {
					t.Errorf("event %q of type %q", e.name, text(e.object, "type"))
				}
				switch e.name {
				case "message_start":
					if i != 0 {
						t.Errorf("message_start is event %d", i)
					}
				case "content_block_start":
					if open >= 0 {
						t.Error("a block begins within another one")
					}
					open, kind, arguments = number(e.object, "index"), text(e.object, "content_block", "type"), ""
					if kind == "tool_use" {
						if !strings.HasPrefix(text(e.object, "content_block", "id"), "toolu_") {
							t.Errorf("a call begins with %s", e.data)
						}
						w.Calls = append(w.Calls, text(e.object, "content_block", "name"))
					}
				case "content_block_delta":
					if number(e.object, "index") != open {
						t.Errorf("a delta of block %d within block %d", number(e.object, "index"), open)
					}
					w.Content[0] += text(e.object, "delta", "text")
					w.Reasoning[0] += text(e.object, "delta", "thinking")
					arguments += text(e.object, "delta", "partial_json")
				case "content_block_stop":
					if kind == "tool_use" {
						var input any
						if err := json.Unmarshal([]byte(arguments), &input); err != nil {
							w.Calls = w.Calls[:len(w.Calls)-1] // cut off
						} else {
							compact, _ := json.Marshal(input)
							w.Calls[len(w.Calls)-1] += "(" + string(compact) + ")"
						}
					}
					open = -1
				case "message_delta":
					w.Finish[0] = text(e.object, "delta", "stop_reason") + "/" + text(e.object, "delta", "stop_sequence")
					w.Usage, _ = at(e.object, "usage").(map[string]any)
				}
			}
			if last := es[len(es)-1]; last.name != "message_stop" {
				t.Errorf("the stream ends in %+v", last)
			}
			return w
		},
	},
	"responses": {
		path: "/v1/responses",
		body: func(m []object, tools []string, n int, more object) object {
			o := object{"input": m, "max_output_tokens": n, "seed": 7}
			var list []object
			for _, name := range tools {
				list = append(list, object{"type": "function", "name": name, "parameters": schema})
			}
			if list != nil {
				o["tools"] = list
			}
			if kind, ok := more["thinking"].(object); ok {
				delete(more, "thinking")
				o["reasoning"] = object{"effort": map[string]string{"enabled": "high", "disabled": "none"}[kind["type"].(string)]}
			}
			return merged(o, more)
		},
		complete: completeResponse,
		streamed: func(t *testing.T, es []event) (w whole) {
			w.grow(0)
			var calls []string
			for i, e := range es {
				if n := number(e.object, "sequence_number"); n != i || e.name != text(e.object, "type") {
					t.Errorf("event %d is %q of number %d", i, e.name, n)
				}
				switch e.name {
				case "response.output_text.delta":
					w.Content[0] += text(e.object, "delta")
				case "response.reasoning_text.delta":
					w.Reasoning[0] += text(e.object, "delta")
				case "response.output_item.added":
					if text(e.object, "item", "type") == "function_call" {
						calls = append(calls, text(e.object, "item", "name")+"(")
					}
				case "response.function_call_arguments.delta":
					calls[len(calls)-1] += text(e.object, "delta")
				}
			}
			for _, c := range calls {
				w.Calls = append(w.Calls, c+")")
			}
			last := es[len(es)-1]
			w.Finish[0] = strings.TrimPrefix(last.name, "response.")
			w.Usage, _ = at(last.object, "response", "usage").(map[string]any)
			// The last event holds the whole response; it must say the same.
			r, _ := at(last.object, "response").(map[string]any)
			if all := completeResponse(t, r); !reflect.DeepEqual(all, w) {
				t.Errorf("the last event's response is %+v, the events make %+v", all, w)
			}
			return w
		},
	},
}

// completeResponse reads a response of /v1/responses.
func completeResponse(_ *testing.T, o object) (w whole) {
	w.grow(0)
	for _, it := range o["output"].([]any) {
		switch text(it, "type") {
		case "message":
			w.Content[0] += text(it, "content", 0, "text")
		case "reasoning":
			w.Reasoning[0] += text(it, "content", 0, "text")
		case "function_call":
			w.Calls = append(w.Calls, text(it, "name")+"("+text(it, "arguments")+")")
		}
	}
	w.Finish[0] = text(o, "status")
	w.Usage, _ = o["usage"].(map[string]any)
	return w
}

func logprobs(v any) (out []any) {
	for _, k := range []string{"content", "reasoning_content"} {
		l, _ := at(v, k).([]any)
		for _, x := range l {
			out = append(out, object{k: x})
		}
	}
	return out
}

// both sends a request streamed and not, and returns what both brought.
func (s *server) both(t *testing.T, name string, body object) whole {
	t.Helper()
	d := dialects[name]
	complete := d.complete(t, s.must(d.path, body))
	streamed := d.streamed(t, s.stream(d.path, body))
	if len(complete.Logprobs) == 0 {
		complete.Logprobs = nil
	}
	if !reflect.DeepEqual(complete, streamed) {
		t.Errorf("%s: whole\n%+v\nstreamed\n%+v", name, complete, streamed)
	}
	for _, c := range append(complete.Content, complete.Reasoning...) {
		if !utf8.ValidString(c) || strings.Contains(c, "\uFFFD") || strings.Contains(c, "DSML") || strings.Contains(c, "think>") {
			t.Errorf("%s: text %q", name, c)
		}
	}
	return complete
}

func TestAStreamConcatenatesToTheWhole(t *testing.T) {
	s := start(t, setup{model: func(m *job.Model) { m.Cache = "off" }})
	for name, d := range dialects {
		t.Run(name, func(t *testing.T) {
			w := s.both(t, name, d.body(user("Speak of Moses."), nil, 12, nil))
			if w.Content[0] == "" || w.Reasoning[0] != "" {
				t.Errorf("%+v", w)
			}
			w = s.both(t, name, d.body(user("Speak of Moses."), nil, 12, object{"thinking": object{"type": "enabled"}}))
			if w.Reasoning[0] == "" || w.Content[0] != "" {
				t.Errorf("cut off within its reasoning: %+v", w)
			}
		})
	}
	t.Run("several choices with log-probabilities", func(t *testing.T) {
		w := s.both(t, "chat", dialects["chat"].body(user("Speak."), nil, 6, object{"n": 3, "logprobs": true, "top_logprobs": 2}))
		if len(w.Content) != 3 || w.Content[0] == w.Content[1] || len(w.Logprobs) != 18 {
			t.Errorf("%d choices %q, %d log-probabilities", len(w.Content), w.Content, len(w.Logprobs))
		}
		if number(w.Usage, "completion_tokens") != 18 || number(w.Usage, "total_tokens") != 18+number(w.Usage, "prompt_tokens") {
			t.Errorf("usage %v", w.Usage)
		}
	})
}

const call = "\n\n<｜DSML｜ calls>\n" +
	"<｜DSML｜ invoke name=\"weather\">\n<｜DSML｜ parameter name=\"city\" string=\"true\">Köln \"am\" Rhein 😀\n</｜DSML｜ parameter>\n" +
	"<｜DSML｜ parameter name=\"days\" string=\"false\">[1, 2.5]</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n" +
	"<｜DSML｜ invoke name=\"time\">\n</｜DSML｜ invoke>\n</｜DSML｜ calls>"

// Reasoning, content and calls arrive each in its own channel, once, in every dialect, streamed or not.
func TestAnOutputIsSeparatedInEveryDialect(t *testing.T) {
	arguments := `{"city": "Köln \"am\" Rhein 😀\n", "days": [1, 2.5]}`
	for _, c := range []struct {
		name, output       string
		thinking           bool
		max                int
		reasoning, content string
		calls              int
		finish             map[string]string
		reasoned           int // tokens
	}{
		{name: "an answer", output: "A 😀 日本語.", max: 100, content: "A 😀 日本語.", finish: map[string]string{"chat": "stop", "messages": "end_turn/", "responses": "completed"}},
		{name: "reasoning, then an answer", output: "Two\n</think>\n\nFour.", thinking: true, max: 100, reasoning: "Two", content: "Four.", reasoned: -1,
			finish: map[string]string{"chat": "stop", "messages": "end_turn/", "responses": "completed"}},
		{name: "calls after text", output: "Let me see." + call, max: 1000, content: "Let me see.", calls: 2,
			finish: map[string]string{"chat": "tool_calls", "messages": "tool_use/", "responses": "completed"}},
		{name: "calls after reasoning", output: "Hm.</think>" + call, thinking: true, max: 1000, reasoning: "Hm.", calls: 2, reasoned: -1,
			finish: map[string]string{"chat": "tool_calls", "messages": "tool_use/", "responses": "completed"}},
		{name: "cut off", output: "One two three four five", max: 2, content: "One", finish: map[string]string{"chat": "length", "messages": "max_tokens/", "responses": "incomplete"}},
		{name: "a stray tag", output: "a</think>b<think>c", max: 100, content: "abc", finish: map[string]string{"chat": "stop", "messages": "end_turn/", "responses": "completed"}},
		{name: "broken markup", output: "x\n\n<｜DSML｜ calls>\nnonsense", max: 100, content: "x", finish: map[string]string{"chat": "stop", "messages": "end_turn/", "responses": "completed"}},
		{name: "nothing", output: "", max: 100, finish: map[string]string{"chat": "stop", "messages": "end_turn/", "responses": "completed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t, setup{engine: says(t, c.output)})
			for name, d := range dialects {
				more := object{"thinking": object{"type": map[bool]string{true: "enabled", false: "disabled"}[c.thinking]}}
				w := s.both(t, name, d.body(user("x"), []string{"weather", "time"}, c.max, more))
				if c.name == "cut off" {
					if !strings.HasPrefix("One two", w.Content[0]) || w.Content[0] == "" {
						t.Errorf("%s: content %q", name, w.Content[0])
					}
				} else if w.Content[0] != c.content {
					t.Errorf("%s: content %q, want %q", name, w.Content[0], c.content)
				}
				if w.Reasoning[0] != c.reasoning || w.Finish[0] != c.finish[name] {
					t.Errorf("%s: reasoning %q, finish %q", name, w.Reasoning[0], w.Finish[0])
				}
				want := []string{}
				if c.calls > 0 {
					first := arguments
					if name == "messages" { // compared as JSON
						var v any
						_ = json.Unmarshal([]byte(arguments), &v)
						b, _ := json.Marshal(v)
						first = string(b)
					}
					want = []string{"weather(" + first + ")", "time({})"}
				}
				if fmt.Sprint(w.Calls) != fmt.Sprint(want) {
					t.Errorf("%s: calls %q, want %q", name, w.Calls, want)
				}
				reasoned := number(w.Usage, map[string]string{"chat": "completion_tokens_details", "responses": "output_tokens_details"}[name], "reasoning_tokens")
				if name != "messages" && (reasoned > 0) != (c.reasoned != 0) {
					t.Errorf("%s: %d tokens of reasoning: %v", name, reasoned, w.Usage)
				}
			}
		})
	}
}
