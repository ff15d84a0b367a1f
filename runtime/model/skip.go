package model

import ced "cedrun/cuda"

// Skip advances the spans' sequences as Forward does, but computes nothing: the caches keep what they hold, and the logits
// are those of the step before. It is for measurements of what surrounds a step.
func (m *Model) Skip(spans []Span) (logits ced.Addr, n int) {
	for _, sp := range spans {
		end := sp.Seq.Pos() + len(sp.Tokens)
		if sp.Logits < end {
			n += end - max(sp.Logits, sp.Seq.Pos())
		}
		sp.Seq.tokens = append(sp.Seq.tokens, sp.Tokens...)
	}
	return m.ws.logits, n
}
