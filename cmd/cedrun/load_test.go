package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cedrun/runtime/load"
)

func TestLoadMeasuresTheServer(t *testing.T) {
	s := serveDemo(t, "--temperature", "0", "--context", "1024")
	records := filepath.Join(t.TempDir(), "records")
	shape := []string{"load", "--url", s.url, "--requests", "6", "--turns", "3", "--system-words", "40", "--turn-words", "8", "--max-tokens", "8", "--extra", `{"ignore_eos": true}`}
	r := succeed(t, "", append(shape, "--concurrency", "2", "--json", "--records", records)...)
	var o load.Report
	if err := json.Unmarshal([]byte(r.out), &o); err != nil || r.err != "" {
		t.Fatalf("%v: %s%s", err, r.out, r.err)
	}
	if o.Model != "cedrun-demo" || o.OK != 6 || o.Failed != 0 || o.Tokens != 48 || !o.Counted || o.Sessions != 2 || o.TTFT.Count != 6 || o.CachedTokens == 0 {
		t.Errorf("%s", r.out)
	}
	data, err := os.ReadFile(records)
	if err != nil || strings.Count(string(data), "\n") != 6 {
		t.Errorf("records: %v\n%s", err, data)
	}
	r = succeed(t, "", append(shape, "--rate", "1000", "--arrival", "constant", "--slo", "ttft=10m")...)
	if !strings.Contains(r.out, "open loop: 6 requests in 2 sessions") || !strings.Contains(r.out, "6 answered") || !strings.Contains(r.out, "6 of 6 (100.0 %)") || r.err != "" {
		t.Errorf("%s%s", r.out, r.err)
	}
	trace := `{"messages": [{"role": "user", "content": "Speak of Moses."}], "max_tokens": 2}` + "\n"
	if r = succeed(t, trace+trace, "load", "--url", s.url, "--trace", "-"); !strings.Contains(r.out, "closed loop: 2 requests in 2 sessions, 2 at a time\nfewer sessions than --concurrency 4") {
		t.Errorf("%s", r.out)
	}
}

func TestLoadPrintsWhatItHasWhenInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	n := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // without that the server does not notice when a client goes
		if n++; n > 2 {
			cancel() // as Ctrl-C does
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}`)
	}))
	defer s.Close()
	r := cedrunIn(ctx, "", "load", "--url", s.URL, "--model", "m", "--concurrency", "1", "--requests", "5")
	if r.status != exitInterrupted || !strings.Contains(r.out, "2 answered") || !strings.Contains(r.out, "1 unfinished") {
		t.Errorf("status %d: %s%s", r.status, r.out, r.err)
	}
}

func TestLoadFlagsThatMakeNoSense(t *testing.T) {
	down := httptest.NewServer(nil)
	down.Close()
	locked := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer locked.Close()
	trace := filepath.Join(t.TempDir(), "trace")
	if err := os.WriteFile(trace, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args string
		want string
	}{
		{"--rate 1 --concurrency 2", "choose one"},
		{"--rate 0", "--rate: a rate of 0 requests a second"},
		{"--concurrency 0", "--concurrency 0: use 1 or more"},
		{"--requests -1", "--requests -1: use 1 or more"},
		{"--requests 1000000000000", "words, and at most 1e+08 are possible: give fewer requests"},
		{"--systems 9000000000000000000", "at most 1e+08 are possible"},
		{"--system-words 9000000000000000000 --requests 1", "at most 1e+08 are possible"},
		{"--turn-words 9000000000000000000 --requests 1", "at most 1e+08 are possible"},
		{"--think 1000000h", "at most 30 days"},
		{"--arrival bursts", `--arrival: "bursts": use poisson or constant`},
		{"--slo fast", `--slo: "fast": use ttft=TIME`},
		{"--url localhost:8080", `--url: "localhost:8080" is not an address`},
		{"--api-key-env NO_SUCH_VARIABLE", "--api-key-env NO_SUCH_VARIABLE: this environment variable is not set"},
		{"--extra []", "--extra: not a JSON object"},
		{"--trace no/such/file", "--trace: open no/such/file: no such file"},
		{"--trace " + trace, `line 1: no "messages"`},
		{"--trace - --turns 2", "--turns shapes conversations that are made up"},
		{"--url " + locked.URL, "wants an API key: name the variable that holds one by --api-key-env"},
		{"--url " + down.URL, "no answer from --url " + down.URL},
		{"--model m --retries 0 --requests 1 --url " + down.URL, "no request was answered"},
	} {
		r := cedrun(t, "", append([]string{"load"}, strings.Fields(tc.args)...)...)
		if r.status != exitError || !strings.Contains(r.err, tc.want) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%s: status %d, %q; want %q", tc.args, r.status, r.err, tc.want)
		}
	}
}

// The examples of the help are command lines that parse.
func TestLoadHelpHasExamples(t *testing.T) {
	r := succeed(t, "", "load", "--help")
	n := 0
	for lines := bufio.NewScanner(strings.NewReader(r.out)); lines.Scan(); {
		if strings.HasPrefix(strings.TrimSpace(lines.Text()), "cedrun load -") {
			n++
		}
	}
	if n < 4 {
		t.Errorf("%d examples in\n%s", n, r.out)
	}
}
