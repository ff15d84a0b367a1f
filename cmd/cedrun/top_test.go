package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"cedrun/runtime/telemetry"
	"cedrun/runtime/top"
)

func TestTopShowsTheMachineAlone(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	screen := succeed(t, "", "top", "--once").out
	for _, want := range []string{"cedrun top", "GPU", "CPU", "Memory", "Disk", "no cedrun serves or generates here"} {
		if !strings.Contains(screen, want) {
			t.Errorf("no %q in\n%s", want, screen)
		}
	}
	if strings.ContainsRune(screen, 0x1b) {
		t.Errorf("colours in a pipe: %q", screen)
	}
	for line := range strings.Lines(screen) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestTopSeesARunningServer(t *testing.T) {
	s := serveDemo(t)
	body := `{"messages":[{"role":"user","content":"Speak of Moses."}],"max_tokens":30}`
	if code, o := s.post(t, http.DefaultClient, "/v1/chat/completions", body); code != 200 {
		t.Fatalf("%d %v", code, o)
	}
	pid := fmt.Sprint(os.Getpid())
	var v top.View
	if err := json.Unmarshal([]byte(succeed(t, "", "top", "--json", "--pid", pid).out), &v); err != nil {
		t.Fatal(err)
	}
	m := v.Snapshot.Model
	if v.Snapshot.Process.Command != "serve" || v.Snapshot.Process.Address != s.url || m == nil {
		t.Fatalf("%+v", v.Snapshot)
	}
	if m.Slots != 2 || m.Context != 256 || m.Threads != 1 || m.Decode.Tokens == 0 || m.Prefill.Tokens == 0 || m.Decode.Active == 0 || m.Prefill.Active == 0 ||
		m.Prefix.Requests != 1 || len(m.KV) == 0 || len(m.Experts.Chosen) != m.Layers || m.Engram.Rows == 0 {
		t.Errorf("%+v", m)
	}
	socket := telemetry.Path(telemetry.Dir(), os.Getpid())
	if screen := succeed(t, "", "top", "--once", "--socket", socket).out; !strings.Contains(screen, "MODEL   the embedded demo model") || !strings.Contains(screen, s.url) {
		t.Errorf("%s", screen)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
	defer cancel()
	r := cedrunIn(ctx, "", "top", "--watch", "0.2", "--json", "--pid", pid)
	if n := strings.Count(r.out, "\n"); r.status != 0 || n < 2 {
		t.Errorf("--watch until Ctrl-C: status %d, %d lines, %s", r.status, n, r.err)
	}
	s.end()
	<-s.ended
	if r := cedrun(t, "", "top", "--pid", pid); r.status != 1 || !strings.Contains(r.err, "publishes nothing") {
		t.Errorf("after its end: %d %s", r.status, r.err)
	}
}

func TestTopRefusesWhatItCannotDo(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--watch", "0"}, "use 0.1 to 86400 seconds"},
		{[]string{"--watch", "NaN"}, "use 0.1 to 86400 seconds"},
		{[]string{"--pid", "1", "--socket", "x"}, "give one of them"},
		{[]string{"--pid", "1"}, "publishes nothing in"},
		{[]string{"--pid", "0"}, "--pid 0: use 1 or more"},
		{[]string{"--socket", filepath.Join(workDir, "none.sock")}, "nobody listens on"},
	} {
		if r := cedrun(t, "", append([]string{"top"}, c.args...)...); r.status != 1 || !strings.Contains(r.err, c.says) || r.out != "" || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%v: %d %q", c.args, r.status, r.err)
		}
	}
}

func TestLocalesWithoutUTF8GetASCII(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		utf8 bool
	}{
		{nil, false}, {map[string]string{"LANG": "en_US.UTF-8"}, true}, {map[string]string{"LANG": "de_DE.utf8"}, true},
		{map[string]string{"LANG": "en_US.UTF-8", "LC_ALL": "C"}, false}, {map[string]string{"LANG": "C", "LC_CTYPE": "C.UTF-8"}, true},
	} {
		if got := utf8Locale(func(name string) string { return c.env[name] }); got != c.utf8 {
			t.Errorf("%v: %v", c.env, got)
		}
	}
}

// tmux is a terminal of its own.
type tmux struct {
	t      *testing.T
	socket string
}

func (x tmux) do(args ...string) string {
	x.t.Helper()
	cmd := exec.Command("tmux", append([]string{"-u", "-f", "/dev/null", "-S", x.socket}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		x.t.Fatalf("tmux %v: %v: %s", args, err, out)
	}
	return strings.TrimRight(string(out), "\n")
}

// until looks at the screen until it is as wanted.
func (x tmux) until(what string, wanted func(screen string) bool) string {
	x.t.Helper()
	var screen string
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if screen = x.do("capture-pane", "-p"); wanted(screen) {
			return screen
		}
	}
	x.t.Fatalf("%s never came:\n%s", what, screen)
	return ""
}

// A person in a terminal: starts cedrun top, looks, resizes the window, asks for help, and leaves it as it was.
func TestTopInARealTerminal(t *testing.T) {
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is not installed: apt-get install tmux")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := serveDemo(t)
	x := tmux{t, filepath.Join(workDir, "tmux")}
	x.do("new-session", "-d", "-x", "80", "-y", "24", "-e", asProgram+"=1", "-e", "LC_ALL=C.UTF-8", "sh")
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", x.socket, "kill-server").Run() })
	x.until("the prompt", func(s string) bool { return strings.TrimSpace(s) != "" })
	modes := func() string {
		x.do("send-keys", "clear; stty -a; echo done", "Enter")
		s := x.until("the modes", func(s string) bool { return strings.Contains(s, "\ndone") })
		s = s[strings.Index(s, "\n"):strings.Index(s, "\ndone")] // without the size, which changes, and where lines end by it
		return strings.Join(strings.Fields(s), "")
	}
	before := modes()

	x.do("send-keys", fmt.Sprintf("%s top --watch 0.2 --pid %d; echo status $?", program, os.Getpid()), "Enter")
	screen := x.until("the model", func(s string) bool {
		return strings.Contains(s, "MODEL   the embedded demo model") && strings.Contains(s, "experts  hit rate")
	})
	rows := strings.Split(screen, "\n")
	if !strings.HasPrefix(rows[0], "cedrun top") || !strings.HasSuffix(rows[0], "? help") || len([]rune(rows[0])) != 80 || len(rows) > 24 {
		t.Errorf("80 columns, 24 rows:\n%s", screen)
	}
	if got := x.do("display-message", "-p", "#{alternate_on} #{cursor_flag}"); got != "1 0" {
		t.Errorf("alternate screen and cursor: %s", got)
	}
	if code, o := s.post(t, http.DefaultClient, "/v1/completions", `{"prompt":"In the beginning","max_tokens":20}`); code != 200 {
		t.Fatalf("%d %v", code, o)
	}
	x.until("decoded tokens", func(s string) bool { return strings.Contains(s, "         19           19") })

	x.do("resize-window", "-x", "100", "-y", "30")
	x.until("100 columns", func(s string) bool {
		first, _, _ := strings.Cut(s, "\n")
		return len([]rune(first)) == 100 && strings.HasSuffix(first, "? help")
	})
	x.do("resize-window", "-x", "60", "-y", "8")
	x.until("60 columns", func(s string) bool { return len(strings.Split(s, "\n")) <= 8 && strings.HasPrefix(s, "cedrun top") })
	x.do("resize-window", "-x", "80", "-y", "24")
	x.do("send-keys", "?")
	x.until("the help", func(s string) bool { return strings.Contains(s, "q, Esc, Ctrl-C") })
	x.do("send-keys", "?")
	x.do("send-keys", "p")
	x.until("the pause", func(s string) bool { return strings.Contains(s, "PAUSED") })
	left := func(status string) {
		t.Helper()
		x.until("the shell", func(s string) bool { return strings.Contains(s, status) })
		if got := x.do("display-message", "-p", "#{alternate_on} #{cursor_flag}"); got != "0 1" {
			t.Errorf("alternate screen and cursor after the end: %s", got)
		}
		if after := modes(); after != before {
			t.Errorf("terminal modes before\n%s\nand after\n%s", before, after)
		}
	}
	x.do("send-keys", "q")
	left("status 0")

	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		x.do("send-keys", fmt.Sprintf("%s top --watch 0.2; echo status $?", program), "Enter")
		x.until("the model", func(s string) bool { return strings.Contains(s, "MODEL") })
		children, err := os.ReadFile(fmt.Sprintf("/proc/%[1]s/task/%[1]s/children", x.do("display-message", "-p", "#{pane_pid}")))
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(children)))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, signal); err != nil {
			t.Fatal(err)
		}
		left("status 130")
	}
}
