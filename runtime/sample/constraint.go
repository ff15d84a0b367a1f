package sample

import "math"

// Constraint limits a text to a form, a grammar for instance, token by token. One goroutine uses it.
type Constraint interface {
	// Mask is the set of tokens that may come next, a bit for each id; ids beyond it are not in it.
	Mask() []uint64
	// Accept takes the token that came.
	Accept(id int32) error
	// Done reports whether nothing but the end of the text can follow.
	Done() bool
}

// keep takes the tokens that are not in the set out.
func (w *workspace) keep(set []uint64) {
	none := float32(math.Inf(-1))
	for from := 0; from < len(w.logits); from += 64 {
		word := uint64(0)
		if from>>6 < len(set) {
			word = set[from>>6]
		}
		if word == math.MaxUint64 {
			continue
		}
		for i := range w.logits[from:min(from+64, len(w.logits))] {
			if word>>i&1 == 0 {
				w.logits[from+i] = none
			}
		}
	}
}
