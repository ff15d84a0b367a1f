package model

import (
	"errors"
	"fmt"

	ced "cedrun/cuda"
)

// A step that failed has written some of its rows. Fed again with the same tokens, a sequence finds what it found before:
// rows of pages and tails are written anew with the same bits before anything reads them. Rings and open groups have room
// for DraftRows positions more than are read; longer spans write over rows that they read themselves, so these are kept.

// repeatable is how many rows of a sequence can be fed again without Keep.
func (m *Model) repeatable() int { return m.opt.DraftRows + 1 }

// keptBytes is the room of a slot's windows.
func (m *Model) keptBytes() int {
	n := 0
	for _, p := range m.windows(0) {
		n += (p.n + 63) &^ 63
	}
	return n
}

func (m *Model) allocateKept() (err error) {
	if m.opt.Slots == 1 {
		return nil // whose step fails alone
	}
	if m.kept, err = m.s.HostAlloc(max(m.opt.Slots*m.keptBytes(), 64)); err != nil {
		return fmt.Errorf("windows of %d sequences, to feed rows again: %w", m.opt.Slots, err)
	}
	m.pinned = append(m.pinned, m.kept)
	return nil
}

// Keep copies what a step of spans will write over and read, so that Undo brings it back.
func (m *Model) Keep(spans []Span) error { return m.moveKept(spans, false) }

// Undo makes the sequences of spans, for which Keep was before a step that failed, as they were, for the same tokens.
func (m *Model) Undo(spans []Span) error { return m.moveKept(spans, true) }

func (m *Model) moveKept(spans []Span, back bool) error {
	for i := range spans {
		sp := &spans[i]
		if len(sp.Tokens) <= m.repeatable() || sp.Seq.Pos() == 0 {
			continue
		}
		if m.kept == 0 {
			return errors.New("windows of a sequence: there is no room to keep them")
		}
		at := m.kept + ced.Addr(sp.Seq.slot*m.keptBytes())
		for _, p := range m.windows(sp.Seq.slot) {
			dst, src := at, p.at
			if back {
				dst, src = p.at, at
			}
			if err := m.s.Copy(dst, src, p.n); err != nil {
				return fmt.Errorf("windows of a sequence: %w", err)
			}
			at += ced.Addr((p.n + 63) &^ 63)
		}
	}
	return nil
}
