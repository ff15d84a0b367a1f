package model

import (
	"fmt"
	"math/rand/v2"

	ced "cedrun/cuda"
	"cedrun/runtime/kv"
)

// Scales of filled rows. With random codes their values spread as those of a trained model do: some units at most.
const (
	fillMainScale   = 0x28 // E4M3 0.25; the mantissa is random
	fillIndexScale  = 0x7D // UE8M0 2^-2
	fillWindowScale = 0x77 // UE8M0 2^-8, for codes up to 448
)

// Fill makes tokens the processed ones of a new sequence without running the model, for measurements at a depth that
// would take long to reach: the sequence's global rows, window rows and open groups become random numbers in their
// formats. Reserve must have made room. The same seed makes the same rows.
func (m *Model) Fill(q *Sequence, tokens []int32, seed uint64) error {
	if len(tokens) > q.Reserved() || q.Pos() > 0 {
		return fmt.Errorf("fill %d tokens: the sequence has %d and room for %d", len(tokens), q.Pos(), q.Reserved())
	}
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	random := rand.NewChaCha8(key)
	page := make([]byte, m.layout.PageBytes)
	for _, p := range q.pages[:kv.PagesFor(len(tokens))] {
		_, _ = random.Read(page) // never fails
		for _, o := range m.layout.Owners {
			for i := range page[o.MainScales : o.MainScales+o.PageRows*m.layout.HeadDim/16] {
				page[o.MainScales+i] = page[o.MainScales+i]&7 | fillMainScale
			}
			for i := range page[o.IndexScales : o.IndexScales+o.PageRows*m.layout.IndexDim/32] {
				page[o.IndexScales+i] = fillIndexScale
			}
		}
		if err := m.s.Upload(m.pages+ced.Addr(int(p)*len(page)), page); err != nil {
			return err
		}
	}
	if err := m.fillWindows(q, random); err != nil {
		return err
	}
	q.tokens = append(q.tokens, tokens...)
	return nil
}

// fillWindows fills a slot's rings and open groups.
func (m *Model) fillWindows(q *Sequence, random *rand.ChaCha8) error {
	ring := make([]byte, m.ringRows()*m.rowBytes())
	for l := range m.schedule {
		_, _ = random.Read(ring)
		for i := range ring {
			switch {
			case i%m.rowBytes() >= m.cfg.HeadDim:
				ring[i] = fillWindowScale
			case ring[i]&0x7F == 0x7F: // not a number
				ring[i]--
			}
		}
		if err := m.s.Upload(m.ring(l)+ced.Addr(q.slot*len(ring)), ring); err != nil {
			return err
		}
	}
	group := make([]float32, m.openRows()*2*m.cfg.HeadDim)
	for _, l := range m.cfg.KVSources {
		at, ok := m.open[l]
		if !ok {
			continue
		}
		for i := range group {
			group[i] = float32(random.Uint64()>>40)/(1<<23) - 1
		}
		if err := m.s.Upload(at+ced.Addr(q.slot*4*len(group)), bytesOf(group)); err != nil {
			return err
		}
	}
	return nil
}
