package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// The soak in short, against the program: answers and leaks, no times.
func TestManyClientsComeAndGo(t *testing.T) {
	program := filepath.Join(t.TempDir(), "cedrun")
	if out, err := exec.Command("go", "build", "-o", program, "cedrun/cmd/cedrun").CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	s, err := start(program, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r, err := soak(t.Context(), s.url, plan{Requests: 44, Together: 64, Sessions: 4, Leaving: 0.25, For: 4 * time.Second, Seed: 2, Every: 100 * time.Millisecond, Kept: s.kept, Log: t.Logf})
	if err := errors.Join(err, s.end()); err != nil {
		t.Fatal(err)
	}
	for _, p := range r.problems() {
		t.Error(p)
	}
	if r.Left == 0 || r.HalfSent == 0 || r.Sessions == 0 || r.Samples == 0 {
		t.Errorf("%+v", r)
	}
}

func TestTheSetIsMixedAndAlwaysTheSame(t *testing.T) {
	a, b := makeSet(200, 1), makeSet(200, 1)
	seen := map[string]int{}
	for i := range a {
		x, _ := json.Marshal(a[i].body)
		y, _ := json.Marshal(b[i].body)
		if string(x) != string(y) || a[i].path != b[i].path {
			t.Fatalf("request %d differs: %s and %s", i, x, y)
		}
		seen[a[i].String()]++
		for k := range a[i].body {
			seen[k]++
		}
	}
	for _, want := range []string{
		"/v1/chat/completions (whole)", "/v1/chat/completions (streamed)", "/v1/completions (whole)", "/v1/completions (streamed)",
		"/v1/messages (whole)", "/v1/messages (streamed)", "/v1/responses (whole)", "/v1/responses (streamed)",
		"tools", "tool_choice", "response_format", "text", "stop", "stop_sequences", "n", "logprobs", "top_logprobs", "echo", "suffix", "thinking", "reasoning", "cache",
	} {
		if seen[want] == 0 {
			t.Errorf("no request with %s", want)
		}
	}
}

// What a stream spells is what the answer at once says, but for what tells runs apart.
func TestStreamsAreFoldedIntoAnswers(t *testing.T) {
	for _, tc := range []struct{ path, stream, whole string }{
		{
			"/v1/chat/completions",
			`data: {"id":"1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":{"content":[{"token":"a"}]}}]}

: comment

data: {"id":"1","choices":[{"index":1,"delta":{"content":"x"}}]}

data: {"id":"1","choices":[{"index":0,"delta":{"content":"ab","tool_calls":[{"index":0,"id":"9","function":{"name":"f","arguments":"{"}}]},"logprobs":{"content":[{"token":"b"}]},"finish_reason":null}]}

data: {"id":"1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]},"finish_reason":"stop"}]}

data: {"choices":[],"usage":{"prompt_tokens":3,"prompt_tokens_details":{"cached_tokens":2}}}

data: [DONE]
`,
			`{"choices":[{"delta":{"content":"ab","role":"assistant","tool_calls":[{"function":{"arguments":"{}","name":"f"},"index":0}]},"finish_reason":"stop","index":0,"logprobs":{"content":[{"token":"a"},{"token":"b"}]}},{"delta":{"content":"x"},"index":1}],"usage":{"prompt_tokens":3,"prompt_tokens_details":{}}}`,
		},
		{
			"/v1/messages",
			`event: message_start
data: {"type":"message_start","message":{"id":"m","role":"assistant","content":[],"usage":{"input_tokens":2,"cache_read_input_tokens":5,"output_tokens":0}}}

data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"b"}}

data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":2,"cache_read_input_tokens":5,"output_tokens":2}}

data: {"type":"message_stop"}
`,
			`{"content":[{"index":0,"text":"ab","type":"text"}],"role":"assistant","stop_reason":"end_turn","usage":{"input_tokens":7,"output_tokens":2}}`,
		},
		{
			"/v1/responses",
			"data: {\"type\":\"response.created\",\"response\":{}}\n\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"output\":[{\"id\":\"x\",\"n\":1}]}}\n",
			`{"output":[{"n":1}]}`,
		},
	} {
		v, err := fold(strings.NewReader(tc.stream), tc.path, func() error { return nil })
		if err != nil || canonical(v) != tc.whole {
			t.Errorf("%s: %v\n%s\nwant\n%s", tc.path, err, canonical(v), tc.whole)
		}
		cut := tc.stream[:strings.LastIndex(strings.TrimSpace(tc.stream), "data:")]
		if v, err := fold(strings.NewReader(cut), tc.path, func() error { return nil }); err == nil {
			t.Errorf("%s without its end: %s", tc.path, canonical(v))
		}
	}
	if _, err := fold(strings.NewReader(`data: {"error":{"message":"x"}}`), "/v1/completions", func() error { return nil }); err == nil {
		t.Error("an error event is an answer")
	}
}

// A server that answers otherwise under load, or that does not give back what it took, is found out.
func TestWhatIsWrongIsFound(t *testing.T) {
	const p = "go_goroutines %d\nprocess_resident_memory_bytes 1\nprocess_open_fds 7\ncedrun_kv_held_tokens 0\ncedrun_requests_running 0\ncedrun_requests_waiting 0\n"
	for _, tc := range []struct {
		name, want string
		answer     func(n int64) string
		goroutines func(n int64) int
	}{
		{"as it should be", "", func(int64) string { return "same" }, func(int64) int { return 9 }},
		{"another answer", "together", func(n int64) string { return fmt.Sprint("same ", n > 11) }, func(int64) int { return 9 }},
		{"a leak", "10 goroutines after, 9 before", func(int64) string { return "same" }, func(n int64) int { return 9 + int(min(1, n/12)) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var asked atomic.Int64
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/health":
				case "/metrics":
					fmt.Fprintf(w, p, tc.goroutines(asked.Load()))
				default:
					var q struct{ Stream bool }
					_ = json.NewDecoder(r.Body).Decode(&q)
					if asked.Add(1); !q.Stream {
						fmt.Fprintf(w, `{"choices":[{"message":{"content":%q}}]}`, tc.answer(asked.Load()))
						return
					}
					fmt.Fprint(w, "data: [DONE]\n\n")
				}
			}))
			defer h.Close()
			r, err := soak(context.Background(), h.URL, plan{Requests: 11, Together: 3, Sessions: 1, For: 300 * time.Millisecond, Every: 10 * time.Millisecond, Log: t.Logf})
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(r.problems(), "\n")
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
