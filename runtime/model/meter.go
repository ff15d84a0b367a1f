package model

import "sync/atomic"

// meter counts what the steps of a model used. Steps only add to it.
type meter struct {
	layers []layerMeter
	rows   atomic.Uint64 // of Engram tables
}

type layerMeter struct{ chosen, missed atomic.Uint64 }

// Use is what the steps of a model have used since it was loaded.
type Use struct {
	Experts    []ExpertUse // per layer
	EngramRows uint64      // read from the tables
}

// ExpertUse counts a layer's routed experts.
type ExpertUse struct {
	Chosen uint64 // by the router: rows times top-k
	Missed uint64 // not in memory when they were chosen: each once a step
	Blind  bool   // the system does not tell what is in memory, so Missed says nothing
}

// Use can be called from any goroutine.
func (m *Model) Use() Use {
	u := Use{Experts: make([]ExpertUse, len(m.meter.layers)), EngramRows: m.meter.rows.Load()}
	for i := range u.Experts {
		l, pages := &m.meter.layers[i], m.w.layers[i].pages
		u.Experts[i] = ExpertUse{l.chosen.Load(), l.missed.Load(), pages != nil && pages.blind}
	}
	return u
}
