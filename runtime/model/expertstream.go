package model

import (
	"fmt"

	ced "cedrun/cuda"
	"cedrun/runtime/experts"
)

// expertStream brings the experts of a layer that have no slot to the device while the layer before it computes, for
// steps whose rows choose about all of them: prompts. It has room for so many of two layers; kernels read what is beyond
// it over the bus, as in other steps.
type expertStream struct {
	room  int // experts of a layer
	half  [2]streamHalf
	ahead int // layer that is on its way, -1 = none
	bytes uint64
}

// streamHalf holds every other layer.
type streamHalf struct {
	at           ced.Addr
	entries      []ced.Expert // the layer's table in this step
	table        ced.Addr     // the same, on the device
	ready, freed *ced.Fence   // the copies are there; the layer has read them
}

// streamRoom divides room for total experts among slots and a stream that holds those of a layer that miss, twice, but not
// more than an eighth.
func streamRoom(total, layers, perLayer, floor int) int {
	missing := perLayer - total/layers
	return max(0, min(missing, total/16, (total-layers*floor)/2))
}

func (m *Model) newExpertStream(x *expertSlots, room int) error {
	if room == 0 {
		return nil
	}
	t := &expertStream{room: room, ahead: none}
	x.stream = t
	for i := range t.half {
		h, err := &t.half[i], error(nil)
		if h.at, err = m.alloc(room * x.shape.bytes); err != nil {
			return fmt.Errorf("device memory for %d experts on their way: %w", room, err)
		}
		h.entries = make([]ced.Expert, x.cache.Config().Experts)
		if h.table, err = m.alloc(len(bytesOf(h.entries))); err != nil {
			return fmt.Errorf("table of experts on their way: %w", err)
		}
		if h.ready, err = m.s.NewFence(); err != nil {
			return err
		}
		if h.freed, err = m.s.NewFence(); err != nil {
			return err
		}
	}
	return nil
}

// none is a layer that there is not.
const none = -1

// table is where the kernel of layer l finds its experts in a step that chooses so many: the layer's own table, or, where
// they are streamed, that of a half, for which what is missing has been copied. read comes after the kernel.
func (x *expertSlots) table(l, choices int) (ced.Addr, error) {
	t := x.stream
	if t == nil || choices < x.cache.Config().Experts {
		return x.tables[l], nil
	}
	if t.ahead != l {
		if err := x.bring(l); err != nil {
			return 0, err
		}
	}
	if t.ahead = none; l+1 < x.cache.Config().Layers {
		if err := x.bring(l + 1); err != nil {
			return 0, err
		}
		t.ahead = l + 1
	}
	h := &t.half[l%2]
	if err := x.s.Wait(h.ready); err != nil {
		return 0, err
	}
	return h.table, x.s.Upload(h.table, bytesOf(h.entries))
}

// bring copies what layer l misses, when the layer before the last has read the half.
func (x *expertSlots) bring(l int) error {
	t := x.stream
	h := &t.half[l%2]
	if err := x.copies.Wait(h.freed); err != nil {
		return err
	}
	n := 0
	for e := range h.entries {
		k := experts.Key{Layer: l, Expert: e}
		at := x.hostOf(k)
		if s, ok := x.cache.Slot(k); ok {
			at = x.slot(s)
		} else if n < t.room {
			to := h.at + ced.Addr(n*x.shape.bytes)
			if err := x.copies.Copy(to, at, x.shape.bytes); err != nil {
				return err
			}
			at = to
			n++
		}
		h.entries[e] = x.shape.expert(at)
	}
	t.bytes += uint64(n * x.shape.bytes)
	return x.copies.Record(h.ready)
}

// tableRead says that the kernel which was given table for layer l is enqueued.
func (x *expertSlots) tableRead(l int, table ced.Addr) error {
	if table == x.tables[l] {
		return nil
	}
	return x.s.Record(x.stream.half[l%2].freed)
}

func (t *expertStream) close() {
	if t == nil {
		return
	}
	for i := range t.half {
		t.half[i].ready.Close()
		t.half[i].freed.Close()
	}
}
