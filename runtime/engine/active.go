package engine

import (
	"strings"

	"cedrun/runtime/checkpoint"
	"cedrun/runtime/config"
	"cedrun/runtime/model"
)

// Active counts the parameters that a model multiplies a token by (spec model.md 1.4): routed experts by how many a
// token uses, lookups (embedding, Engram tables) not at all, the output head once per row of logits.
type Active struct {
	layers []layerParams
	Head   int64 // output norm and head
	last   int   // last KV source, or the number of layers without one
}

// layerParams splits a layer: what makes its global KV rows, and everything.
type layerParams struct{ kv, all int64 }

// CountActive derives the counts from the geometry.
func CountActive(c *config.Config) *Active {
	a := &Active{layers: make([]layerParams, c.Layers), last: c.Layers}
	if n := len(c.KVSources); n > 0 {
		a.last = c.KVSources[n-1]
	}
	routed := make([]int64, c.Layers)
	for _, t := range checkpoint.Expected(c) {
		n := int64(1)
		for _, d := range t.Shape {
			n *= d
		}
		if t.Stored == checkpoint.I8 {
			n *= 2 // two FP4 codes a byte
		}
		layer, name, found := strings.Cut(strings.TrimPrefix(t.Name, "layers."), ".")
		switch {
		case t.Role == checkpoint.Draft || t.Role == checkpoint.Vision || strings.HasSuffix(name, "scale") && t.Stored == checkpoint.F8E8M0:
		case t.Name == "norm.weight" || t.Name == "head.weight":
			a.Head += n
		case !found || !strings.HasPrefix(t.Name, "layers.") || name == "engram.embed.weight":
		case strings.HasPrefix(name, "ffn.experts."):
			routed[atoi(layer)] += n
		default:
			l := &a.layers[atoi(layer)]
			l.all += n
			if makesKV(name) {
				l.kv += n
			}
		}
	}
	for i, n := range routed {
		a.layers[i].all += n / int64(c.Experts) * int64(c.ExpertsPerToken)
	}
	return a
}

// makesKV reports whether a tensor of a KV source takes part in its global rows, which every prompt token gets.
func makesKV(name string) bool {
	return name == "attn_norm.weight" || strings.HasPrefix(name, "attn.compressor.") ||
		name == "attn.indexer.wk.weight" || name == "attn.indexer.k_norm.weight"
}

func atoi(digits string) (n int) {
	for _, d := range digits {
		n = 10*n + int(d-'0')
	}
	return n
}

// Decode is the number of parameters of a decode step.
func (a *Active) Decode() int64 {
	n := a.Head
	for _, l := range a.layers {
		n += l.all
	}
	return n
}

// Prefill is the mean number of parameters per token of a prompt under a plan, with logits of its last row only.
func (a *Active) Prefill(p model.Plan, prompt int) int64 {
	total := a.Head
	for i, l := range a.layers {
		full := int64(max(0, prompt-p.Query[i]))
		total += full * l.all
		if i == a.last {
			total += (int64(prompt) - full) * l.kv
		}
	}
	return total / int64(max(prompt, 1))
}
