package load

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// asked is a request as the server saw it.
type asked struct {
	Model     string
	Messages  []struct{ Role, Content string }
	MaxTokens int `json:"max_tokens"`
	Stream    bool
	Cache     string
}

// scripted is a server whose answers a test writes.
type scripted struct {
	*httptest.Server
	mu    sync.Mutex
	asked []asked
	busy  atomic.Int32
	most  int32 // requests at a time
}

// serve answers chat completions by a function that gets the request and its number.
func serve(t *testing.T, say func(w http.ResponseWriter, n int, q asked)) *scripted {
	t.Helper()
	s := &scripted{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			fmt.Fprint(w, `{"data": [{"id": "scripted"}, {"id": "other"}]}`)
			return
		}
		if r.URL.Path != "/v1/chat/completions" {
			http.NotFound(w, r)
			return
		}
		var q asked
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Error(err)
		}
		busy := s.busy.Add(1)
		defer s.busy.Add(-1)
		s.mu.Lock()
		n := len(s.asked)
		s.asked, s.most = append(s.asked, q), max(s.most, busy)
		s.mu.Unlock()
		say(w, n, q)
	}))
	t.Cleanup(s.Close)
	return s
}

// seen are the requests until now.
func (s *scripted) seen() []asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// stream sends pieces as a stream of chunks, with usage.
func stream(w http.ResponseWriter, prompt, cached int, pieces ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, ": keep-alive\n\ndata: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n")
	for _, p := range pieces {
		fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":%q}}]}\n\n", p)
		w.(http.Flusher).Flush()
	}
	fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\n")
	fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"prompt_tokens_details\":{\"cached_tokens\":%d}}}\n\ndata: [DONE]\n\n", prompt, len(pieces), cached)
}

func (s *scripted) client(t *testing.T, key string) *Client {
	t.Helper()
	c, err := NewClient(s.URL, key, "")
	if err == nil {
		err = c.FindModel(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func (s *scripted) run(t *testing.T, tr *Trace, o Options) (*Result, *Report) {
	t.Helper()
	c := s.client(t, "")
	x := Run(context.Background(), c, tr, o)
	return x, x.Report(c, o, SLO{})
}

func TestConversationsGrowByTheServersReplies(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, n int, q asked) {
		stream(w, 100, 75, "I ", "say ", fmt.Sprint(len(q.Messages)))
	})
	tr := Generate(Shape{Seed: 1, Requests: 7, System: 20, Turns: 3, User: 5, MaxTokens: 9})
	x, r := s.run(t, tr, Options{Concurrency: 1})
	var roles []string
	for _, q := range s.seen() {
		var b strings.Builder
		for _, m := range q.Messages {
			b.WriteString(m.Role[:1])
		}
		roles = append(roles, b.String())
		if q.Model != "scripted" || !q.Stream || q.MaxTokens != 9 || len(strings.Fields(q.Messages[0].Content)) != 20 || q.Messages[0] != s.seen()[0].Messages[0] {
			t.Errorf("%+v", q)
		}
	}
	if want := []string{"su", "suau", "suauau", "su", "suau", "suauau", "su"}; !slices.Equal(roles, want) {
		t.Errorf("roles %v, want %v", roles, want)
	}
	if got := s.seen()[2].Messages; got[2].Content != "I say 2" || got[4].Content != "I say 4" {
		t.Errorf("replies in the conversation: %q, %q", got[2].Content, got[4].Content)
	}
	if r.OK != 7 || r.Failed != 0 || r.Sessions != 3 || r.PromptTokens != 700 || r.CachedShare != 0.75 || r.Tokens != 21 || !r.Counted || r.Loop != "closed" {
		t.Errorf("%+v", r)
	}
	if r.TTFT.Count != 7 || r.ITL.Count != 14 || r.PerToken.Count > 7 || r.Latency.Count != 7 || r.Good != 7 || s.most != 1 {
		t.Errorf("%+v", r)
	}
	for _, q := range x.Records {
		if !(q.Due <= q.Sent && q.Sent <= q.First && q.First <= q.Last && q.Last <= q.End) || q.Finish != "length" {
			t.Errorf("%+v", q)
		}
	}
}

func TestAClosedLoopHasSoManySessionsAtATime(t *testing.T) {
	all := make(chan struct{})
	var once sync.Once
	var here atomic.Int32
	s := serve(t, func(w http.ResponseWriter, n int, _ asked) {
		if here.Add(1) == 3 {
			once.Do(func() { close(all) })
		}
		<-all
		stream(w, 1, 0, "x")
	})
	_, r := s.run(t, Generate(Shape{Requests: 12, Turns: 2, User: 3}), Options{Concurrency: 3})
	if r.OK != 12 || s.most != 3 {
		t.Errorf("%d answered, %d at a time", r.OK, s.most)
	}
}

func TestAnOpenLoopCountsFromWhenARequestWasDue(t *testing.T) {
	const hold = 200 * time.Millisecond
	s := serve(t, func(w http.ResponseWriter, n int, _ asked) {
		if n == 0 {
			time.Sleep(hold)
		}
		stream(w, 1, 0, "a", "b")
	})
	tr, err := ReadTrace(strings.NewReader(`
		{"session": "s", "at": 0, "messages": [{"role": "user", "content": "one"}]}
		{"session": "s", "at": 0.01, "messages": [{"role": "user", "content": "two"}]}
		{"session": "s", "at": 0.02, "messages": [{"role": "user", "content": "three"}], "extra": {"cache": "off"}}`))
	if err != nil {
		t.Fatal(err)
	}
	x, r := s.run(t, tr, Options{})
	if r.Loop != "open" || r.OK != 3 || math.Abs(r.Rate-100) > 1e-6 {
		t.Fatalf("%+v", r)
	}
	for i, q := range x.Records {
		if q.Turn != i || math.Abs(q.Due-0.01*float64(i)) > 1e-9 {
			t.Errorf("turn %d due at %v", q.Turn, q.Due)
		}
		// The first answer held all of them up, and all of them say so.
		if least := hold.Seconds() - q.Due; q.TTFT() < least || q.Latency() < least || i > 0 && q.Sent < x.Records[i-1].End {
			t.Errorf("turn %d: %v to the first token, %v to the end; the server held it for %v", i, q.TTFT(), q.Latency(), least)
		}
	}
	if got := s.seen(); got[1].Cache != "" || got[2].Cache != "off" {
		t.Errorf("extra fields: %+v", got)
	}
}

func TestRetryAfterIsObeyedAndCounts(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, n int, q asked) {
		if n < 2 {
			w.Header().Set("Retry-After", "0.05")
			w.WriteHeader([]int{429, 503}[n])
			return
		}
		stream(w, 1, 0, "x")
	})
	x, r := s.run(t, Generate(Shape{Requests: 1, Turns: 1, User: 1}), Options{Retries: 2})
	if q := x.Records[0]; !q.OK() || q.Retries != 2 || q.Waited != 0.1 || q.TTFT() < 0.1 || r.Refused != 2 {
		t.Errorf("%+v", q)
	}
}

func TestErrorsByKind(t *testing.T) {
	events := func(text string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, text)
		}
	}
	const piece = `data: {"choices":[{"delta":{"content":"x"}}]}` + "\n\n"
	for _, tc := range []struct {
		kind, message string
		answer        func(http.ResponseWriter)
	}{
		{"status 400", "no such field", func(w http.ResponseWriter) {
			w.WriteHeader(400)
			fmt.Fprint(w, `{"error": {"message": "no such field", "type": "invalid_request_error"}}`)
		}},
		{"status 503", "full", func(w http.ResponseWriter) { w.WriteHeader(503); fmt.Fprint(w, `{"error": "full"}`) }},
		{"status 503", "later", func(w http.ResponseWriter) { // more often than it comes back
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(503)
			fmt.Fprint(w, `{"message": "later"}`)
		}},
		{"status 502", "<html> bad gateway", func(w http.ResponseWriter) { w.WriteHeader(502); fmt.Fprint(w, "<html>\n bad gateway") }},
		{KindStream, "out of pages", events(piece + `data: {"error": {"message": "out of pages"}}` + "\n\n")},
		{KindTruncated, "the stream ended without [DONE] and without a finish reason", events(piece)},
		{KindTruncated, "the stream ended within an event", events(piece + `data: {"choices":[{"del`)},
		{KindMalformed, "not an answer of a chat completion: unexpected end of JSON input", events("data: {\n\n")},
		{KindMalformed, "not an answer of a chat completion: invalid character '<' looking for beginning of value", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			fmt.Fprint(w, "<")
		}},
		{KindMalformed, "not an answer of a chat completion: it has no choices", events("data: {}\n\ndata: [DONE]\n\n")},
		{KindMalformed, "not an answer of a chat completion: it has no choices", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"data": [{"id": "a list of models"}]}`)
		}},
		{KindMalformed, "not an answer of a chat completion: usage of -1 tokens", events(`data: {"usage": {"completion_tokens": -1}}` + "\n\n")},
		{KindMalformed, "not an answer of a chat completion: an event of more than 16 MiB", events("data: " + strings.Repeat("x", maxEvent))},
		{KindStream, "?[31mred", events(`data: {"error": {"message": "\u001b[31mred"}}` + "\n\n")},
		{"status 302", "", func(w http.ResponseWriter) { w.Header().Set("Location", "/v1/models"); w.WriteHeader(302) }},
		{KindTimeout, "no complete answer in time", func(http.ResponseWriter) { time.Sleep(200 * time.Millisecond) }},
	} {
		t.Run(tc.kind, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, _ int, _ asked) { tc.answer(w) })
			o := Options{Retries: 1, Timeout: time.Minute}
			if tc.kind == KindTimeout {
				o.Timeout = 20 * time.Millisecond
			}
			x, r := s.run(t, Generate(Shape{Requests: 2, Turns: 2, User: 2}), o)
			if r.OK != 0 || r.Failed != 2 || r.Errors[tc.kind] != 2 || r.Examples[tc.kind] != tc.message || r.Good != 0 {
				t.Errorf("%v %v", r.Errors, r.Examples)
			}
			if got := s.seen(); len(got) > 1 && len(got[len(got)-1].Messages) != 1 {
				t.Errorf("a turn that failed stays in the conversation: %+v", got)
			}
			if x.Unfinished != 0 || x.Interrupted {
				t.Errorf("%+v", x)
			}
		})
	}
	t.Run(KindConnect, func(t *testing.T) {
		s := serve(t, nil)
		s.Close()
		c, err := NewClient(s.URL, "", "m")
		if err != nil {
			t.Fatal(err)
		}
		x := Run(context.Background(), c, Generate(Shape{Requests: 1, Turns: 1, User: 1}), Options{})
		if q := x.Records[0]; q.Kind != KindConnect || !strings.Contains(q.Message, "connection refused") {
			t.Errorf("%+v", q)
		}
	})
}

func TestAStreamEndsAtDone(t *testing.T) {
	held := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, n int, _ asked) {
		stream(w, 1, 0, "x")
		w.(http.Flusher).Flush()
		if n == 0 { // the connection stays open
			<-held
		}
	})
	defer close(held)
	if _, r := s.run(t, Generate(Shape{Requests: 3, Turns: 3, User: 1}), Options{Timeout: time.Minute}); r.OK != 3 {
		t.Errorf("%+v", r)
	}
}

func TestAnAnswerThatIsNotStreamed(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ int, _ asked) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"choices": [{"message": {"content": "all at once"}, "finish_reason": "stop"}]}`)
	})
	x, r := s.run(t, Generate(Shape{Requests: 2, Turns: 2, User: 1}), Options{})
	if r.OK != 2 || r.Counted || r.Tokens != 2 || r.ITL.Count != 0 || r.PerToken.Count != 0 || x.Records[0].Finish != "stop" {
		t.Errorf("%+v", r)
	}
	if got := s.seen()[1].Messages[1].Content; got != "all at once" {
		t.Errorf("reply %q", got)
	}
}

func TestAnInterruptKeepsWhatWasMeasured(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	s := serve(t, func(w http.ResponseWriter, n int, q asked) {
		if n < 2 {
			stream(w, 1, 0, "x")
			return
		}
		cancel()
		time.Sleep(10 * time.Millisecond)
	})
	c := s.client(t, "")
	var last Progress
	x := Run(ctx, c, Generate(Shape{Requests: 6, Turns: 6, User: 1}), Options{Progress: func(p Progress) { last = p }})
	r := x.Report(c, Options{}, SLO{})
	if !r.Interrupted || r.OK != 2 || r.Failed != 0 || r.Unfinished != 1 || last.Done != 2 || last.Total != 6 || last.InFlight != 0 {
		t.Errorf("%+v %+v", r, last)
	}
	var b strings.Builder
	if err := r.Print(&b); err != nil || !strings.Contains(b.String(), "interrupted") {
		t.Errorf("%v\n%s", err, &b)
	}
}

func TestTheKeyIsSent(t *testing.T) {
	var got atomic.Value
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.Store(r.Header.Get("Authorization"))
		http.Error(w, `{"error": {"message": "wrong key"}}`, http.StatusUnauthorized)
	}))
	defer s.Close()
	c, err := NewClient(s.URL+"/v1/", "secret", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.FindModel(context.Background()); err == nil || !strings.HasSuffix(err.Error(), "/v1/models: status 401: wrong key") {
		t.Error(err)
	}
	if got.Load() != "Bearer secret" {
		t.Errorf("%q", got.Load())
	}
	for _, bad := range []string{"", "127.0.0.1:80", "ftp://x", "http://", "http://a b"} {
		if _, err := NewClient(bad, "", ""); err == nil {
			t.Errorf("%q is an address", bad)
		}
	}
}

func TestAShapeGivesTheSameTrace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Shape{
			Seed: rapid.Uint64().Draw(t, "seed"), Requests: rapid.IntRange(1, 60).Draw(t, "requests"), Turns: rapid.IntRange(1, 9).Draw(t, "turns"),
			Systems: rapid.IntRange(0, 3).Draw(t, "systems"), System: rapid.IntRange(0, 9).Draw(t, "system"), User: rapid.IntRange(1, 9).Draw(t, "user"),
			Think: time.Second,
		}
		a, b := Generate(s), Generate(s)
		rate, think := rapid.Float64Range(0.1, 50).Draw(t, "rate"), time.Duration(rapid.Int64Range(0, 5e9).Draw(t, "think"))
		arrival := rapid.SampledFrom([]Arrival{Poisson, Constant}).Draw(t, "arrival")
		for _, tr := range []*Trace{a, b} {
			if err := tr.Schedule(rate, arrival, think, s.Seed); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(a, b); diff != "" {
			t.Fatal(diff)
		}
		if a.Requests() != s.Requests {
			t.Fatalf("%d requests of %d", a.Requests(), s.Requests)
		}
		var due []float64
		for i, session := range a.Sessions {
			if len(session) != s.Turns && i+1 < len(a.Sessions) {
				t.Fatalf("session %d has %d turns", i, len(session))
			}
			for j, turn := range session {
				if j > 0 && turn.Due < session[j-1].Due {
					t.Fatalf("turn %d is due before the one before", j)
				}
				due = append(due, turn.Due.Seconds())
			}
		}
		slices.Sort(due)
		if arrival == Constant {
			for i, d := range due {
				if math.Abs(d-float64(i)/rate) > 1e-6 {
					t.Fatalf("request %d is due at %v", i, d)
				}
			}
		}
	})
}

func TestPoissonArrivalsHaveTheirRate(t *testing.T) {
	tr := Generate(Shape{Requests: 4000, Turns: 8, User: 1})
	if err := tr.Schedule(20, Poisson, 2*time.Second, 7); err != nil {
		t.Fatal(err)
	}
	if r := tr.rate(); math.Abs(r-20) > 1 {
		t.Errorf("%v requests a second", r)
	}
	for _, bad := range []float64{0, -1, math.NaN(), math.Inf(1), 1e-9} {
		if err := tr.Schedule(bad, Poisson, 0, 0); err == nil {
			t.Errorf("a rate of %v", bad)
		}
	}
}

func TestTracesThatCannotBeRead(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "no requests",
		"\n\n":                                "no requests",
		"{}":                                  `line 1: no "messages"`,
		"\n{":                                 "line 2: unexpected EOF",
		`{"mesages":1}`:                       `unknown field "mesages"`,
		`{"messages": ["x"]}`:                 "messages[0] is not an object with a role",
		`{"messages": [{"role": "user"}]} {}`: "more than one JSON object",
		`{"messages": [{"role": "user"}], "at": -1}`:                                                                                     "at -1",
		`{"messages": [{"role": "user"}], "think": 1e300}`:                                                                               "think 1e+300",
		`{"messages": [{"role": "user"}], "max_tokens": -1}`:                                                                             "max_tokens -1",
		`{"messages": [{"role": "user"}], "at": 1}` + "\n" + `{"messages": [{"role": "user"}]}`:                                          `1 of 2 lines have "at"`,
		`{"session": "a", "messages": [{"role": "user"}], "at": 1}` + "\n" + `{"session": "a", "messages": [{"role": "user"}], "at": 0}`: "line 2: at 0 is before",
		`{"x": "` + strings.Repeat("x", maxLine) + `"}`:                                                                                  "longer than 16 MiB",
	} {
		if _, err := ReadTrace(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
}

func TestObjectives(t *testing.T) {
	for text, want := range map[string]SLO{
		"": {}, "ttft=500ms": {TTFT: 500 * time.Millisecond}, "ttft=1s, itl=50ms,e2e=1m": {time.Second, 50 * time.Millisecond, time.Minute},
	} {
		if got, err := ParseSLO(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, bad := range []string{"ttft", "ttft=", "ttft=0s", "ttft=-1s", "tpot=1s", "ttft=1s,ttft=2s", ",", "itl=5"} {
		if o, err := ParseSLO(bad); err == nil {
			t.Errorf("%q: %v", bad, o)
		}
	}
	slo := SLO{TTFT: time.Second, ITL: 100 * time.Millisecond, Latency: 3 * time.Second}
	for _, tc := range []struct {
		r    Record
		good bool
	}{
		{Record{Due: 1, First: 2, Last: 3, End: 4, Tokens: 11}, true},
		{Record{Due: 1, First: 2.1, Last: 3, End: 4, Tokens: 11}, false},
		{Record{Due: 1, First: 2, Last: 3, End: 4, Tokens: 10}, false},
		{Record{Due: 1, First: 2, Last: 3, End: 4.1, Tokens: 11}, false},
		{Record{Due: 1, First: 2, Last: 3, End: 4, Tokens: 11, Kind: KindStream}, false},
		{Record{Due: 1, First: 2, Last: 2, End: 2, Tokens: 1}, true},
	} {
		if got := slo.Met(&tc.r); got != tc.good {
			t.Errorf("%+v: %v", tc.r, got)
		}
	}
}

func TestPercentilesAreValuesThatOccurred(t *testing.T) {
	var v []float64
	for i := range 200 {
		v = append(v, float64(200-i))
	}
	if got, want := NewSpread(v), (Spread{200, 100.5, 100, 180, 198, 200}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, want := NewSpread([]float64{3}), (Spread{1, 3, 3, 3, 3, 3}); got != want {
		t.Errorf("%+v", got)
	}
	if got := NewSpread(nil); got != (Spread{}) {
		t.Errorf("%+v", got)
	}
}

func TestRetryAfterIsSecondsOrADate(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": -1, "soon": -1, "-1": -1, "NaN": -1, "1e300": -1, "0": 0, "2": 2 * time.Second, "1.5": 1500 * time.Millisecond,
		"Sun, 29 Nov 2026 12:00:07 GMT": 7 * time.Second, "Sun, 29 Nov 2026 11:00:00 GMT": 0,
	} {
		if got := retryAfter(text, now); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestTheReportForPeople(t *testing.T) {
	r := &Report{
		URL: "http://x/v1", Model: "m", Loop: "open", Rate: 4, Sessions: 2, Planned: 16, Seconds: 2, OK: 12, Failed: 3, Refused: 4, Unfinished: 1, Interrupted: true,
		Errors: map[string]int{"timeout": 2, "status 400": 1}, Examples: map[string]string{"timeout": "no complete answer in time", "status 400": "no"},
		SLO: "ttft=1s", Good: 6, Goodput: 3, GoodRate: 0.4, PromptTokens: 1000, CachedTokens: 905, CachedShare: 0.905, TTFT: Spread{12, 0.0123456, 0.01, 0.02, 12.3456, 123.456},
	}
	var b strings.Builder
	if err := r.Print(&b); err != nil {
		t.Fatal(err)
	}
	got := b.String()
	for _, want := range []string{
		"open loop: 16 requests in 2 sessions, 4.000 due a second", "12 answered in 2.000 s, 3 failed, 4 times told to come back later, 1 unfinished",
		"12.35  10.00  20.00  12346  123456     12", "0.000 tokens written (pieces)", "905 cached (90.5 %)",
		"goodput under ttft=1s: 3.000 requests a second, 6 of 15 (40.0 %)", "2 x timeout: no complete answer in time\n1 x status 400: no\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	for line := range strings.SplitSeq(got, "\n") {
		if len(line) > 90 {
			t.Errorf("%d characters: %s", len(line), line)
		}
	}
}

func FuzzReadTrace(f *testing.F) {
	f.Add(`{"session": "s", "at": 0.5, "think": 1, "messages": [{"role": "user", "content": "x"}], "max_tokens": 3, "extra": {"a": 1}}`)
	f.Add("{}\n\n[")
	f.Fuzz(func(t *testing.T, text string) {
		tr, err := ReadTrace(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, s := range tr.Sessions {
			for i := range s {
				c := Client{}
				if _, err := c.body(s[i].Messages, &s[i], nil); err != nil || len(s[i].Messages) == 0 || s[i].Due < 0 || s[i].Think < 0 {
					t.Errorf("%+v: %v", s[i], err)
				}
			}
		}
	})
}

func FuzzReadStream(f *testing.F) {
	f.Add("data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1}}\n\ndata: [DONE]\n\n")
	f.Add(": c\r\nevent: x\ndata: {\ndata: }\n\ndata: {\"error\":\"x\"}")
	f.Fuzz(func(t *testing.T, text string) {
		var a answer
		at := time.Unix(0, 0)
		err := a.readStream(io.MultiReader(strings.NewReader(text)), func() time.Time { at = at.Add(1); return at })
		if err != nil && kindOf(err) == "" {
			t.Error(err)
		}
		if !slices.IsSortedFunc(a.pieces, time.Time.Compare) {
			t.Error(a.pieces)
		}
	})
}
