package sample

import "math"

// History counts the tokens of a sequence, so that penalties cost a step one visit to each different token, however
// long the sequence is. One goroutine uses it.
type History struct {
	counts []seen // one entry per different token, in the order in which they were met
	at     map[int32]int
}

type seen struct {
	id      int32
	written int // times among the sampled tokens; 0: in the prompt only
}

// NewHistory counts a prompt.
func NewHistory(prompt []int32) *History {
	h := &History{at: make(map[int32]int, min(len(prompt), 1<<12))} // a long prompt repeats itself
	for _, id := range prompt {
		h.entry(id)
	}
	return h
}

// Add counts a sampled token.
func (h *History) Add(id int32) { h.entry(id).written++ }

func (h *History) entry(id int32) *seen {
	i, ok := h.at[id]
	if !ok {
		i = len(h.counts)
		h.at[id] = i
		h.counts = append(h.counts, seen{id: id})
	}
	return &h.counts[i]
}

// bias adds the logit bias of a request.
func (w *workspace) bias(of map[int]float64) {
	for id, b := range of {
		if id < len(w.logits) {
			w.logits[id] = float32(float64(w.logits[id]) + b)
		}
	}
}

// penalise applies the penalties of p to the tokens of h: each logit is changed in float64 and rounded once.
func (w *workspace) penalise(p *Params, h *History) {
	for _, c := range h.counts {
		if int(c.id) >= len(w.logits) {
			continue
		}
		l := float64(w.logits[c.id])
		if p.repeats() {
			if l > 0 {
				l /= p.RepetitionPenalty
			} else {
				l = float64(l * p.RepetitionPenalty)
			}
		}
		if c.written > 0 {
			l -= p.PresencePenalty + float64(p.FrequencyPenalty*float64(c.written))
		}
		w.logits[c.id] = float32(min(l, math.MaxFloat32))
	}
}
