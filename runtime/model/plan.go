package model

import (
	"fmt"
	"slices"

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
func NewPlan(c *config.Config, mode Prefill, prompt int) Plan { return planAfter(c, mode, prompt, 0) }

// planAfter plans a sequence whose first hit tokens have their global rows already, with the windows of one that has
// none: from the last layer to the first, a layer takes the rows that the next one takes, those that their windows
// reach back to, and, if it owns KV, all whose global rows are missing.
func planAfter(c *config.Config, mode Prefill, prompt, hit int) Plan {
	n, w := c.Layers, c.Window
	p := Plan{make([]int, n), make([]int, n), make([]int, n)}
	if len(c.KVSources) == 0 || mode == Exact && hit == 0 {
		return p
	}
	src := c.KVSources[len(c.KVSources)-1]
	next := prompt - 1 // first row that is wanted of a layer
	switch mode {
	case Exact:
		next = min(next, hit)
	case Replay:
		next = prompt - w
	}
	for l := n - 1; l >= 0; l-- {
		p.Query[l], p.Window[l] = max(0, next), max(0, next-w+1)
		if mode == Replay && l > src {
			p.Window[l] = p.Query[l]
		}
		p.Enter[l] = p.Window[l]
		if slices.Contains(c.KVSources, l) {
			p.Enter[l] = min(p.Enter[l], hit-hit%c.CompressRatios[l]) // the open group too
		}
		next = p.Enter[l]
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
