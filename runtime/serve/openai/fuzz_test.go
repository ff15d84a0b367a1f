package openai

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rs/zerolog"

	"cedrun/runtime/engine"
	"cedrun/runtime/sample"
	"cedrun/runtime/serve/job"
	"cedrun/runtime/serve/metrics"
	"cedrun/runtime/serve/wire"
	"cedrun/runtime/tokenizer"
	"cedrun/testdata/demo"
)

func api(t testing.TB, strict bool) *API {
	t.Helper()
	fsys, _ := demo.FS()
	data, err := fs.ReadFile(fsys, "tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	m := &job.Model{Names: []string{"m"}, Tokenizer: tok, BOS: 0, EOS: 1, Context: 1 << 20, Sampling: sample.Default(), Cache: job.CacheOff, Scoring: true}
	return &API{Runner: job.NewRunner(m, idle{}, job.Limits{Slots: 1}, &metrics.Set{}, zerolog.Nop()), Strict: strict}
}

// idle is an engine that is asked nothing.
type idle struct{ job.Engine }

func (idle) Load() engine.Load { return engine.Load{} }

// Whatever a client sends, it is decoded or refused with a sentence; nothing panics, and every token is the model's.
func FuzzRequests(f *testing.F) {
	for _, seed := range []string{
		`{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"tool_choice":"required","stop":["a"],"n":2,"logprobs":true,"top_logprobs":3,"logit_bias":{"5":1}}`,
		`{"messages":[{"role":"developer","content":[{"type":"text","text":"x"}]},{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}],"reasoning":"r"},{"role":"tool","tool_call_id":"a","content":null}],"thinking":{"type":"enabled"},"reasoning_effort":7}`,
		`{"messages":[{"role":"assistant","content":"x","prefix":true}],"chat_template_kwargs":{"thinking":false,"drop_thinking":true},"stream":true,"stream_options":{"include_usage":true},"seed":-1}`,
		`{"prompt":["a",[5,6]],"echo":true,"logprobs":2,"max_tokens":0}`, `{"prompt":[5,6],"suffix":"x"}`, `{"prompt":"a","suffix":"b","stop":"c","best_of":1}`,
		`{"input":"x","instructions":"y","reasoning":{"effort":"max"},"tools":[{"type":"function","name":"f","parameters":{}}],"text":{"format":{"type":"text"}}}`,
		`{"input":[{"role":"user","content":[{"type":"input_text","text":"x"}]},{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"r"}]},{"type":"function_call","call_id":"a","name":"f","arguments":"{"},{"type":"function_call_output","call_id":"a","output":[]}]}`,
		`{`, `null`, `{"messages":{}}`, `{"n":1e400,"temperature":null,"seed":99999999999999999999}`,
	} {
		f.Add(seed)
	}
	lenient, strict := api(f, false), api(f, true)
	f.Fuzz(func(t *testing.T, body string) {
		for _, a := range []*API{lenient, strict} {
			chat, err := a.decodeChat([]byte(body))
			check(t, a, chat.Spec, err)
			completion, err := a.decodeCompletion([]byte(body))
			check(t, a, completion.Spec, err)
			response, err := a.decodeResponse([]byte(body))
			check(t, a, response.Spec, err)
			if err == nil {
				if _, err := wire.Marshal(response.shown); err != nil {
					t.Errorf("what is shown again: %v", err)
				}
			}
		}
	})
}

func check(t *testing.T, a *API, s job.Spec, err error) {
	t.Helper()
	if err != nil {
		var e *wire.Error
		if !errors.As(err, &e) || e.Status < 400 || e.Status > 404 || e.Message == "" || len(e.Message) > 2000 || strings.Contains(e.Message, "\n") || !utf8.ValidString(e.Message) {
			t.Errorf("refused with %#v", err)
		}
		return
	}
	if len(s.Prompts) == 0 || s.Sampling.Validate() != nil {
		t.Errorf("taken: %+v", s)
	}
	for _, p := range s.Prompts {
		for _, id := range p {
			if id < 0 || int(id) >= a.Runner.Model.Tokenizer.VocabSize() {
				t.Errorf("token %d", id)
			}
		}
	}
}
