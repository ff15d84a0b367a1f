package plan

import "cedrun/runtime/config"

// Work is what a part of a step cannot do without: bytes read from memory, each once a step, and FLOPs.
type Work struct {
	Bytes float64 `json:"bytes"`
	FLOPs float64 `json:"flops"`
}

// Budget is the work of a step, or of the steps of a prompt, by part. Vectors (norm weights, biases) and activations are
// left out: they stay in the caches, and are less than a thousandth of the bytes.
type Budget [NumParts]Work

func (b *Budget) visit(c Call, times float64) {
	w := &b[c.Part]
	w.Bytes += times * (c.Bytes() + c.Lookup)
	w.FLOPs += times * c.FLOPs()
}

// Total sums all parts.
func (b *Budget) Total() (w Work) {
	for _, p := range b {
		w.Bytes += p.Bytes
		w.FLOPs += p.FLOPs
	}
	return w
}

// DecodeBudget is the work of a decode step of batch sequences at a position: every weight that the step reads, of the
// routed experts as many as batch tokens are expected to choose together, E(1-(1-k/E)^batch), and the cache rows of
// every sequence.
func DecodeBudget(c *config.Config, batch, position int) *Budget {
	b := &Budget{}
	Decode(c, batch, position, b.visit)
	return b
}

// PromptBudget is the work of a prompt that is processed in chunks, by those layers that its thresholds let each token
// through: every chunk reads its weights once.
func PromptBudget(c *config.Config, t Thresholds, prompt, chunk int) *Budget {
	b := &Budget{}
	Prompt(c, t, prompt, chunk, b.visit)
	return b
}

// Limits are the rates that bound a part, in bytes and in FLOPs per second.
type Limits struct{ Read, Multiply, F32 float64 }

// Bounds name what bounds a part.
const (
	BoundMemory   = "memory"
	BoundMultiply = "multiply"
	BoundLatency  = "latency" // neither: the part waits for itself
)

// Least is the least time that a part's work takes, and what sets it. Mixes have F32 weights; all other products are
// of numbers that BF16 holds.
func (l Limits) Least(p Part, w Work) (seconds float64, bound string) {
	rate := l.Multiply
	if p == PartMixing {
		rate = l.F32
	}
	memory, multiply := w.Bytes/l.Read, w.FLOPs/rate
	switch {
	case w == Work{}:
		return 0, BoundLatency
	case memory >= multiply:
		return memory, BoundMemory
	}
	return multiply, BoundMultiply
}

// Least is the sum of the parts' least times.
func (b *Budget) Least(l Limits) (seconds float64) {
	for p, w := range b {
		s, _ := l.Least(Part(p), w)
		seconds += s
	}
	return seconds
}
