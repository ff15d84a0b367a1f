package model

import (
	"fmt"

	"cedrun/runtime/config"
)

// Prefill says how much of the decoder runs over a prompt (spec 7).
type Prefill int

const (
	// Exact runs all layers on all tokens.
	Exact Prefill = iota
	// Cone runs decoder layers only on the rows that the last token and the decoder windows depend on: the same bits
	// as Exact for them (spec 7.5).
	Cone
	// Replay runs the layers after the last KV source on the last window of tokens only, their windows clipped there,
	// as the model was trained for (spec 7.4).
	Replay
)

var prefillNames = []string{"exact", "cone", "replay"}

func (p Prefill) String() string { return prefillNames[p] }

// ParsePrefill reads a mode by name.
func ParsePrefill(s string) (Prefill, error) {
	for i, n := range prefillNames {
		if s == n {
			return Prefill(i), nil
		}
	}
	return 0, fmt.Errorf("prefill mode %q: use exact, cone or replay", s)
}

// Plan says from which position on a sequence's rows take part in each layer. Positions before Enter[l] never reach
// layer l; those before Window[l] leave no window row there; those before Query[l] end in layer l after their KV.
// A plan is a function of the prompt length and the mode alone, never of chunks.
type Plan struct {
	Enter, Window, Query []int
}

// NewPlan plans a sequence whose generation starts after prompt tokens.
func NewPlan(c *config.Config, mode Prefill, prompt int) Plan {
	n, w := c.Layers, c.Window
	p := Plan{make([]int, n), make([]int, n), make([]int, n)}
	if len(c.KVSources) == 0 || mode == Exact {
		return p
	}
	last := func(rows int) int { return max(0, prompt-rows) }
	src := c.KVSources[len(c.KVSources)-1]
	for l := src; l < n; l++ {
		switch mode {
		case Replay:
			p.Enter[l], p.Window[l], p.Query[l] = last(w), last(w), last(w)
		case Cone:
			need := w + (n-l-1)*(w-1)
			p.Enter[l], p.Window[l], p.Query[l] = last(need), last(need), last(need-w+1)
		}
	}
	p.Enter[src] = 0
	if mode == Replay {
		p.Window[src] = last(2*w - 1) // so that the tail's rows see exact windows in this layer
	}
	return p
}

// from clips a plan to a sequence that starts at position s (encoder replay, spec 7.6): nothing before s has windows.
func (p Plan) from(s int) Plan {
	for _, a := range [][]int{p.Enter, p.Window, p.Query} {
		for i := range a {
			a[i] = max(a[i], s)
		}
	}
	return p
}

// FirstLogits is the first position whose logits a plan computes.
func (p Plan) FirstLogits() int {
	if len(p.Query) == 0 {
		return 0
	}
	return p.Query[len(p.Query)-1]
}
