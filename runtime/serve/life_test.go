package serve_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"cedrun/runtime/serve"
	"cedrun/runtime/serve/job"
)

func decode(t *testing.T, data string, to any) {
	t.Helper()
	if err := json.Unmarshal([]byte(data), to); err != nil {
		t.Fatalf("%q: %v", data, err)
	}
}

// until waits for something that is about to happen.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

// metric reads a value of /metrics; labels included in the name.
func (s *server) metric(name string) float64 {
	s.t.Helper()
	resp := s.send(context.Background(), "/metrics", nil)
	defer resp.Body.Close()
	for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
		if value, ok := strings.CutPrefix(sc.Text(), name+" "); ok {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				s.t.Fatal(err)
			}
			return v
		}
	}
	return 0
}

func TestBeforeTheModelIsLoadedTheServerLivesAndIsNotReady(t *testing.T) {
	h := serve.New(serve.Options{})
	s := &server{Server: httptest.NewServer(h), t: t}
	defer s.Close()
	if code, o := s.call("/health", nil); code != 200 || text(o, "status") != "ok" {
		t.Errorf("health: %d %v", code, o)
	}
	if code, o := s.call("/ready", nil); code != 503 || text(o, "status") != "loading" {
		t.Errorf("ready: %d %v", code, o)
	}
	for _, path := range []string{chatPath, messagesPath, responsesPath, completionsPath, "/tokenize"} {
		resp := s.send(context.Background(), path, minimal(path, nil))
		data, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		var o object
		decode(t, string(data), &o)
		refused(t, path, resp.StatusCode, o, 503, "", "being loaded")
		if resp.Header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", path)
		}
	}
	if s.metric("cedrun_ready") != 0 {
		t.Error("cedrun_ready is not 0")
	}
	if err := h.Drain(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestHealthReadyModelsAndVersion(t *testing.T) {
	s := start(t, setup{options: serve.Options{Version: "v1"}})
	for _, path := range []string{"/health", "/ready", "/health/ready"} {
		if code, _ := s.call(path, nil); code != 200 {
			t.Errorf("%s: %d", path, code)
		}
	}
	o := s.must("/v1/models", nil)
	if text(o, "data", 0, "id") != "demo" || number(o, "data", 0, "context_length") != contextSize || text(o, "data", 0, "degraded", 0) != "images" || at(o, "data", 0, "capabilities", "tools") != true {
		t.Errorf("models: %v", o)
	}
	if o := s.must("/v1/models/other-name", nil); text(o, "id") != "demo" {
		t.Errorf("a model by its other name: %v", o)
	}
	if o := s.must("/version", nil); text(o, "version") != "v1" {
		t.Errorf("version: %v", o)
	}
	resp, err := http.Head(s.URL + "/health")
	if err != nil || resp.StatusCode != 200 {
		t.Errorf("HEAD: %v %v", resp, err)
	}
}

func TestKeys(t *testing.T) {
	s := start(t, setup{engine: says(t, "Yes."), options: serve.Options{Keys: []string{"alpha", "beta"}}})
	try := func(path string, header, value string) (int, object) {
		t.Helper()
		method, body := http.MethodGet, ""
		if path[:3] == "/v1" {
			method, body = http.MethodPost, `{"messages":[{"role":"user","content":"x"}],"max_tokens":1}`
		}
		q, _ := http.NewRequest(method, s.URL+path, strings.NewReader(body))
		q.Header.Set("Content-Type", "application/json")
		if header != "" {
			q.Header.Set(header, value)
		}
		resp, err := s.Client().Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var o object
		_ = json.NewDecoder(resp.Body).Decode(&o) // metrics are no JSON
		return resp.StatusCode, o
	}
	for _, c := range []struct {
		header, value string
		status        int
	}{
		{"", "", 401}, {"Authorization", "Bearer gamma", 401}, {"Authorization", "Bearer ", 401}, {"Authorization", "alpha", 401}, {"Authorization", "Basic alpha", 401},
		{"X-Api-Key", "alph", 401}, {"X-Api-Key", "alphaa", 401},
		{"Authorization", "Bearer alpha", 200}, {"authorization", "bearer beta", 200}, {"X-Api-Key", "beta", 200},
	} {
		for _, path := range []string{chatPath, messagesPath} {
			code, o := try(path, c.header, c.value)
			if code != c.status {
				t.Errorf("%s %s: %q: status %d, want %d", path, c.header, c.value, code, c.status)
			}
			if code == 401 {
				refused(t, path, code, o, 401, "", "no valid API key")
			}
		}
	}
	for path, want := range map[string]int{"/health": 200, "/ready": 200, "/metrics": 401, "/version": 401} {
		if code, _ := try(path, "", ""); code != want {
			t.Errorf("%s without a key: %d, want %d", path, code, want)
		}
	}
	if code, _ := try("/metrics", "Authorization", "Bearer alpha"); code != 200 {
		t.Errorf("metrics with a key: %d", code)
	}
	for _, secret := range []string{"alpha", "beta", "gamma"} {
		if strings.Contains(s.log.String(), secret) {
			t.Errorf("the log holds the key %q", secret)
		}
	}
}

func TestReadKeys(t *testing.T) {
	keys, err := serve.ReadKeys("# mine\nalpha\n\n  beta \r\n")
	if err != nil || fmt.Sprint(keys) != "[alpha beta]" {
		t.Errorf("%v %v", keys, err)
	}
	if _, err := serve.ReadKeys("alpha\nbe ta"); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("a key with a space: %v", err)
	}
}

func TestWebPagesMayCallOnlyIfAsked(t *testing.T) {
	try := func(s *server, method, origin string) *http.Response {
		q, _ := http.NewRequest(method, s.URL+chatPath, nil)
		q.Header.Set("Origin", origin)
		q.Header.Set("Access-Control-Request-Method", "POST")
		q.Header.Set("Access-Control-Request-Headers", "content-type")
		resp, err := s.Client().Do(q)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	closed := start(t, setup{engine: says(t, "")})
	if resp := try(closed, "OPTIONS", "https://a.example"); resp.StatusCode != 405 || resp.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("closed: %d %v", resp.StatusCode, resp.Header)
	}
	open := start(t, setup{engine: says(t, ""), options: serve.Options{Origins: []string{"https://a.example"}}})
	if resp := try(open, "OPTIONS", "https://a.example"); resp.StatusCode != 204 || resp.Header.Get("Access-Control-Allow-Origin") != "https://a.example" || resp.Header.Get("Access-Control-Allow-Headers") != "content-type" {
		t.Errorf("open: %d %v", resp.StatusCode, resp.Header)
	}
	if resp := try(open, "OPTIONS", "https://b.example"); resp.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("another origin: %v", resp.Header)
	}
	local := start(t, setup{engine: says(t, ""), options: serve.Options{Local: true}})
	for host, want := range map[string]int{"evil.example": 403, "localhost:8080": 200, "127.0.0.1": 200, "[::1]:8080": 200} {
		q, _ := http.NewRequest("GET", local.URL+"/health", nil)
		q.Host = host
		resp, err := local.Client().Do(q)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("host %s: %d, want %d", host, resp.StatusCode, want)
		}
	}
}

func TestAFullQueueRefusesBeforeTheFirstByte(t *testing.T) {
	e := says(t, "one two")
	e.hold = make(chan struct{})
	s := start(t, setup{engine: e, limits: job.Limits{Slots: 1, Queue: 1}})
	ctx, cancel := context.WithCancel(context.Background())
	for range 2 {
		resp := s.send(ctx, chatPath, minimal(chatPath, object{"stream": true, "max_tokens": 10}))
		defer resp.Body.Close()
	}
	for _, path := range []string{chatPath, messagesPath, responsesPath, completionsPath} {
		resp := s.send(context.Background(), path, minimal(path, object{"stream": true}))
		data, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		var o object
		decode(t, string(data), &o)
		refused(t, path, resp.StatusCode, o, 503, "", "the queue is full: 2 texts run or wait")
		if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err != nil || n < 1 || n > 600 {
			t.Errorf("%s: Retry-After %q", path, resp.Header.Get("Retry-After"))
		}
	}
	code, o := s.call(chatPath, minimal(chatPath, object{"n": 3}))
	refused(t, chatPath, code, o, 400, "n", "runs 1 and queues 1")
	if got := s.metric(`cedrun_requests_refused_total{reason="full"}`); got != 4 {
		t.Errorf("refused: %v", got)
	}
	cancel()
	until(t, "room", func() bool { _, o := s.call("/ready", nil); return number(o, "running")+number(o, "waiting") == 0 })
	close(e.hold)
	s.must(chatPath, minimal(chatPath, nil))
}

func TestOneKeyCannotTakeAllPlaces(t *testing.T) {
	e := says(t, "one two")
	e.hold = make(chan struct{})
	s := start(t, setup{engine: e, limits: job.Limits{Slots: 1, Queue: 7, PerKey: 2}, options: serve.Options{Keys: []string{"greedy", "other"}}})
	s.key = "greedy"
	for range 2 {
		resp := s.send(context.Background(), chatPath, minimal(chatPath, object{"stream": true, "max_tokens": 10}))
		defer resp.Body.Close()
	}
	for _, path := range []string{chatPath, messagesPath, responsesPath, completionsPath} {
		resp := s.send(context.Background(), path, minimal(path, object{"stream": true}))
		data, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		var o object
		decode(t, string(data), &o)
		refused(t, path, resp.StatusCode, o, 429, "", "2 texts of this key run or wait, and one key may have 2")
		if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err != nil || n < 1 || n > 600 {
			t.Errorf("%s: Retry-After %q", path, resp.Header.Get("Retry-After"))
		}
	}
	s.key = "other"
	resp := s.send(context.Background(), chatPath, minimal(chatPath, object{"stream": true, "max_tokens": 10}))
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("another key: %d", resp.StatusCode)
	}
	close(e.hold)
	until(t, "an end", func() bool { _, o := s.call("/ready", nil); return number(o, "running")+number(o, "waiting") == 0 })
	s.key = "greedy"
	s.must(chatPath, minimal(chatPath, nil))
}

func TestRequestsTellTheSchedulerWhoseTheyAreAndHowUrgent(t *testing.T) {
	e := says(t, "one")
	s := start(t, setup{engine: e, options: serve.Options{Keys: []string{"alice"}}})
	s.key = "alice"
	for _, path := range []string{chatPath, messagesPath, responsesPath, completionsPath} {
		s.must(path, minimal(path, object{"priority": -3}))
		r := <-e.told
		if r.Priority != -3 || r.Owner == "" {
			t.Errorf("%s: priority %d of %q", path, r.Priority, r.Owner)
		}
		code, o := s.call(path, minimal(path, object{"priority": 1001}))
		refused(t, path, code, o, 400, "priority", "1000")
	}
}

func TestAClientThatLeavesGivesItsPlaceBack(t *testing.T) {
	s := start(t, setup{limits: job.Limits{Slots: 1, Queue: 0}, model: func(m *job.Model) { m.Banned = append(m.Banned, int(m.EOS)) }})
	long := strings.Repeat("the word of the LORD ", 100)
	for _, c := range []struct {
		name  string
		more  object
		after func(*http.Response)
	}{
		{"streaming", object{"stream": true, "max_tokens": contextSize}, func(r *http.Response) { _, _ = r.Body.Read(make([]byte, 10)) }},
		{"waiting for the whole", object{"max_tokens": contextSize}, nil},
		{"in prefill", object{"messages": user(long), "max_tokens": contextSize}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := s.metric(`cedrun_generations_total{finish="cancelled"}`)
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() {
				defer close(done)
				if resp := s.send(ctx, chatPath, minimal(chatPath, c.more)); resp != nil {
					if c.after != nil {
						c.after(resp)
					}
					cancel()
					resp.Body.Close()
				}
			}()
			if c.after == nil {
				until(t, "a running request", func() bool { return s.metric("cedrun_requests_running") > 0 })
				cancel()
			}
			<-done
			until(t, "the place", func() bool { code, _ := s.call(chatPath, minimal(chatPath, nil)); return code == 200 })
			if after := s.metric(`cedrun_generations_total{finish="cancelled"}`); after != before+1 {
				t.Errorf("%v texts cancelled, %v before", after, before)
			}
			cancel()
		})
	}
}

func TestDrainFinishesWhatRunsAndRefusesWhatComes(t *testing.T) {
	e := says(t, "one two three")
	e.hold = make(chan struct{})
	s := start(t, setup{engine: e})
	resp := s.send(context.Background(), chatPath, minimal(chatPath, object{"stream": true, "max_tokens": 100}))
	defer resp.Body.Close()
	drained := make(chan error, 1)
	go func() { drained <- s.serve.Drain(context.Background()) }()
	until(t, "draining", func() bool {
		code, o := s.call("/ready", nil)
		return code == 503 && text(o, "status") == "shutting_down"
	})
	for _, path := range []string{chatPath, messagesPath, responsesPath} {
		code, o := s.call(path, minimal(path, nil))
		refused(t, path, code, o, 503, "", "shutting down")
	}
	if code, _ := s.call("/health", nil); code != 200 {
		t.Error("the process is no longer healthy")
	}
	select {
	case err := <-drained:
		t.Fatalf("drained beside a running request: %v", err)
	default:
	}
	close(e.hold)
	es := events(t, resp.Body)
	if last := es[len(es)-1]; last.data != "[DONE]" {
		t.Errorf("the stream ends in %q", last.data)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
}

func TestDrainAbortsWhatDoesNotEnd(t *testing.T) {
	e := says(t, "one two three")
	e.hold = make(chan struct{})
	s := start(t, setup{engine: e})
	resp := s.send(context.Background(), chatPath, minimal(chatPath, object{"stream": true}))
	defer resp.Body.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := s.serve.Drain(ctx); err == nil {
		t.Error("no error")
	}
	es := events(t, resp.Body)
	if last := es[len(es)-1]; !strings.Contains(last.data, "shutting down") {
		t.Errorf("the stream ends in %q", last.data)
	}
}

func TestADeadlineEndsARequest(t *testing.T) {
	e := says(t, "one two three")
	e.hold = make(chan struct{})
	s := start(t, setup{engine: e, limits: job.Limits{Timeout: 50 * time.Millisecond}})
	for _, path := range []string{chatPath, messagesPath, responsesPath, completionsPath} {
		code, o := s.call(path, minimal(path, nil))
		refused(t, path, code, o, 504, "", "longer than this server allows")
		es := s.stream(path, minimal(path, nil))
		if last := es[len(es)-1]; !strings.Contains(last.data, "longer than this server allows") {
			t.Errorf("%s: the stream ends in %q", path, last.data)
		}
	}
}

func TestASilentStreamIsKeptAlive(t *testing.T) {
	e := says(t, "one")
	e.hold = make(chan struct{})
	s := start(t, setup{engine: e, options: serve.Options{KeepAlive: time.Millisecond}})
	for _, path := range []string{chatPath, messagesPath, responsesPath, completionsPath} {
		resp := s.send(context.Background(), path, minimal(path, object{"stream": true}))
		in := bufio.NewReader(resp.Body)
		for silent := 0; silent < 3; { // what keeps it alive comes while nothing else can
			line, err := in.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(line, ":") || strings.Contains(line, `"ping"`) {
				silent++
			}
		}
		e.hold <- struct{}{}
		e.hold <- struct{}{} // and the end
		if _, err := io.ReadAll(in); err != nil {
			t.Error(err)
		}
		resp.Body.Close()
	}
	// A request that waits for its place or reads its prompt says so.
	long := strings.Repeat("the word of the LORD ", 100)
	real := start(t, setup{options: serve.Options{KeepAlive: time.Millisecond}})
	resp := real.send(context.Background(), chatPath, minimal(chatPath, object{"messages": user(long), "stream": true}))
	defer resp.Body.Close()
	said := ""
	for _, e := range events(t, resp.Body) {
		said += e.comment + "\n"
	}
	if !regexp.MustCompile("prompt: [1-9][0-9]* of ").MatchString(said) {
		t.Errorf("comments %q", said)
	}
}

func TestMetricsMove(t *testing.T) {
	s := start(t, setup{})
	names := []string{
		`cedrun_http_requests_total{route="chat",code="200"}`, "cedrun_generated_tokens_total", "cedrun_prompt_tokens_total", `cedrun_generations_total{finish="length"}`,
		"cedrun_time_to_first_token_seconds_count", "cedrun_inter_token_seconds_count", "cedrun_queue_seconds_count", "cedrun_generation_seconds_count", "cedrun_kv_cache_usage_ratio",
		"cedrun_prefill_seconds_total", "cedrun_decode_seconds_total",
	}
	for _, n := range names[:len(names)-3] {
		if v := s.metric(n); v != 0 {
			t.Errorf("%s is %v at the start", n, v)
		}
	}
	s.must(chatPath, minimal(chatPath, object{"max_tokens": 5, "logit_bias": object{"1": -100}}))
	for _, n := range names {
		if s.metric(n) == 0 {
			t.Errorf("%s is 0 after a request", n)
		}
	}
	if got := s.metric("cedrun_generated_tokens_total"); got != 5 {
		t.Errorf("%v tokens written", got)
	}
	if got := s.metric("cedrun_ready"); got != 1 {
		t.Errorf("cedrun_ready %v", got)
	}
}

func TestTheAccessLogHoldsNoContent(t *testing.T) {
	s := start(t, setup{engine: says(t, "an answer that nobody else reads")})
	s.must(chatPath, minimal(chatPath, object{"messages": user("a question that nobody else reads"), "max_tokens": 50, "user": "somebody"}))
	s.call(chatPath, minimal(chatPath, object{"temperature": "a typo that nobody else reads"}))
	got := s.log.String()
	if strings.Contains(got, "nobody else") || strings.Contains(got, "somebody") {
		t.Errorf("the log holds content: %s", got)
	}
	for _, want := range []string{`"path":"/v1/chat/completions"`, `"status":200`, `"status":400`, `"finish":"stop"`, `"written":`} {
		if !strings.Contains(got, want) {
			t.Errorf("the log lacks %s: %s", want, got)
		}
	}
}
