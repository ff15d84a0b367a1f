package serve_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"cedrun/runtime/model"
	"cedrun/runtime/serve/job"
)

// debugged sends a request that asks what the cache gave, and returns that and the whole answer.
func (s *server) debugged(path string, body object) (reuse, answer object) {
	s.t.Helper()
	s.debug = "cache"
	defer func() { s.debug = "" }()
	answer = s.must(path, body)
	list := answer["cedrun"].(map[string]any)["cache"].([]any)
	return list[0].(map[string]any), answer
}

// In each cache mode and prefill mode: how a second prompt begins on the first, and, but for replay, the text of a cold run.
func TestAResponseSaysWhatTheCacheGave(t *testing.T) {
	const prefix = "In the beginning God created the heaven and the earth. And the earth was without form, and void; and darkness was upon the face of the deep."
	for _, prefill := range []model.Prefill{model.Cone, model.Replay} {
		s := start(t, setup{engine: newEngine(t), model: func(m *job.Model) { m.Prefill = prefill }})
		say := func(mode, prompt string) object {
			return object{"prompt": prompt, "max_tokens": 6, "seed": 5, "cache": mode, "cache_salt": prefill.String() + mode}
		}
		for _, mode := range []string{"snapshot", "replay", "off"} {
			first, a := s.debugged(completionsPath, say(mode, prefix+" And the Spirit"))
			n := number(a, "usage", "prompt_tokens")
			if first["restore"] != "none" || first["mode"] != mode || number(first, "hit_tokens") != 0 || number(first, "prompt_tokens") != n || first["first_difference"] != nil {
				t.Errorf("%s %s: the first request: %v", prefill, mode, first)
			}
			second, b := s.debugged(completionsPath, say(mode, prefix+" Let there be"))
			cold := s.must(completionsPath, say("off", prefix+" Let there be"))
			if mode != "replay" && text(b, "choices", 0, "text") != text(cold, "choices", 0, "text") {
				t.Errorf("%s %s: %q, cold %q", prefill, mode, text(b, "choices", 0, "text"), text(cold, "choices", 0, "text"))
			}
			hit, cached := number(second, "hit_tokens"), number(b, "usage", "prompt_tokens_details", "cached_tokens")
			if mode == "off" {
				if hit != 0 || cached != 0 || second["restore"] != "none" {
					t.Errorf("off: %v", second)
				}
				continue
			}
			if hit != cached || hit < 32 || hit >= n {
				t.Errorf("%s %s: %v with %d tokens cached", prefill, mode, second, cached)
			}
			if at, ok := second["first_difference"].(map[string]any); !ok || number(at, "token") != hit || !strings.HasPrefix(text(at, "cached"), " And the") || !strings.HasPrefix(text(at, "prompt"), " Let there") {
				t.Errorf("%s %s: the first difference is %v", prefill, mode, second["first_difference"])
			}
			switch restore := second["restore"]; {
			case mode == "replay" && (restore != "replay" || number(second, "replayed_tokens") != 32),
				mode == "snapshot" && restore != "rows":
				t.Errorf("%s %s: %v", prefill, mode, second)
			}
			// What was written is there too, and the end of a text has a snapshot.
			third, c := s.debugged(completionsPath, say(mode, prefix+" Let there be"+text(b, "choices", 0, "text")+" light"))
			if got := number(third, "hit_tokens"); got < hit+4 || got != number(c, "usage", "prompt_tokens_details", "cached_tokens") {
				t.Errorf("%s %s: the next turn: %v", prefill, mode, third)
			} else if mode == "snapshot" && third["restore"] != "snapshot" {
				t.Errorf("%s %s: the next turn is restored from %v", prefill, mode, third["restore"])
			}
		}
	}
}

// Every dialect says it, streaming or not, and only when asked.
func TestEveryDialectSaysWhatTheCacheGave(t *testing.T) {
	s := start(t, setup{})
	for path, body := range map[string]object{
		chatPath: {"messages": user("Speak."), "max_tokens": 2}, completionsPath: {"prompt": "Speak", "max_tokens": 2},
		messagesPath: {"messages": user("Speak."), "max_tokens": 2}, responsesPath: {"input": "Speak.", "max_output_tokens": 2},
	} {
		if reuse, _ := s.debugged(path, body); number(reuse, "prompt_tokens") == 0 {
			t.Errorf("%s: %v", path, reuse)
		}
		if s.must(path, body)["cedrun"] != nil {
			t.Errorf("%s says it without being asked", path)
		}
		for _, asked := range []string{"", "cache"} {
			s.debug = asked
			r := s.send(context.Background(), path, merged(body, object{"stream": true}))
			s.debug = ""
			data, err := io.ReadAll(r.Body)
			if err != nil {
				t.Fatal(err)
			}
			_ = r.Body.Close()
			if n := strings.Count(string(data), `"cedrun":{"cache":[{"choice":0`); n != len(asked)/5 {
				t.Errorf("%s, asked %q: said %d times in the stream", path, asked, n)
			}
		}
	}
}

// The same prompt three times with others in between equals a cold run each time.
func TestTheSamePromptThreeTimesWithOthersBetween(t *testing.T) {
	s := start(t, setup{})
	ask := func(prompt, mode string) string {
		return text(s.must(completionsPath, object{"prompt": prompt, "max_tokens": 8, "seed": 2, "cache": mode, "cache_salt": "thrice"}), "choices", 0, "text")
	}
	const same = "And Moses said unto the people, Fear ye not, stand still, and see the salvation of the LORD"
	want := ask(same, "off")
	for i, other := range []string{"And Moses said", "And Moses said unto the people, Go", same + ", which he will shew"} {
		if got := ask(same, "snapshot"); got != want {
			t.Errorf("time %d: %q, cold %q", i+1, got, want)
		}
		if got, cold := ask(other, "snapshot"), ask(other, "off"); got != cold {
			t.Errorf("between: %q, cold %q", got, cold)
		}
	}
}
