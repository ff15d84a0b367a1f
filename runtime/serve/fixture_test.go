package serve_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	ced "cedrun/cuda"
	"cedrun/runtime/engine"
	"cedrun/runtime/model"
	"cedrun/runtime/sample"
	"cedrun/runtime/serve"
	"cedrun/runtime/serve/job"
	"cedrun/runtime/tokenizer"
	"cedrun/testdata/demo"
)

const (
	contextSize = 1024 // of the demo engine
	slots       = 4
)

// demoEngine is the demo model on the CPU, one for all tests.
var demoEngine = sync.OnceValues(openDemo)

func openDemo() (*engine.Instance, error) {
	fsys, _ := demo.FS()
	return engine.Open(engine.Source{FS: fsys}, engine.Setup{
		Backend: ced.CPU, Threads: 1, Context: contextSize, Slots: slots, Chunk: 64, Outputs: 64 + slots, NoSelfTest: true, Snapshots: 64 << 20,
	})
}

// newEngine is one whose cache is empty.
func newEngine(t testing.TB) job.Engine {
	t.Helper()
	i, err := openDemo()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	})
	return job.Of(i.Engine)
}

func instance(t testing.TB) *engine.Instance {
	t.Helper()
	i, err := demoEngine()
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// setup says how a test's server differs from the usual one.
type setup struct {
	options serve.Options
	limits  job.Limits
	engine  job.Engine
	model   func(*job.Model)
}

// server is a server of the demo model, or of a script.
type server struct {
	*httptest.Server
	t     testing.TB
	serve *serve.Server
	key   string
	debug string // X-Cedrun-Debug
	log   *logged
}

// logged is what a server logs.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newModel(i *engine.Instance) *job.Model {
	return &job.Model{
		Names: []string{"demo", "other-name"}, Tokenizer: i.Tokenizer, BOS: int32(i.Config.BOS), EOS: int32(i.Config.EOS), Banned: i.Banned(),
		Context: contextSize, Created: time.Unix(1e9, 0), Sampling: sample.Params{Temperature: 1, TopP: 0.95},
		Prefill: model.Cone, Cache: job.CacheSnapshot, Scoring: true, Degraded: []string{"images"},
	}
}

func start(t testing.TB, s setup) *server {
	t.Helper()
	i := instance(t)
	if s.engine == nil {
		s.engine = job.Of(i.Engine)
	}
	if s.limits.Slots == 0 {
		s.limits = job.Limits{Slots: slots, Queue: 64, Timeout: s.limits.Timeout}
	}
	log := &logged{}
	s.options.Log = zerolog.New(log)
	m := newModel(i)
	if s.model != nil {
		s.model(m)
	}
	h := serve.New(s.options)
	h.Ready(m, s.engine, s.limits)
	x := &server{Server: httptest.NewServer(h), t: t, serve: h, log: log}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := h.Drain(ctx); err != nil {
			t.Errorf("requests are left: %v", err)
		}
		x.Close()
	})
	return x
}

// send sends a request; a nil body is a GET.
func (s *server) send(ctx context.Context, path string, body any) *http.Response {
	s.t.Helper()
	method, r := http.MethodGet, io.Reader(nil)
	if body != nil {
		data, ok := body.(string)
		if !ok {
			b, err := json.Marshal(body)
			if err != nil {
				s.t.Fatal(err)
			}
			data = string(b)
		}
		method, r = http.MethodPost, strings.NewReader(data)
	}
	q, err := http.NewRequestWithContext(ctx, method, s.URL+path, r)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.debug != "" {
		q.Header.Set("X-Cedrun-Debug", s.debug)
	}
	if body != nil {
		q.Header.Set("Content-Type", "application/json")
	}
	if s.key != "" {
		q.Header.Set("Authorization", "Bearer "+s.key)
	}
	resp, err := s.Client().Do(q)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		s.t.Fatal(err)
	}
	return resp
}

// object is a decoded answer.
type object map[string]any

// call sends a request and decodes its answer.
func (s *server) call(path string, body any) (int, object) {
	s.t.Helper()
	resp := s.send(context.Background(), path, body)
	defer resp.Body.Close()
	var o object
	if err := json.NewDecoder(resp.Body).Decode(&o); err != nil {
		s.t.Fatalf("%s: %v", path, err)
	}
	return resp.StatusCode, o
}

// must is a call that has to succeed.
func (s *server) must(path string, body any) object {
	s.t.Helper()
	code, o := s.call(path, body)
	if code != http.StatusOK {
		s.t.Fatalf("%s: status %d: %v", path, code, o)
	}
	return o
}

// at walks an answer: at(o, "choices", 0, "text"). It is nil where the path ends early.
func at(v any, path ...any) any {
	for _, p := range path {
		switch k := p.(type) {
		case string:
			switch m := v.(type) {
			case object:
				v = m[k]
			case map[string]any:
				v = m[k]
			default:
				return nil
			}
		case int:
			l, ok := v.([]any)
			if !ok || k >= len(l) {
				return nil
			}
			v = l[k]
		}
	}
	return v
}

func text(v any, path ...any) string {
	s, _ := at(v, path...).(string)
	return s
}

func number(v any, path ...any) int {
	f, _ := at(v, path...).(float64)
	return int(f)
}

// event is one server-sent event or comment.
type event struct {
	name, data, comment string
	object              object
}

// events reads a stream to its end.
func events(t testing.TB, r io.Reader) (out []event) {
	t.Helper()
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	var e event
	for sc.Scan() {
		line := sc.Text()
		switch {
		case line == "":
			if e.name != "" || e.data != "" || e.comment != "" {
				if strings.HasPrefix(e.data, "{") {
					if err := json.Unmarshal([]byte(e.data), &e.object); err != nil {
						t.Fatalf("event %q: %v", e.data, err)
					}
				}
				out = append(out, e)
			}
			e = event{}
		case strings.HasPrefix(line, ":"):
			e.comment = strings.TrimSpace(line[1:])
		case strings.HasPrefix(line, "event: "):
			e.name = line[len("event: "):]
		case strings.HasPrefix(line, "data: "):
			e.data = line[len("data: "):]
		default:
			t.Fatalf("line %q is none of a stream", line)
		}
	}
	return out
}

// stream sends a request with stream set and reads all events but comments.
func (s *server) stream(path string, body object) []event {
	s.t.Helper()
	with := object{"stream": true}
	for k, v := range body {
		with[k] = v
	}
	resp := s.send(context.Background(), path, with)
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/event-stream") {
		data, _ := io.ReadAll(resp.Body)
		s.t.Fatalf("%s: status %d, content type %q: %s", path, resp.StatusCode, got, data)
	}
	var out []event
	for _, e := range events(s.t, resp.Body) {
		if e.comment == "" {
			out = append(out, e)
		}
	}
	return out
}

// script is an engine that writes what it is told to.
type script struct {
	tok  *tokenizer.Tokenizer
	ids  []int32
	hold chan struct{} // if set, a token needs one of these
	told chan engine.Request
}

// says is a script that writes a text, in which control tokens count as such.
func says(t testing.TB, text string) *script {
	tok := instance(t).Tokenizer
	return &script{tok: tok, ids: tok.Encode(text, tokenizer.Options{AddedTokens: true}), told: make(chan engine.Request, 64)}
}

func (s *script) Load() engine.Load { return engine.Load{KVTokens: 1 << 20} }

func (s *script) Submit(ctx context.Context, r engine.Request) (job.Generation, error) {
	s.told <- r
	r.OnAdmit(engine.Reuse{})
	r.OnPrefill(len(r.Prompt), len(r.Prompt))
	return &scripted{script: s, ctx: ctx, left: s.ids[:min(len(s.ids), r.MaxTokens)], result: engine.Result{
		Finish: map[bool]engine.Finish{true: engine.FinishStop, false: engine.FinishLength}[r.MaxTokens > len(s.ids)],
		Stats:  engine.Stats{PromptTokens: len(r.Prompt)},
	}}, nil
}

type scripted struct {
	*script
	ctx    context.Context
	left   []int32
	result engine.Result
}

func (g *scripted) Next(context.Context) (engine.Token, bool) {
	if g.hold != nil {
		select {
		case <-g.hold:
		case <-g.ctx.Done():
		}
	}
	if g.ctx.Err() != nil {
		g.result.Finish, g.result.Err = engine.FinishCancelled, context.Cause(g.ctx)
		return engine.Token{}, false
	}
	if len(g.left) == 0 {
		return engine.Token{}, false
	}
	t := engine.Token{ID: g.left[0], Logprob: -1}
	g.left = g.left[1:]
	return t, true
}

func (g *scripted) Result() engine.Result { return g.result }

// user is a conversation of one message.
func user(text string) []object { return []object{{"role": "user", "content": text}} }
