package main

import (
	"net/http"
	"os"
	"strings"
	"testing"
)

// Prefixes come back after a restart with the text of a cold run; a directory that another server uses is refused aloud,
// and that server answers all the same.
func TestServeKeepsPrefixesOnDisk(t *testing.T) {
	dir := t.TempDir()
	words := strings.Repeat("And the LORD spake unto Moses in the wilderness of Sinai. ", 6)
	ask := func(s *serving, cache string) (text string, cached, loaded float64) {
		t.Helper()
		code, o := s.post(t, http.DefaultClient, "/v1/completions", `{"prompt":"`+words+`","max_tokens":8,"seed":1,"cache":"`+cache+`"}`, "X-Cedrun-Debug", "cache")
		if code != 200 {
			t.Fatal(o)
		}
		found := o["cedrun"].(map[string]any)["cache"].([]any)[0].(map[string]any)
		return o["choices"].([]any)[0].(map[string]any)["text"].(string), found["hit_tokens"].(float64), found["disk_tokens"].(float64)
	}
	stop := func(s *serving) {
		t.Helper()
		s.end()
		if status := <-s.ended; status != 0 {
			t.Errorf("exit status %d: %s", status, s.errs)
		}
	}
	s := serveDemo(t, "--kv-dir", dir, "--kv-disk", "64MB")
	want, cached, _ := ask(s, "snapshot")
	if cached != 0 {
		t.Errorf("a new directory holds %v tokens", cached)
	}
	second := serveDemo(t, "--kv-dir", dir, "--kv-disk", "64MB")
	if got, _, _ := ask(second, "snapshot"); got != want {
		t.Errorf("%q without the directory, %q with it", got, want)
	}
	if log := second.errs.String(); !strings.Contains(log, "not kept on disk") || !strings.Contains(log, "another process uses it") {
		t.Errorf("two servers, one directory: %s", log)
	}
	stop(second)
	stop(s)
	again := serveDemo(t, "--kv-dir", dir, "--kv-disk", "64MB")
	got, cached, loaded := ask(again, "snapshot")
	if cold, _, _ := ask(again, "off"); got != want || cold != want {
		t.Errorf("after a restart %q, cold %q, before %q", got, cold, want)
	}
	if loaded < 64 || cached != loaded {
		t.Errorf("after a restart %v tokens are hit, %v of them from disk", cached, loaded)
	}
	stop(again)
}

func TestADiskOfSizeZeroIsNone(t *testing.T) {
	dir := t.TempDir()
	s := serveDemo(t, "--kv-dir", dir, "--kv-disk", "0", "--kv-host", "0")
	if code, o := s.post(t, http.DefaultClient, "/v1/completions", `{"prompt":"In the beginning","max_tokens":2}`); code != 200 {
		t.Error(o)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
	s.end()
	if status := <-s.ended; status != 0 {
		t.Errorf("exit status %d: %s", status, s.errs)
	}
}
