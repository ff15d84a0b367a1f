package serve_test

import (
	"slices"
	"strings"
	"testing"

	"cedrun/runtime/serve/job"
	"cedrun/runtime/tokenizer"
)

// The reader of an output starts in reasoning or in content as the prompt left it, whatever the request's settings say.
func TestTheParserStartsWhereThePromptEnded(t *testing.T) {
	on, off := object{"type": "enabled"}, object{"type": "disabled"}
	begun := func(more object) []object {
		return []object{{"role": "user", "content": "x"}, merged(object{"role": "assistant", "prefix": true}, more)}
	}
	for _, c := range []struct {
		name, output       string
		more               object
		reasoning, content string
	}{
		{"a chat", "one", object{"thinking": off}, "", "one"},
		{"a chat with reasoning", "one</think>two", object{"thinking": on}, "one", "two"},
		{"an answer that was begun", "one", object{"thinking": on, "messages": begun(object{"content": "zero, "})}, "", "one"},
		{"an answer after its reasoning", "one", object{"thinking": on, "messages": begun(object{"reasoning_content": "why", "content": "zero, "})}, "", "one"},
		{"reasoning that was begun", "one</think>two", object{"thinking": on, "messages": begun(object{"reasoning_content": "zero, ", "content": ""})}, "one", "two"},
		{"an answer that was begun, without reasoning", "one", object{"thinking": off, "messages": begun(object{"content": "zero, "})}, "", "one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t, setup{engine: says(t, c.output)})
			w := s.both(t, "chat", merged(object{"messages": user("x"), "max_tokens": 100}, c.more))
			if w.Reasoning[0] != c.reasoning || w.Content[0] != c.content {
				t.Errorf("reasoning %q, content %q; want %q and %q", w.Reasoning[0], w.Content[0], c.reasoning, c.content)
			}
		})
	}
	// A raw prompt has no state: its text is text throughout, also where its tokens are those of a chat that reasons.
	s := start(t, setup{engine: says(t, "one</think>two")})
	ids := instance(t).Tokenizer.Encode("<｜User｜>x<｜Assistant｜><think>", tokenizer.Options{AddedTokens: true})
	for _, prompt := range []any{"x", ids} {
		o := s.must(completionsPath, object{"prompt": prompt, "max_tokens": 100})
		if got := text(o, "choices", 0, "text"); got != "one</think>two" {
			t.Errorf("prompt %v: text %q", prompt, got)
		}
	}
}

// A limit within the reasoning leaves no content, says so in the finish and in usage, and in one line of the log.
func TestThinkingCutByItsLimitIsReported(t *testing.T) {
	s := start(t, setup{engine: says(t, "one two three four five six"), model: func(m *job.Model) { m.Thinking = true }})
	for name, finish := range map[string]string{"chat": "length", "messages": "max_tokens/", "responses": "incomplete"} {
		w := s.both(t, name, dialects[name].body(user("x"), nil, 3, nil))
		if w.Content[0] != "" || w.Reasoning[0] == "" || w.Finish[0] != finish {
			t.Errorf("%s: %+v", name, w)
		}
		parts := map[string]string{"chat": "completion_tokens_details", "messages": "output_tokens_details", "responses": "output_tokens_details"}
		member := map[string]string{"chat": "reasoning_tokens", "messages": "thinking_tokens", "responses": "reasoning_tokens"}
		if n := number(w.Usage, parts[name], member[name]); n != 3 {
			t.Errorf("%s: %d tokens of reasoning: %v", name, n, w.Usage)
		}
	}
	if n := strings.Count(s.log.String(), "a text ended within its reasoning"); n != 6 {
		t.Errorf("%d hints of 6 in the log: %s", n, s.log)
	}
}

// A client may leave the reasoning of its earlier turns out, also where the template would keep it.
func TestEarlierReasoningNeedNotBeSentBack(t *testing.T) {
	e := says(t, "Yes.")
	s := start(t, setup{engine: e})
	tools := []object{{"type": "function", "function": object{"name": "weather", "parameters": schema}}}
	ask := func(assistant object) []int32 {
		s.must(chatPath, object{"max_tokens": 5, "thinking": object{"type": "enabled"}, "tools": tools, "messages": []object{
			{"role": "user", "content": "Weather?"},
			merged(object{"role": "assistant", "content": "", "tool_calls": []object{{"id": "c", "type": "function", "function": object{"name": "weather", "arguments": "{}"}}}}, assistant),
			{"role": "tool", "tool_call_id": "c", "content": "Sunny."}, {"role": "user", "content": "So?"},
		}})
		return (<-e.told).Prompt
	}
	without, with := ask(nil), ask(object{"reasoning_content": "Let me look."})
	tok := instance(t).Tokenizer
	if got := tok.Decode(with); !strings.Contains(got, "Let me look.") {
		t.Errorf("the reasoning was lost: %q", got)
	}
	if slices.Equal(without, with) || !strings.HasSuffix(tok.Decode(without), "So?<｜Assistant｜><think>") {
		t.Errorf("without it: %q", tok.Decode(without))
	}
	for _, empty := range []object{{"reasoning_content": ""}, {"reasoning_content": nil}} {
		if got := ask(empty); !slices.Equal(got, without) {
			t.Errorf("%v is not as none: %q", empty, tok.Decode(got))
		}
	}
}

// Sixteen stop strings hold at once, wherever they fall among the tokens; a seventeenth is refused.
func TestSixteenStopStringsHoldAtOnce(t *testing.T) {
	const output = "=======\nnew lines of text\n>>>>>>> UPDATED\nmore"
	s := start(t, setup{engine: says(t, output)})
	for _, stop := range []string{"new lines", "w l", "ines of te", "\n>>>>>>> UPDATED", "DATED\nmo"} {
		stops := []string{stop}
		for len(stops) < 16 {
			stops = append(stops, output[:3+len(stops)/2]+strings.Repeat("!", len(stops))) // begun by the text, never finished
		}
		want, _, _ := strings.Cut(output, stop)
		for name, field := range map[string]string{"chat": "stop", "messages": "stop_sequences"} {
			w := s.both(t, name, dialects[name].body(user("x"), nil, 100, object{field: stops}))
			if w.Content[0] != want {
				t.Errorf("%s, stop %q: %q, want %q", name, stop, w.Content[0], want)
			}
		}
		for _, prompt := range []any{"x", []int{5, 6}} {
			o := s.must(completionsPath, object{"prompt": prompt, "max_tokens": 100, "stop": stops})
			if got := text(o, "choices", 0, "text"); got != want || text(o, "choices", 0, "finish_reason") != "stop" {
				t.Errorf("completions of %v, stop %q: %q, want %q", prompt, stop, got, want)
			}
		}
		code, o := s.call(chatPath, minimal(chatPath, object{"stop": append(stops, "x")}))
		refused(t, chatPath, code, o, 400, "stop", "at most 16")
	}
}
