package anthropic

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
		`{"max_tokens":5,"system":"s","messages":[{"role":"user","content":"x"}],"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"tool","name":"f"},"stop_sequences":["a"],"thinking":{"type":"disabled"}}`,
		`{"max_tokens":5,"messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"document","title":"t","source":{"type":"text","data":"d"}}]},{"role":"assistant","content":[{"type":"thinking","thinking":"r","signature":"s"},{"type":"tool_use","id":"a","name":"f","input":{"k":[1]}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"r"}],"is_error":false}]}],"output_config":{"effort":"max"}}`,
		`{"max_tokens":5,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"The answer is"}],"stream":true,"top_k":3}`,
		`{`, `null`, `{"messages":{}}`, `{"max_tokens":1e400}`,
	} {
		f.Add(seed)
	}
	lenient, strict := api(f, false), api(f, true)
	f.Fuzz(func(t *testing.T, body string) {
		for _, a := range []*API{lenient, strict} {
			for _, counting := range []bool{false, true} {
				q, err := a.decode([]byte(body), counting)
				if err != nil {
					var e *wire.Error
					if !errors.As(err, &e) || e.Status < 400 || e.Status > 404 || e.Message == "" || len(e.Message) > 2000 || strings.Contains(e.Message, "\n") || !utf8.ValidString(e.Message) {
						t.Errorf("refused with %#v", err)
					}
					continue
				}
				if len(q.Prompts) != 1 || q.Sampling.Validate() != nil {
					t.Errorf("taken: %+v", q)
				}
				for _, id := range q.Prompts[0] {
					if id < 0 || int(id) >= a.Runner.Model.Tokenizer.VocabSize() {
						t.Errorf("token %d", id)
					}
				}
			}
		}
	})
}
