package model

import (
	"fmt"

	ced "cedrun/cuda"
)

// tailPlanes is what a row carries from the last KV source to the layers after it: streams, pre, selection, candidates.
const tailPlanes = 4

// source is the last layer that owns KV, -1 without any.
func (m *Model) source() int {
	if n := len(m.cfg.KVSources); n > 0 {
		return m.cfg.KVSources[n-1]
	}
	return -1
}

// tailPlane is where a step has a plane, and the bytes of a row.
func (m *Model) tailPlane(i int) (ced.Addr, int) {
	c, w := m.cfg, &m.ws
	switch i {
	case 0:
		return w.h, c.HCMult * c.HiddenSize * 2
	case 1:
		return w.pre, c.HCMult * 4
	case 2:
		return w.sel, c.IndexTopK * 4
	}
	return w.cand, c.CandidateTopKBlocks * 4
}

func (m *Model) allocateTails() (err error) {
	if !m.opt.Tails || m.source() < 0 {
		return nil
	}
	for i := range m.tails {
		_, n := m.tailPlane(i)
		if m.tails[i], err = m.alloc(m.opt.Slots * m.cfg.Window * n); err != nil {
			return fmt.Errorf("tails of %d sequences: %w", m.opt.Slots, err)
		}
	}
	return nil
}

// keepTails stores the rows that leave the last KV source.
func (p *pass) keepTails() error {
	for i, ring := range p.tails {
		at, n := p.tailPlane(i)
		if ring == 0 || n == 0 {
			continue
		}
		if err := p.s.WindowCommit(&ced.WindowCommitArgs{
			Rows: p.in.addr, Packed: at, Ring: ring, MaxRows: p.in.max, RowBytes: uint32(n), RingRows: uint32(p.cfg.Window),
		}); err != nil {
			return fmt.Errorf("tail: %w", err)
		}
	}
	return nil
}

// TailLeft is how many rows of a sequence's image still have to go through the layers after the last KV source (RunTail)
// before the sequence is fed.
func (q *Sequence) TailLeft() int { return q.tailEnd - q.tail }

// RunTail runs up to rows of them. So the decoder's windows start at the tail of the prompt, as in a new sequence, though
// the encoder does not run again (spec 7.4).
func (m *Model) RunTail(q *Sequence, rows int) error {
	n := min(q.TailLeft(), rows, m.opt.StepRows)
	if n <= 0 {
		return nil
	}
	m.probe = nil
	p := &m.pass
	p.start([]Span{{Seq: q, Tokens: q.tokens[q.tail : q.tail+n], Logits: q.tail + n}})
	defer p.begin(nil)
	p.first[0] = q.tail
	src := m.source()
	for l := range src + 1 {
		p.hasSel = p.hasSel || m.schedule[l].OwnsIndex
		p.hasCand = p.hasCand || m.schedule[l].CandidateSource
	}
	err := m.slots.between(&m.meter)
	if err != nil {
		return err
	}
	if p.in, err = p.all(m); err != nil {
		return err
	}
	m.lay(p.in.rowCount)
	p.lookUp()
	for i := range m.tails {
		if err := m.loadTail(q, i, n); err != nil {
			return err
		}
	}
	for l := src + 1; l < len(m.schedule) && p.in.count > 0; l++ {
		if err := p.layer(l); err != nil {
			return fmt.Errorf("layer %d: %w", l, err)
		}
	}
	if err := m.slots.sent(m.ws.idx); err != nil {
		return err
	}
	m.byHost.counted(&m.meter)
	q.tail += n
	return nil
}

// loadTail puts n rows of a plane, from q.tail on, where a step reads them.
func (m *Model) loadTail(q *Sequence, plane, n int) error {
	dst, bytes := m.tailPlane(plane)
	w := m.cfg.Window
	for j := 0; j < n; {
		at := (q.tail + j) % w
		k := min(n-j, w-at)
		if err := m.s.Copy(dst+ced.Addr(j*bytes), m.tails[plane]+ced.Addr((q.slot*w+at)*bytes), k*bytes); err != nil {
			return err
		}
		j += k
	}
	return nil
}
