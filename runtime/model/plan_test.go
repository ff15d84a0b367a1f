package model

import (
	"testing"

	"cedrun/runtime/config"
)

func released(t *testing.T) *config.Config {
	t.Helper()
	c, err := config.Load("../../testdata/release/config.json")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConeNeedsTheRowsOfSpec75(t *testing.T) {
	const n = 10000
	p := NewPlan(released(t), Cone, n)
	for l, rows := range map[int]int{20: 2541, 21: 2414, 39: 128} {
		if got := n - p.Window[l]; got != rows {
			t.Errorf("layer %d: %d rows, want %d", l, got, rows)
		}
	}
	if p.Enter[20] != 0 || p.Query[39] != n-1 {
		t.Errorf("layer 20 takes rows from %d (want 0), the last layer asks from %d (want %d)", p.Enter[20], p.Query[39], n-1)
	}
	for l := 20; l < 39; l++ {
		if p.Query[l] != p.Enter[l+1] {
			t.Errorf("layer %d hands on rows from %d, layer %d takes them from %d", l, p.Query[l], l+1, p.Enter[l+1])
		}
	}
}

func TestReplayRunsTheTailOfTheSequenceOnly(t *testing.T) {
	const n = 1000
	p := NewPlan(released(t), Replay, n)
	for l := 0; l < 20; l++ {
		if p.Enter[l] != 0 || p.Window[l] != 0 || p.Query[l] != 0 {
			t.Errorf("encoder layer %d is clipped", l)
		}
	}
	if p.Enter[20] != 0 || p.Window[20] != n-255 || p.Query[20] != n-128 {
		t.Errorf("layer 20: enter %d window %d query %d, want 0, %d, %d", p.Enter[20], p.Window[20], p.Query[20], n-255, n-128)
	}
	for l := 21; l < 40; l++ {
		if p.Enter[l] != n-128 || p.Window[l] != n-128 || p.Query[l] != n-128 {
			t.Errorf("decoder layer %d does not start at the tail", l)
		}
	}
}

func TestShortPromptsAreNeverTrimmed(t *testing.T) {
	for _, mode := range []Prefill{Exact, Replay} {
		p := NewPlan(released(t), mode, 128)
		for l := range p.Enter {
			if p.Enter[l]+p.Window[l]+p.Query[l] != 0 {
				t.Fatalf("%s trims layer %d of a prompt as long as the window", mode, l)
			}
		}
	}
}

func TestUnknownPrefillModeNamesTheChoices(t *testing.T) {
	if _, err := ParsePrefill("full"); err == nil || err.Error() != `prefill mode "full": use exact, cone or replay` {
		t.Fatalf("got %v", err)
	}
}
