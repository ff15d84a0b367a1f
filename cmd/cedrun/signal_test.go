package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A process that works is sent a signal and ends soon, in order. nohup keeps it from the one of a terminal that went away.
func TestSignalsEndACommandInOrder(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const endless = "top --watch 0.1 --json"
	for _, c := range []struct {
		command string
		signal  syscall.Signal
		stays   bool
		status  int
	}{
		{"conform --backend ref --log-level info -m " + testdata + "mini/base", syscall.SIGTERM, false, exitInterrupted},
		{program + " " + endless, syscall.SIGHUP, false, 0},
		{"nohup " + program + " " + endless, syscall.SIGHUP, true, 0},
	} {
		if c.signal == syscall.SIGHUP && !c.stays && signal.Ignored(syscall.SIGHUP) {
			t.Logf("%s: left out, for nohup keeps %v from this test, too", c.command, c.signal)
			continue
		}
		args := strings.Fields(c.command)
		if args[0] == "conform" {
			args = append([]string{program}, args...)
		}
		out, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), asProgram+"=1"), out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		grows := func() {
			t.Helper()
			for had, end := int64(-1), time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
				st, err := out.Stat()
				if err != nil || time.Now().After(end) {
					_ = cmd.Process.Kill()
					t.Fatalf("%s says nothing: %v", c.command, err)
				}
				if had = max(had, 0); st.Size() > had && had > 0 || st.Size() > 0 && !c.stays {
					return
				}
				had = st.Size()
			}
		}
		grows()
		_ = cmd.Process.Signal(c.signal)
		if c.stays {
			grows()
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
		select {
		case err := <-ended:
			status := 0
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				status = exit.ExitCode()
			}
			if status != c.status {
				t.Errorf("%s: %v", c.command, err)
			}
		case <-time.After(time.Minute):
			_ = cmd.Process.Kill()
			t.Fatalf("%s goes on after %v", c.command, c.signal)
		}
	}
}
