package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"cedrun/runtime/profile"
	"cedrun/runtime/telemetry"
)

func TestProfileAccountsForARequest(t *testing.T) {
	dir := t.TempDir()
	trace, plot := filepath.Join(dir, "t.json"), filepath.Join(dir, "r.svg")
	out := succeed(t, "", "profile", "-m", testdata+"mini/base", "--prompt-tokens", "40", "--tokens", "3", "--chunk", "16", "--json", "--trace", trace, "--roofline", plot).out
	var r profile.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Phases) != 2 || r.Phases[0].Tokens != 40 || r.Phases[0].Steps != 3 || r.Phases[1].Tokens != 2 || r.Limits == nil || r.Mode != "replay" {
		t.Fatalf("%+v", r)
	}
	for _, p := range r.Phases {
		sum, bytes := p.Unaccounted, 0.
		for _, x := range p.Rows {
			sum, bytes = sum+x.Took, bytes+x.Bytes
		}
		if sum != p.Took || bytes <= 0 {
			t.Errorf("%s: %v of %v in rows, %v bytes", p.Name, sum, p.Took, bytes)
		}
	}
	for name, begin := range map[string]string{trace: `{"displayTimeUnit"`, plot: "<svg "} {
		if b, err := os.ReadFile(name); err != nil || !strings.HasPrefix(string(b), begin) {
			t.Errorf("%s: %.40s, %v", name, b, err)
		}
	}
}

func TestProfilePrintsTablesOfAPrompt(t *testing.T) {
	out := succeed(t, "", "profile", "-p", "Once upon a time", "--tokens", "2", "--layers").out
	for _, want := range []string{"PREFILL: ", "DECODE: 1 tokens", "unaccounted", "LAYER PART", "expert_gemm"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestProfileRefusesWhatItCannotDo(t *testing.T) {
	for name, tc := range map[string]struct{ args, want string }{
		"two prompts":    {"-p x --prompt-tokens 5", "--prompt-tokens makes up a prompt"},
		"too long":       {"--prompt-tokens 99999999", "do not fit together: this model takes"},
		"no tokens":      {"--tokens 0", "--tokens 0: use 1 or more"},
		"mode":           {"--prefill fast", "use exact, cone or replay"},
		"a bitmap":       {"--roofline plot.png", "give a name that ends in .svg"},
		"no such folder": {"--prompt-tokens 4 --tokens 1 --trace /nonexistent/t.json", "--trace: open /nonexistent/t.json: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			r := cedrun(t, "", append([]string{"profile", "-m", testdata + "mini/base"}, strings.Fields(tc.args)...)...)
			if r.status != 1 || !strings.Contains(r.err, tc.want) || strings.Count(r.err, "\n") != 1 {
				t.Errorf("status %d, %q", r.status, r.err)
			}
		})
	}
}

func TestProfileAttachesToAServer(t *testing.T) {
	dir, err := os.MkdirTemp("", "cedrun") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("XDG_RUNTIME_DIR", dir)
	if r := cedrun(t, "", "profile", "--attach"); r.status != 1 || !strings.Contains(r.err, "start cedrun serve, or leave out --attach") {
		t.Errorf("status %d, %q", r.status, r.err)
	}
	s := serveDemo(t)
	got := make(chan result)
	plot, pid := filepath.Join(dir, "r.svg"), strconv.Itoa(os.Getpid())
	go func() {
		got <- cedrunIn(context.Background(), "", "profile", "--attach", "--seconds", "2", "--json", "--trace", filepath.Join(dir, "t.json"), "--roofline", plot, pid)
	}()
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); {
		if status, _ := s.post(t, http.DefaultClient, "/v1/completions", `{"model":"cedrun-demo","prompt":"Once upon a time","max_tokens":20,"cache":"off"}`); status != http.StatusOK {
			t.Fatalf("status %d", status)
		}
	}
	out := <-got
	var r profile.Report
	if err := json.Unmarshal([]byte(out.out), &r); err != nil || out.status != 0 {
		t.Fatalf("%v, status %d: %s", err, out.status, out.err)
	}
	if len(r.Phases) != 2 || r.PID != os.Getpid() || r.Mode != "" || r.Limits == nil {
		t.Fatalf("%+v", r)
	}
	for _, p := range r.Phases {
		sum, bytes := p.Unaccounted, 0.
		for _, x := range p.Rows {
			sum, bytes = sum+x.Took, bytes+x.Bytes
		}
		if sum != p.Took || (bytes > 0) != (p.Name == profile.Decode) {
			t.Errorf("%s: %v of %v in rows, %v bytes", p.Name, sum, p.Took, bytes)
		}
	}
	for args, want := range map[string]string{
		"--attach 0": "give the number of a process", "--attach 999999999": "nobody listens", "--attach 999999999 --seconds 2": "nobody listens", "--attach=999999999 --layers": "nobody listens", "--attach --tokens 5": "leave out --tokens", "--attach --seconds 0": "--seconds: 0 seconds: use more than 0", "--attach --seconds nan": "--seconds: NaN seconds: use more than 0",
		"7": `unexpected argument "7"`, "--seconds 5": "--seconds is for --attach",
	} {
		if r := cedrun(t, "", append([]string{"profile"}, strings.Fields(args)...)...); r.status != 1 || !strings.Contains(r.err, want) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%s: status %d, %q", args, r.status, r.err)
		}
	}
}

func TestAProcessThatDoesNotAnswerIsNotWaitedForForever(t *testing.T) {
	dir, err := os.MkdirTemp("", "cedrun") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s, err := telemetry.Listen(dir, map[string]telemetry.Answer{
		profile.Want: func(ctx context.Context, _ json.RawMessage) (any, error) { <-ctx.Done(); return nil, ctx.Err() },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client, err := telemetry.Dial(context.Background(), s.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := recordThere(context.Background(), client, profile.Ask{Seconds: 0.01}, time.Millisecond); err == nil || !strings.Contains(err.Error(), "no answer within 11ms: is the process stopped?") {
		t.Errorf("%v", err)
	}
}

func TestAFileThatCannotBeWrittenIsSaidBeforeAnythingRuns(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "old.svg")
	if err := os.WriteFile(old, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"--trace " + dir: "is a directory", "--roofline " + dir + "/none/r.svg": "no such file", "--attach 999999999 --trace " + dir: "is a directory",
		"--attach 999999999 --roofline " + old + " --trace " + dir + "/new": "nobody listens",
	} {
		r := cedrun(t, "", append([]string{"profile"}, strings.Fields(args)...)...)
		if r.status != 1 || !strings.Contains(r.err, want) || strings.Contains(r.err, "recording") {
			t.Errorf("%s: status %d, %q", args, r.status, r.err)
		}
	}
	if b, err := os.ReadFile(old); string(b) != "kept" {
		t.Errorf("%s: %q, %v", old, b, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
		t.Error("a file that was only tried stays")
	}
}

func TestAFailedFileGoesButADeviceStays(t *testing.T) {
	fault := errors.New("fault")
	dir := t.TempDir()
	for name, stays := range map[string]bool{filepath.Join(dir, "file"): false, filepath.Join(dir, "pipe"): true} {
		if stays {
			if err := syscall.Mkfifo(name, 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := os.OpenFile(name, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
		}
		if err := writeFile(name, func(io.Writer) error { return fault }); !errors.Is(err, fault) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(name); (err == nil) != stays {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnInterruptedProfileEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r := cedrunIn(ctx, "", "profile", "-m", testdata+"mini/base", "--tokens", "2"); r.status != exitInterrupted {
		t.Errorf("status %d, %q", r.status, r.err)
	}
}
