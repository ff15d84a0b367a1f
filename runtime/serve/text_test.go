package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cedrun/runtime/prompt"
	"cedrun/runtime/serve"
	"cedrun/runtime/serve/job"
	"cedrun/runtime/tokenizer"
)

// mixed is request i of a set of all kinds, sampled with seeds of their own.
func mixed(i int) (path string, body object) {
	r := rand.New(rand.NewPCG(9, uint64(i)))
	words := strings.Fields("Moses and Aaron went up to the mountain of God with seventy of the elders of Israel")
	say := strings.Join(words[:1+r.IntN(len(words))], " ")
	n := 1 + r.IntN(24)
	switch i % 4 {
	case 0:
		return chatPath, object{"messages": user(say), "max_tokens": n, "seed": i, "logprobs": true, "n": 1 + r.IntN(2)}
	case 1:
		return completionsPath, object{"prompt": []string{say, say + " and"}, "max_tokens": n, "seed": i, "logprobs": 1, "echo": r.IntN(2) == 0, "temperature": 0}
	case 2:
		return messagesPath, object{"messages": user(say), "max_tokens": n, "seed": i, "thinking": object{"type": "enabled"}, "top_k": 5}
	}
	return responsesPath, object{"input": say, "instructions": "Be brief.", "max_output_tokens": n, "seed": i, "frequency_penalty": 1}
}

// anonymous is an answer without what differs each time.
func anonymous(v any) any {
	switch x := v.(type) {
	case object:
		return anonymous(map[string]any(x))
	case map[string]any:
		for _, k := range []string{"id", "created", "created_at", "signature", "usage"} {
			delete(x, k)
		}
		for _, y := range x {
			anonymous(y)
		}
	case []any:
		for _, y := range x {
			anonymous(y)
		}
	}
	return v
}

// A text does not depend on who else is running: 32 requests at a time, on 4 slots, each equals its lone run.
func TestConcurrentRequestsEqualTheirLoneRuns(t *testing.T) {
	s := start(t, setup{})
	const all = 32
	var alone, together [all]any
	for i := range all {
		path, body := mixed(i)
		alone[i] = anonymous(s.must(path, body))
	}
	var wait sync.WaitGroup
	for i := range all {
		wait.Go(func() {
			path, body := mixed(i)
			if code, o := s.call(path, body); code == 200 {
				together[i] = anonymous(o)
			}
		})
	}
	wait.Wait()
	for i := range all {
		if !reflect.DeepEqual(alone[i], together[i]) {
			path, body := mixed(i)
			t.Errorf("%s %v:\nalone    %v\ntogether %v", path, body, alone[i], together[i])
		}
	}
}

// Clients that leave at any moment change nothing for the others, and leave nothing behind.
func TestClientsThatLeaveChangeNothingForTheOthers(t *testing.T) {
	s := start(t, setup{})
	const all = 24
	var alone, together [all]any
	for i := 0; i < all; i += 2 {
		path, body := mixed(i)
		alone[i] = anonymous(s.must(path, body))
	}
	s.Client().CloseIdleConnections()
	before := runtime.NumGoroutine()
	var wait sync.WaitGroup
	for i := range all {
		wait.Go(func() {
			path, body := mixed(i)
			if i%2 == 0 {
				if code, o := s.call(path, body); code == 200 {
					together[i] = anonymous(o)
				}
				return
			}
			r := rand.New(rand.NewPCG(3, uint64(i)))
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(200))*time.Millisecond)
			defer cancel()
			if resp := s.send(ctx, path, merged(body, object{"stream": r.IntN(2) == 0})); resp != nil {
				_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, int64(r.IntN(2000))))
				cancel()
				resp.Body.Close()
			}
		})
	}
	wait.Wait()
	for i := 0; i < all; i += 2 {
		if !reflect.DeepEqual(alone[i], together[i]) {
			path, body := mixed(i)
			t.Errorf("%s %v:\nalone    %v\ntogether %v", path, body, alone[i], together[i])
		}
	}
	until(t, "an idle server", func() bool { _, o := s.call("/ready", nil); return number(o, "running")+number(o, "waiting") == 0 })
	until(t, "as many goroutines as before", func() bool { s.Client().CloseIdleConnections(); return runtime.NumGoroutine() <= before })
}

// Wherever a stop string begins and ends among the tokens, nothing of it is shown, streamed or not.
func TestAStopStringCutsTheText(t *testing.T) {
	s := start(t, setup{})
	ask := func(more object) object {
		return merged(object{"prompt": "In the beginning God created the", "max_tokens": 24, "temperature": 0}, more)
	}
	full := text(s.must(completionsPath, ask(nil)), "choices", 0, "text")
	for from := 1; from+9 < len(full); from += 11 {
		stop := full[from : from+9]
		want, _, _ := strings.Cut(full, stop)
		for _, more := range []object{{"stop": stop}, {"stop": []string{"\x00", stop}}} {
			o := s.must(completionsPath, ask(more))
			if got := text(o, "choices", 0, "text"); got != want || text(o, "choices", 0, "finish_reason") != "stop" {
				t.Errorf("stop %q: %q, want %q", stop, got, want)
			}
			got := ""
			for _, e := range s.stream(completionsPath, ask(more)) {
				got += text(e.object, "choices", 0, "text")
			}
			if got != want {
				t.Errorf("stop %q, streamed: %q, want %q", stop, got, want)
			}
		}
	}
	// A prompt of token ids is no way around it.
	ids := at(s.must("/tokenize", object{"prompt": "In the beginning God created the"}), "tokens")
	stop := full[5:12]
	want, _, _ := strings.Cut(full, stop)
	if got := text(s.must(completionsPath, ask(object{"prompt": ids, "stop": stop})), "choices", 0, "text"); got != want {
		t.Errorf("by ids: %q, want %q", got, want)
	}
	// Other dialects name the string.
	first := text(s.must(messagesPath, object{"messages": user("Speak."), "max_tokens": 20, "temperature": 0}), "content", 0, "text")
	stop = first[4:9]
	o := s.must(messagesPath, object{"messages": user("Speak."), "max_tokens": 20, "temperature": 0, "stop_sequences": []string{stop}})
	if want, _, _ := strings.Cut(first, stop); text(o, "content", 0, "text") != want || text(o, "stop_reason") != "stop_sequence" || text(o, "stop_sequence") != stop {
		t.Errorf("messages: %v", o)
	}
}

func TestAStopStringWithinAnEditMarker(t *testing.T) {
	s := start(t, setup{engine: says(t, "=======\nnew\n>>>>>>> UPDATED\nmore")})
	o := s.must(chatPath, minimal(chatPath, object{"max_tokens": 100, "stop": []string{">>>>>>> UPDATED"}}))
	if got := text(o, "choices", 0, "message", "content"); got != "=======\nnew\n" {
		t.Errorf("content %q", got)
	}
	o = s.must(chatPath, minimal(chatPath, object{"max_tokens": 100, "stop": []string{">>>>>>> UPDATED!"}}))
	if got := text(o, "choices", 0, "message", "content"); got != "=======\nnew\n>>>>>>> UPDATED\nmore" {
		t.Errorf("content %q, another stop string", got)
	}
}

func TestCompletionsScoreTheirPrompt(t *testing.T) {
	s := start(t, setup{})
	prompt := "And God said, Let there be light"
	o := s.must(completionsPath, object{"prompt": prompt, "max_tokens": 3, "echo": true, "logprobs": 2, "temperature": 0})
	lp := at(o, "choices", 0, "logprobs")
	var pieces []string
	for _, x := range at(lp, "tokens").([]any)[1:] {
		pieces = append(pieces, x.(string))
	}
	whole := text(o, "choices", 0, "text")
	if strings.Join(pieces, "") != whole || !strings.HasPrefix(whole, prompt) {
		t.Errorf("tokens %q of the text %q", pieces, whole)
	}
	values := at(lp, "token_logprobs").([]any)
	if values[0] != nil || len(values) != len(pieces)+1 || len(at(lp, "top_logprobs").([]any)) != len(values) {
		t.Errorf("values %v", values)
	}
	for i, x := range at(lp, "text_offset").([]any)[1:] {
		if at := int(x.(float64)); !strings.HasPrefix(whole[at:], pieces[i]) {
			t.Errorf("token %q is not at %d", pieces[i], at)
		}
	}
	// The score of a token in a prompt is that of the same token when it was written.
	again := s.must(completionsPath, object{"prompt": whole, "max_tokens": 0, "echo": true, "logprobs": 0})
	scored := at(again, "choices", 0, "logprobs", "token_logprobs").([]any)
	if tok := len(scored); tok != len(values) {
		t.Skipf("%d tokens were written as others: %d", len(values), tok)
	}
	if !reflect.DeepEqual(values, scored) {
		t.Errorf("written %v\nscored  %v", values, scored)
	}
	if number(again, "usage", "completion_tokens") != 0 || text(again, "choices", 0, "text") != whole {
		t.Errorf("nothing to write: %v", again)
	}
	// Streamed, it is the same.
	var written string
	var logprobs []any
	for _, e := range s.stream(completionsPath, object{"prompt": prompt, "max_tokens": 3, "echo": true, "logprobs": 2, "temperature": 0}) {
		written += text(e.object, "choices", 0, "text")
		more, _ := at(e.object, "choices", 0, "logprobs", "token_logprobs").([]any)
		logprobs = append(logprobs, more...)
	}
	if written != whole || !reflect.DeepEqual(logprobs, values) {
		t.Errorf("streamed %q %v", written, logprobs)
	}
}

func TestCompletionsOfSeveralPromptsAndAGap(t *testing.T) {
	e := says(t, " filled")
	s := start(t, setup{engine: e})
	o := s.must(completionsPath, object{"prompt": []string{"one", "two"}, "n": 2, "echo": true, "max_tokens": 9})
	for i, want := range []string{"one filled", "one filled", "two filled", "two filled"} {
		if got := text(o, "choices", i, "text"); got != want || number(o, "choices", i, "index") != i {
			t.Errorf("choice %d: %q, want %q", i, got, want)
		}
	}
	for range 4 {
		<-e.told
	}
	s.must(completionsPath, object{"prompt": "before", "suffix": "after", "max_tokens": 9})
	tok := instance(t).Tokenizer
	want, err := prompt.FIM("before", "after").Encode(tok)
	if err != nil {
		t.Fatal(err)
	}
	if got := (<-e.told).Prompt; !slices.Equal(got, want) {
		t.Errorf("the model reads %q", tok.Decode(got))
	}
	// What looks like a control token in a text is text; ids are what they are.
	s.must(completionsPath, object{"prompt": "<｜User｜>", "max_tokens": 9})
	if got := (<-e.told).Prompt; slices.ContainsFunc(got[1:], func(id int32) bool { return tok.IsAdded(int(id)) }) {
		t.Errorf("control tokens out of a text: %v", got)
	}
}

// The four ways to turn reasoning off give the same prompt, and so do those to turn it on.
func TestThinkingIsTurnedOnAndOffInEveryWay(t *testing.T) {
	e := says(t, "Yes.")
	for _, byDefault := range []bool{true, false} {
		s := start(t, setup{engine: e, model: func(m *job.Model) { m.Thinking = byDefault }})
		prompts := map[string][]int32{}
		for name, bodies := range map[string]map[string]object{
			"off": {
				"thinking": {"thinking": object{"type": "disabled"}}, "effort": {"reasoning_effort": "none"}, "wins": {"thinking": object{"type": "disabled"}, "reasoning_effort": "max"},
				"kwargs": {"chat_template_kwargs": object{"thinking": false}}, "other kwargs": {"chat_template_kwargs": object{"enable_thinking": false}},
			},
			"on": {
				"thinking": {"thinking": object{"type": "enabled"}}, "adaptive": {"thinking": object{"type": "adaptive"}}, "effort": {"reasoning_effort": "high"}, "medium": {"reasoning_effort": "medium"},
				"number": {"reasoning_effort": 75}, "kwargs": {"chat_template_kwargs": object{"thinking": true}},
			},
		} {
			for way, more := range bodies {
				s.must(chatPath, minimal(chatPath, more))
				got := (<-e.told).Prompt
				if prompts[name] == nil {
					prompts[name] = got
				}
				if !slices.Equal(got, prompts[name]) {
					t.Errorf("%s by %s: the prompt is %q", name, way, instance(t).Tokenizer.Decode(got))
				}
			}
		}
		// Every dialect has the same default.
		want := prompts[map[bool]string{true: "on", false: "off"}[byDefault]]
		for _, path := range []string{chatPath, messagesPath, responsesPath} {
			s.must(path, minimal(path, nil))
			if got := (<-e.told).Prompt; !slices.Equal(got, want) {
				t.Errorf("%s without a word: %q", path, instance(t).Tokenizer.Decode(got))
			}
		}
		s.must(messagesPath, minimal(messagesPath, object{"thinking": object{"type": "disabled"}}))
		if got := (<-e.told).Prompt; !slices.Equal(got, prompts["off"]) {
			t.Errorf("messages, off: %q", instance(t).Tokenizer.Decode(got))
		}
		s.must(responsesPath, minimal(responsesPath, object{"reasoning": object{"effort": "none"}}))
		if got := (<-e.told).Prompt; !slices.Equal(got, prompts["off"]) {
			t.Errorf("responses, off: %q", instance(t).Tokenizer.Decode(got))
		}
	}
}

func TestEachEffortHasItsPrompt(t *testing.T) {
	s := start(t, setup{engine: says(t, "")})
	tok := instance(t).Tokenizer
	for effort, n := range map[any]int{"minimal": 50, "low": 50, "medium": 75, "high": 75, "xhigh": 75, "max": 100, "ultra": 100, 1: 1, 33: 33, 100: 100} {
		o := s.must("/tokenize", object{"messages": user("x"), "reasoning_effort": effort})
		want := fmt.Sprintf("<｜begin▁of▁sentence｜><｜System｜>Reasoning Effort: %d (range 1-100, the higher the value, the more thorough the reasoning)\n\n<｜User｜>x<｜Assistant｜><think>", n)
		if ids := tok.Encode(want, tokenizer.Options{AddedTokens: true}); number(o, "count") != len(ids) {
			t.Errorf("effort %v: %d tokens, want %d", effort, number(o, "count"), len(ids))
		}
	}
}

// One conversation in the words of three dialects is one prompt.
func TestDialectsRenderTheSameConversation(t *testing.T) {
	e := says(t, "Yes.")
	s := start(t, setup{engine: e})
	off := object{"type": "disabled"}
	description := "the weather"
	s.must(chatPath, object{"max_tokens": 5, "thinking": off, "tools": []object{{"type": "function", "function": json.RawMessage(`{"name": "weather", "description": "the weather", "parameters": {"type": "object"}}`)}},
		"messages": []object{
			{"role": "developer", "content": "Be brief."}, {"role": "user", "content": []object{{"type": "text", "text": "Weather?"}}},
			{"role": "assistant", "content": "I look.", "tool_calls": []object{{"id": "c1", "type": "function", "function": object{"name": "weather", "arguments": `{"city": "Rome"}`}}}},
			{"role": "tool", "tool_call_id": "c1", "content": "Sunny."}, {"role": "user", "content": "So?"},
		}})
	want := (<-e.told).Prompt
	s.must(messagesPath, object{"max_tokens": 5, "thinking": off, "tools": []object{{"name": "weather", "description": description, "input_schema": object{"type": "object"}}},
		"system": []object{{"type": "text", "text": "Be brief.", "cache_control": object{"type": "ephemeral"}}},
		"messages": []object{
			{"role": "user", "content": "Weather?"},
			{"role": "assistant", "content": []object{{"type": "text", "text": "I look."}, {"type": "tool_use", "id": "c1", "name": "weather", "input": object{"city": "Rome"}}}},
			{"role": "user", "content": []object{{"type": "tool_result", "tool_use_id": "c1", "content": []object{{"type": "text", "text": "Sunny."}}}, {"type": "text", "text": "So?"}}},
		}})
	tok := instance(t).Tokenizer
	if got := (<-e.told).Prompt; !slices.Equal(got, want) {
		t.Errorf("messages:\n%q\nchat:\n%q", tok.Decode(got), tok.Decode(want))
	}
	s.must(responsesPath, object{"max_output_tokens": 5, "reasoning": object{"effort": "none"}, "tools": []object{{"type": "function", "name": "weather", "description": description, "parameters": object{"type": "object"}}},
		"instructions": "Be brief.", "input": []object{
			{"role": "user", "content": []object{{"type": "input_text", "text": "Weather?"}}},
			{"type": "message", "id": "m", "role": "assistant", "content": []object{{"type": "output_text", "text": "I look."}}},
			{"type": "function_call", "call_id": "c1", "name": "weather", "arguments": `{"city": "Rome"}`},
			{"type": "function_call_output", "call_id": "c1", "output": "Sunny."}, {"role": "user", "content": "So?"},
		}})
	if got := (<-e.told).Prompt; !slices.Equal(got, want) {
		t.Errorf("responses:\n%q\nchat:\n%q", tok.Decode(got), tok.Decode(want))
	}
}

func TestToolChoice(t *testing.T) {
	e := says(t, "x")
	s := start(t, setup{engine: e})
	tools := []object{{"type": "function", "function": object{"name": "weather"}}, {"type": "function", "function": object{"name": "time"}}}
	tok := instance(t).Tokenizer
	for _, c := range []struct {
		choice any
		has    bool
		end    string
	}{
		{"auto", true, "</think>"}, {"none", false, "</think>"}, {"required", true, "<｜DSML｜ calls>\n"},
		{object{"type": "function", "function": object{"name": "time"}}, true, "<｜DSML｜ invoke name=\"time\">\n"},
	} {
		s.must(chatPath, minimal(chatPath, object{"tools": tools, "tool_choice": c.choice}))
		got := tok.Decode((<-e.told).Prompt)
		if strings.Contains(got, "## Tools") != c.has || !strings.HasSuffix(got, c.end) {
			t.Errorf("choice %v: the prompt is %q", c.choice, got)
		}
	}
	// The call that the prompt begins is part of the answer.
	named := start(t, setup{engine: says(t, "<｜DSML｜ parameter name=\"city\" string=\"true\">Rome</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>")})
	w := named.both(t, "messages", dialects["messages"].body(user("x"), []string{"weather", "time"}, 100, object{"tool_choice": object{"type": "tool", "name": "time"}}))
	if fmt.Sprint(w.Calls) != `[time({"city":"Rome"})]` {
		t.Errorf("calls %q", w.Calls)
	}
	// An answer that the client began goes on from there.
	s.must(messagesPath, object{"max_tokens": 5, "messages": []object{{"role": "user", "content": "x"}, {"role": "assistant", "content": "The answer is"}}})
	if got := tok.Decode((<-e.told).Prompt); !strings.HasSuffix(got, "The answer is") {
		t.Errorf("the prompt is %q", got)
	}
}

// The turns of a conversation reuse its KV cache: exactly the tokens that were processed, with the text of a cold run.
func TestAConversationContinuesOnItsCache(t *testing.T) {
	warm := start(t, setup{engine: newEngine(t), options: serve.Options{Keys: []string{"alice", "bob0", "bob1", "bob2"}}})
	cold := start(t, setup{model: func(m *job.Model) { m.Cache = job.CacheOff }})
	turn := func(s *server, messages []object, more object) (answer string, prompt, cached int) {
		o := s.must(chatPath, merged(object{"messages": messages, "max_tokens": 8, "seed": 3}, more))
		return text(o, "choices", 0, "message", "content"), number(o, "usage", "prompt_tokens"), number(o, "usage", "prompt_tokens_details", "cached_tokens")
	}
	warm.key = "alice"
	var messages []object
	processed := 0
	for i, say := range []string{"Speak of Moses, of Aaron and of the children of Israel.", "And then?", "Who was with them in the wilderness?"} {
		messages = append(messages, object{"role": "user", "content": say})
		got, n, cached := turn(warm, messages, nil)
		want, _, none := turn(cold, messages, nil)
		if got != want || none != 0 {
			t.Fatalf("turn %d: %q, cold %q with %d cached", i, got, want, none)
		}
		if cached != processed {
			t.Errorf("turn %d: %d of %d prompt tokens cached, %d were processed", i, cached, n, processed)
		}
		for name, s := range map[string]*server{"another key": {Server: warm.Server, t: t, key: fmt.Sprint("bob", i)}, "salt": warm} {
			more := object{}
			if name == "salt" {
				more["cache_salt"] = fmt.Sprint("s", i)
			}
			if _, _, cached := turn(s, messages, more); cached != 0 {
				t.Errorf("turn %d: %s sees %d tokens of the cache", i, name, cached)
			}
		}
		messages = append(messages, object{"role": "assistant", "content": got})
		processed = n + 8 - 1 // the last token was sampled, not fed
	}
}

func TestTokenizeAndDetokenizeAreInverse(t *testing.T) {
	s := start(t, setup{engine: says(t, "")})
	for _, say := range []string{"In the beginning 😀 日本語\n\n  x", "", "<｜User｜>"} {
		o := s.must("/tokenize", object{"prompt": say, "add_special_tokens": false})
		if back := s.must("/detokenize", object{"tokens": o["tokens"]}); text(back, "prompt") != say || number(o, "count") != len(o["tokens"].([]any)) {
			t.Errorf("%q becomes %v and %q", say, o, text(back, "prompt"))
		}
	}
}
