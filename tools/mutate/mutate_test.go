package main

import (
	"slices"
	"testing"
)

// The table must follow the sources: who changes a line that a fault replaces changes the fault.
func TestEveryFaultCanBeApplied(t *testing.T) {
	if err := check("../..", faults); err != nil {
		t.Error(err)
	}
	names := map[string]bool{}
	for _, f := range faults {
		if names[f.name] {
			t.Errorf("two faults are called %q", f.name)
		}
		names[f.name] = true
		for _, e := range f.edits {
			if e.old == e.new {
				t.Errorf("%s: an edit of %s changes nothing", f.name, e.file)
			}
		}
	}
}

func TestFailuresAreNamed(t *testing.T) {
	for _, c := range []struct {
		name, out string
		want      []string
	}{
		{"go", "--- FAIL: TestA (0.1s)\n    --- FAIL: TestA/base/ref (0.1s)\n        x.go:3: report\n        BROKEN text: L1.window_ring (R1 bit-equal): 3 differ\n        BROKEN text: logits (R1 x): y\n    --- FAIL: TestA/base/cpu (0.1s)\nFAIL\n",
			[]string{"TestA/base/ref at L1.window_ring", "TestA/base/cpu"}},
		{"native", "a.cc:3: x\nFAIL route: ties (2 failures)\nFAIL route: order (1 failures)\n1 passed, 2 failed\n", []string{"route: ties", "route: order"}},
		{"crash", "SIGSEGV\n", []string{"the test program ends early"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := failures([]byte(c.out)); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
