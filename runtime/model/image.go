package model

import (
	"fmt"
	"slices"

	ced "cedrun/cuda"
	"cedrun/runtime/kv"
)

// Image is a copy of what a sequence keeps beside its pages: window rings, open groups, and the streams of its last rows
// between encoder and decoder. With the pages of its tokens it stands for the sequence, exactly.
type Image struct {
	pos     int
	streams int   // first row of tails
	window  []int // per layer: first row of its ring
	clipped bool  // windows of decoder layers saw less than in mode exact
	parts   [][]byte
}

// Pos is the number of tokens that the image's sequence had processed.
func (i *Image) Pos() int { return i.pos }

// Bytes is the size of an image.
func (i *Image) Bytes() int {
	n := 8 * len(i.window)
	for _, p := range i.parts {
		n += len(p)
	}
	return n
}

// part is a sequence's share of a buffer.
type part struct {
	at ced.Addr
	n  int
}

// parts lists what an image holds of a slot, in a fixed order.
func (m *Model) parts(slot int) []part {
	out := m.windows(slot)
	for i, at := range m.tails {
		if _, n := m.tailPlane(i); at != 0 {
			n *= m.cfg.Window
			out = append(out, part{at + ced.Addr(slot*n), n})
		}
	}
	return out
}

// windows lists the rings and open groups of a slot.
func (m *Model) windows(slot int) []part {
	var out []part
	ring := m.ringRows() * m.rowBytes()
	for l := range m.schedule {
		out = append(out, part{m.ring(l) + ced.Addr(slot*ring), ring})
	}
	open := m.openRows() * 2 * m.cfg.HeadDim * 4
	for _, l := range m.cfg.KVSources {
		if at, ok := m.open[l]; ok {
			out = append(out, part{at + ced.Addr(slot*open), open})
		}
	}
	return out
}

// Save makes an image of a sequence, or none, if its rows do not have the bits of a new sequence. The image takes
// the memory of old, if there is one, of which then nothing is left.
func (m *Model) Save(q *Sequence, old *Image) (*Image, error) {
	if q.replayed || q.TailLeft() > 0 || q.Pos() == 0 {
		return nil, nil
	}
	parts := m.parts(q.slot)
	i := &Image{pos: q.Pos(), streams: q.streams, window: slices.Clone(q.plan.Window), clipped: q.clipped}
	if old != nil {
		i.parts, old.parts = old.parts, nil
	} else {
		for _, p := range parts {
			i.parts = append(i.parts, make([]byte, p.n))
		}
	}
	for k, p := range parts {
		b := i.parts[k]
		if err := m.s.Download(b, p.at); err != nil {
			return nil, fmt.Errorf("image of a sequence: %w", err)
		}
	}
	return i, nil
}

// Continues reports whether a sequence of an image can go on to generate after a prompt in a mode, with the bits of a
// new one.
func (m *Model) Continues(i *Image, mode Prefill, prompt int) bool {
	_, ok := m.planFrom(i, mode, prompt)
	return ok
}

// planFrom plans what follows an image. In Replay, layers after the last KV source begin at the tail of the prompt, as
// in a new sequence, whatever their rings hold.
func (m *Model) planFrom(i *Image, mode Prefill, prompt int) (p Plan, ok bool) {
	p = NewPlan(m.cfg, mode, prompt)
	src := m.source()
	if prompt <= i.pos {
		return p, false
	}
	for l, have := range i.window {
		if p.Window[l] > i.pos {
			continue
		}
		if mode == Replay && l > src {
			if m.tails[0] == 0 || i.streams > p.Window[l] {
				return p, false
			}
			continue
		}
		if l > src && i.clipped || have > max(0, max(i.pos, p.Query[l])-m.cfg.Window+1) {
			return p, false
		}
		p.Window[l] = min(have, i.pos)
	}
	return p, true
}

// Prefix is what a new sequence begins with.
type Prefix struct {
	Tokens []int32
	// Pages hold the global rows of Tokens. The sequence takes over a reference to each page that Tokens fill; the rows of
	// the last one, if they do not, are copied, and the caller keeps its reference.
	Pages []kv.Page
	Exact int // tokens whose rows have the bits of a new sequence
	// Image, if set, is of a sequence that began with Tokens, up to all of them, and Continues. Otherwise rows are run
	// again, without writing pages: with Replay those of the last window, whose windows start with them (spec 7.6), and
	// else as many as it takes to have the bits of a new sequence.
	Image  *Image
	Replay bool
	// Whole says that Tokens are the whole prompt, after which, in the same mode, the image was saved: the next token fed is
	// the first that was generated.
	Whole bool
}

// ReplayFrom is the shortest prefix that can be replayed.
func (m *Model) ReplayFrom() int { return m.cfg.Window + 1 }

// RestartAt is the position from which rows are run again, without an image, after a prefix of hit tokens.
func (m *Model) RestartAt(mode Prefill, prompt, hit int) int {
	if p := planAfter(m.cfg, mode, prompt, hit); hit > 0 && len(p.Enter) > 0 {
		return p.Enter[0]
	}
	return 0
}

// Adopt makes a sequence that begins with a prefix and whose generation starts after prompt tokens. Pos is then the first
// position to be fed; if TailLeft, RunTail comes before.
func (m *Model) Adopt(mode Prefill, prompt int, x Prefix) (*Sequence, error) {
	hit, i := len(x.Tokens), x.Image
	full := hit / kv.PageTokens
	if hit == 0 || hit >= prompt && !x.Whole || len(x.Pages) != kv.PagesFor(hit) {
		return nil, fmt.Errorf("prefix of %d tokens in %d pages before a prompt of %d", hit, len(x.Pages), prompt)
	}
	p := planAfter(m.cfg, mode, prompt, hit)
	start := p.Enter[0]
	switch {
	case x.Whole:
		if i == nil || i.pos != hit || hit != prompt {
			return nil, fmt.Errorf("no image at the end of a prompt of %d tokens", prompt)
		}
		p, start = NewPlan(m.cfg, mode, prompt), hit
		copy(p.Window, i.window)
	case i != nil:
		var ok bool
		if p, ok = m.planFrom(i, mode, prompt); !ok || i.pos > hit {
			return nil, fmt.Errorf("image at %d does not continue to a prompt of %d tokens", i.pos, prompt)
		}
		start = i.pos
	case x.Replay:
		start = max(0, hit-m.cfg.Window)
		p = NewPlan(m.cfg, mode, prompt).from(start)
	}
	if len(m.freeSlots) == 0 {
		return nil, fmt.Errorf("all %d sequence slots are in use", m.opt.Slots)
	}
	q := &Sequence{
		frozen: hit, pages: slices.Clone(x.Pages[:full]), tokens: slices.Clone(x.Tokens[:start]),
		clipped: mode == Replay && p.FirstLogits() > 0, replayed: x.Replay || x.Exact < hit, exact: min(x.Exact, hit),
	}
	if full < len(x.Pages) {
		own, err := m.pool.Take(1)
		if err != nil {
			return nil, err
		}
		if err := m.s.Copy(m.page(own[0]), m.page(x.Pages[full]), m.layout.PageBytes); err != nil {
			return nil, err
		}
		q.pages = append(q.pages, own...)
	}
	q.slot = m.freeSlots[len(m.freeSlots)-1]
	m.freeSlots = m.freeSlots[:len(m.freeSlots)-1]
	if err := m.settle(q, p, mode, i, x.Whole); err != nil {
		return nil, err
	}
	return q, nil
}

// settle writes a sequence's page table and windows.
func (m *Model) settle(q *Sequence, p Plan, mode Prefill, i *Image, whole bool) error {
	if err := m.s.Upload(m.pageTable+ced.Addr(4*q.slot*m.maxPages()), bytesOf(q.pages)); err != nil {
		return err
	}
	if err := m.replan(q, p); err != nil || i == nil {
		return err
	}
	src := m.source()
	if p.Query[src] > i.pos {
		q.clipped = q.clipped || i.clipped
	} else {
		q.streams = i.streams
	}
	if tail := p.Query[src]; mode == Replay && !whole && tail < i.pos && src+1 < len(p.Query) {
		q.tail, q.tailEnd = tail, i.pos
	}
	for k, part := range m.parts(q.slot) {
		if err := m.s.Upload(part.at, i.parts[k]); err != nil {
			return err
		}
	}
	return nil
}

func (m *Model) page(p kv.Page) ced.Addr { return m.pages + ced.Addr(int(p)*m.layout.PageBytes) }

// PageBytes is the size of a page.
func (m *Model) PageBytes() int { return m.layout.PageBytes }

// ReadPage copies a page's rows to dst, WritePage those of src to a page, which no step reads; both have PageBytes.
func (m *Model) ReadPage(p kv.Page, dst []byte) error { return m.s.Download(dst, m.page(p)) }

// WritePage is the opposite of ReadPage.
func (m *Model) WritePage(p kv.Page, src []byte) error { return m.s.Upload(m.page(p), src) }
