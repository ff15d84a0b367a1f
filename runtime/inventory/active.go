package inventory

import (
	"strconv"
	"strings"

	"cedrun/runtime/config"
)

// Active counts the parameters that a model multiplies a token by (spec model.md 1.4): routed experts by how many a
// token uses, lookups (embedding, Engram tables) not at all, the output head once per row of logits.
type Active struct {
	Head   int64 // output norm and head
	layers []layerParams
	last   int // last KV source, or the number of layers without one
}

// layerParams splits a layer: what makes its global KV rows, and everything.
type layerParams struct{ kv, all, routed int64 }

// CountActive derives the counts from the geometry.
func CountActive(c *config.Config) *Active { return &Count(c).Active }

func newActive(c *config.Config) Active {
	a := Active{layers: make([]layerParams, c.Layers), last: c.Layers}
	if n := len(c.KVSources); n > 0 {
		a.last = c.KVSources[n-1]
	}
	return a
}

func (a *Active) add(part Part, tensor string, n int64) {
	switch part {
	case Head:
		a.Head += n
	case Embedding, EngramTables, Draft, Vision:
	default:
		index, name, _ := strings.Cut(strings.TrimPrefix(tensor, "layers."), ".")
		i, err := strconv.Atoi(index)
		if err != nil {
			return // every other part is a layer's
		}
		l := &a.layers[i]
		if part == Experts {
			l.routed += n
			return
		}
		l.all += n
		if makesKV(name) {
			l.kv += n
		}
	}
}

// finish adds the routed experts that a token uses.
func (a *Active) finish(c *config.Config) {
	for i := range a.layers {
		l := &a.layers[i]
		l.all += l.routed / int64(c.Experts) * int64(c.ExpertsPerToken)
	}
}

// makesKV reports whether a tensor of a KV source takes part in its global rows, which every prompt token gets.
func makesKV(name string) bool {
	return name == "attn_norm.weight" || strings.HasPrefix(name, "attn.compressor.") ||
		name == "attn.indexer.wk.weight" || name == "attn.indexer.k_norm.weight"
}

// Encoder counts the layers before the last KV source, through which every prompt token goes; all layers of a model
// without one.
func (a *Active) Encoder() int64 { return sum(a.layers[:a.last]) }

// Decoder counts the other layers, which in replay prefill run on the last window only.
func (a *Active) Decoder() int64 { return sum(a.layers[a.last:]) }

// Decode is the number of parameters of a decode step.
func (a *Active) Decode() int64 { return a.Encoder() + a.Decoder() + a.Head }

func sum(layers []layerParams) (n int64) {
	for _, l := range layers {
		n += l.all
	}
	return n
}

// Prefill is the mean number of parameters per token of a prompt, with logits of its last row only. query holds for
// each layer the position from which on the layer runs (model.Plan.Query).
func (a *Active) Prefill(query []int, prompt int) int64 {
	total := a.Head
	for i, l := range a.layers {
		full := int64(max(0, prompt-query[i]))
		total += full * l.all
		if i == a.last {
			total += (int64(prompt) - full) * l.kv
		}
	}
	return total / int64(max(prompt, 1))
}
