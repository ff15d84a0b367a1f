package model

import (
	"fmt"
	"slices"

	ced "cedrun/cuda"
	"cedrun/runtime/kv"
)

// Sequence is what a sequence owns between steps: a slot (window rings, open groups, page table), pages of global KV,
// its tokens and how far they have been processed.
type Sequence struct {
	slot    int
	plan    Plan
	steady  int     // rows from this position on pass all layers
	clipped bool    // some rows saw less of their window than in mode exact
	tokens  []int32 // processed tokens
	frozen  int     // global rows of tokens before this position are kept, not rewritten
	streams int     // rows from this position on have gone through the last KV source

	replayed bool // rows from exact on come from clipped windows of the encoder
	exact    int

	tail, tailEnd int // rows of an image that are still to run through the layers after the last KV source
	pages         []kv.Page

	published int // last layer that wrote index keys; read by Options.StaleIndexKeys only
}

// Pos is the number of tokens processed: the position of the next one.
func (q *Sequence) Pos() int { return len(q.tokens) }

// FirstLogits is the first position whose logits the sequence's plan computes.
func (q *Sequence) FirstLogits() int { return q.plan.FirstLogits() }

// NewSequence takes a slot for a sequence whose generation starts after prompt tokens. Release returns it.
func (m *Model) NewSequence(mode Prefill, prompt int) (*Sequence, error) {
	if len(m.freeSlots) == 0 {
		return nil, fmt.Errorf("all %d sequence slots are in use", m.opt.Slots)
	}
	q := &Sequence{slot: m.freeSlots[len(m.freeSlots)-1]}
	m.freeSlots = m.freeSlots[:len(m.freeSlots)-1]
	p := NewPlan(m.cfg, mode, prompt)
	q.clipped = mode == Replay && p.FirstLogits() > 0
	return q, m.replan(q, p)
}

// Extend plans a sequence anew for generation after a longer prompt, which begins with the tokens processed so far:
// only the others are to be fed. ok is false when the mode needs rows that the sequence lacks; then start over.
//
// A layer whose windows would start within what is processed continues from the rows in its ring. One whose windows
// start after it begins there, as in a new sequence. So Exact and Cone keep the bits of a new sequence, and Replay its
// rule: decoder layers run on the last window at least, and see more where the rows are there already.
func (m *Model) Extend(q *Sequence, mode Prefill, prompt int) (ok bool, err error) {
	pos, p := q.Pos(), NewPlan(m.cfg, mode, prompt)
	if prompt <= pos || mode != Replay && q.clipped {
		return false, nil
	}
	clipped := q.clipped
	for l, have := range q.plan.Window {
		if p.Window[l] > pos {
			clipped = clipped || mode == Replay
			continue
		}
		if have > max(0, max(pos, p.Query[l])-m.cfg.Window+1) { // the oldest row that a query to come looks at
			if mode != Replay {
				return false, nil
			}
			clipped = true
		}
		p.Window[l] = min(have, pos)
	}
	q.clipped = clipped
	return true, m.replan(q, p)
}

// replan sets where a sequence's windows start.
func (m *Model) replan(q *Sequence, p Plan) error {
	q.plan, q.steady = p, 0
	for _, from := range [][]int{p.Enter, p.Window, p.Query} {
		for _, at := range from {
			q.steady = max(q.steady, at)
		}
	}
	if src := m.source(); src >= 0 && p.Query[src] >= q.Pos() {
		q.streams = p.Query[src]
	}
	for l := range m.schedule {
		at := m.windowStart + ced.Addr(4*(l*m.opt.Slots+q.slot))
		if err := m.s.Upload(at, bytesOf([]int32{int32(p.Window[l])})); err != nil {
			return err
		}
	}
	return nil
}

// Release gives back the slot and the pages.
func (m *Model) Release(q *Sequence) error {
	m.freeSlots = append(m.freeSlots, q.slot)
	err := m.pool.Release(q.pages)
	*q = Sequence{slot: -1}
	return err
}

// Reserved is the number of positions that the sequence has pages for.
func (q *Sequence) Reserved() int { return len(q.pages) * kv.PageTokens }

// Tokens are the tokens processed, one per position. The caller must not change them.
func (q *Sequence) Tokens() []int32 { return q.tokens }

// Reserve makes sure that pages exist for the sequence's first tokens positions.
func (m *Model) Reserve(q *Sequence, tokens int) error {
	if tokens > m.opt.Context {
		return fmt.Errorf("sequence of %d tokens does not fit the context of %d: raise --context", tokens, m.opt.Context)
	}
	n := kv.PagesFor(tokens) - len(q.pages)
	if n <= 0 {
		return nil
	}
	pages, err := m.pool.Take(n)
	if err != nil {
		return err
	}
	at := m.pageTable + ced.Addr(4*(q.slot*m.maxPages()+len(q.pages)))
	q.pages = append(q.pages, pages...)
	q.tokens = slices.Grow(q.tokens, tokens-len(q.tokens))
	return m.s.Upload(at, bytesOf(pages))
}

// Rewind drops the windows and goes back for encoder bounded replay (spec 7.6): the global rows of all tokens
// processed so far are kept, the last window of them will be fed again, with windows that start there. An open group is
// made again from the rows that are fed. mode and prompt plan the rest as in NewSequence.
func (m *Model) Rewind(q *Sequence, mode Prefill, prompt int) error {
	hit := len(q.tokens)
	start := max(0, hit-m.cfg.Window)
	q.frozen, q.clipped = hit, q.clipped || start > 0
	if start > 0 {
		q.exact = q.Exact()
		q.replayed = true
	}
	q.tokens = q.tokens[:start]
	return m.replan(q, NewPlan(m.cfg, mode, prompt).from(start))
}

// Exact is the number of processed tokens, from the first on, whose global rows have the bits of a new sequence.
func (q *Sequence) Exact() int {
	if q.replayed {
		return min(q.exact, q.Pos())
	}
	return q.Pos()
}

// Pages are the sequence's pages, in the order of positions. The caller must not change them.
func (q *Sequence) Pages() []kv.Page { return q.pages }

func (m *Model) maxPages() int { return kv.PagesFor(m.opt.Context) }
