package model

import (
	"sync/atomic"
	"time"

	"cedrun/runtime/experts"
)

// meter counts what the steps of a model used. Steps only add to it.
type meter struct {
	layers  []layerMeter
	rows    atomic.Uint64 // of Engram tables
	stalled atomic.Int64
	// Bytes of experts that were brought to the device for one step.
	streamed atomic.Uint64
}

type layerMeter struct{ chosen, missed, hit, moved atomic.Uint64 }

// Use is what the steps of a model have used since it was loaded.
type Use struct {
	Experts    []ExpertUse // per layer
	Slots      *SlotUse    // of a device that has room for a part of the experts
	EngramRows uint64      // read from the tables
	Graphs     GraphUse
}

// ExpertUse counts a layer's routed experts.
type ExpertUse struct {
	Chosen uint64 // by the router: rows times top-k
	Missed uint64 // not in memory when they were chosen: each once a step
	Blind  bool   // the system does not tell what is in memory, so Missed says nothing
	// With SlotUse, each once a step: found on the device; and brought there since.
	Hit, Moved uint64
}

// SlotUse is the part of a device's memory that experts take, up to the step before the last.
type SlotUse struct {
	Slots, Experts int           // experts that the device has room for, of all
	Bytes          int           // of one
	First          string        // what the slots held first
	ByHost         bool          // the CPU computes those that missed; nothing moves
	Threads        int           // of the CPU, then
	Stream         int           // of a layer that have room beside the slots while a prompt is read
	Streamed       uint64        // bytes of those
	Stalled        time.Duration // that steps waited for logs of the routers; they never wait for a copy
}

// Use can be called from any goroutine.
func (m *Model) Use() Use {
	u := Use{Experts: make([]ExpertUse, len(m.meter.layers)), EngramRows: m.meter.rows.Load(), Graphs: m.Graphs()}
	for i := range u.Experts {
		l, pages := &m.meter.layers[i], m.w.layers[i].pages
		u.Experts[i] = ExpertUse{l.chosen.Load(), l.missed.Load(), pages != nil && pages.blind, l.hit.Load(), l.moved.Load()}
	}
	if x := m.slots; x != nil {
		u.Slots = &SlotUse{
			Slots: x.cache.Config().Slots, Experts: len(x.host), Bytes: x.shape.bytes, First: x.first,
			Streamed: m.meter.streamed.Load(), Stalled: time.Duration(m.meter.stalled.Load()),
		}
		if x.stream != nil {
			u.Slots.Stream = x.stream.room
		}
	}
	if x := m.byHost; x != nil {
		c := x.cache.Config()
		u.Slots = &SlotUse{Slots: c.Slots, Experts: c.Layers * c.Experts, Bytes: x.shape.bytes, First: "by number", ByHost: true, Threads: x.cpu.Threads()}
	}
	return u
}

// expertCache knows who has a place on a device that has not room for all; else nil.
func (m *Model) expertCache() *experts.Cache {
	if m.byHost != nil {
		return m.byHost.cache
	}
	if m.slots != nil {
		return m.slots.cache
	}
	return nil
}

// ExpertOrder is the experts that steps used, those used most first, if the device has room for a part of them only; for
// Options of the next run. Not while a step runs.
func (m *Model) ExpertOrder() []experts.Key {
	if c := m.expertCache(); c != nil {
		return c.Ranked()
	}
	return nil
}

// Rehearse runs f, whose steps count for nothing: no expert takes another's place for them, and Use does not tell of them.
// Not while other steps run.
func (m *Model) Rehearse(f func() error) error {
	if m.slots != nil {
		m.slots.still = true
		defer func() { m.slots.still = false }()
	}
	if err := f(); err != nil {
		return err
	}
	if err := m.s.Sync(); err != nil {
		return err
	}
	if err := m.slots.between(&m.meter); err != nil { // takes in the last logs
		return err
	}
	if c := m.expertCache(); c != nil {
		c.Forget()
	}
	if x := m.slots; x != nil {
		if x.stalled = 0; x.stream != nil {
			x.stream.bytes = 0
		}
	}
	m.meter.forget()
	m.graphs.replayed.Store(0)
	m.graphs.plain.Store(0)
	return nil
}

func (u *meter) forget() {
	for l := range u.layers {
		x := &u.layers[l]
		for _, n := range []*atomic.Uint64{&x.chosen, &x.missed, &x.hit, &x.moved} {
			n.Store(0)
		}
	}
	u.rows.Store(0)
	u.streamed.Store(0)
	u.stalled.Store(0)
}

// place counts where steps found their experts.
func (u *meter) place(x *expertSlots) {
	for l, n := range x.cache.Counts() {
		u.layers[l].hit.Store(n.Hits)
		u.layers[l].missed.Store(n.Misses)
		u.layers[l].moved.Store(n.Moves)
	}
	u.stalled.Store(int64(x.stalled))
	if x.stream != nil {
		u.streamed.Store(x.stream.bytes)
	}
}
