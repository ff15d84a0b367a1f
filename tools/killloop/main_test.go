package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A few rounds of make kill-loop, so that it works when somebody needs it.
func TestKilledWritersLeaveRightPages(t *testing.T) {
	program := filepath.Join(t.TempDir(), "killloop")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	out, err := exec.Command(program, "-n", "10", "-dir", t.TempDir()).CombinedOutput()
	if err != nil || strings.Count(string(out), "5 kills") != 2 {
		t.Errorf("%v\n%s", err, out)
	}
}
