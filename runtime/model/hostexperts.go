package model

import (
	"fmt"
	"unsafe"

	ced "cedrun/cuda"
	"cedrun/runtime/experts"
)

// hostExperts lets the CPU compute the routed experts that a device has no room for (Options.HostExperts): from where the
// checkpoint has them, while the device computes those that it has. Each place adds up its own in ascending order, in F32;
// the CPU's sum is added to the device's before the shared expert. The CPU adds products in another order than the device,
// so the bits are those of this division: which experts the device has is fixed at load, by their numbers alone.
type hostExperts struct {
	s, cpu    *ced.Stream // steps; what the CPU computes
	cache     *experts.Cache
	shape     slotShape                             // of an expert on the device
	tables    [][]ced.Expert                        // per layer: what is there of those of the CPU, at the address of addrs
	addrs     []ced.Addr                            // in the CPU stream's memory
	pages     []*expertPages                        // per layer; nil: nothing to read ahead
	rows      *ced.Rows                             // of the CPU's call
	in        struct{ x, scales, idx, wt ced.Addr } // page-locked copies of a layer's rows
	rowsAddr  ced.Addr
	sum       ced.Addr // page-locked F32 [rows, dim], which the device reads
	workspace ced.Addr
	ready     *ced.Fence
	arena     *arena // of the device's experts
	stays     bool   // Options.Stays
}

// newHostExperts decides whether the CPU computes some experts; nil: it does not.
func (m *Model) newHostExperts() error {
	c := m.cfg
	layers, shape := len(m.schedule), shapeOf(c)
	one := shape.bytes
	if !m.opt.HostExperts || m.s.Host() || m.opt.ExpertBytes <= 0 || m.opt.ExpertBytes/one >= layers*c.Experts {
		return nil
	}
	x := &hostExperts{s: m.s, shape: shape, pages: make([]*expertPages, layers), stays: m.opt.Stays}
	var err error
	if x.cache, err = experts.New(experts.Config{Layers: layers, Experts: c.Experts, Slots: m.opt.ExpertBytes / one}, nil); err != nil {
		return err
	}
	m.byHost = x // whose Close is the model's from here on
	m.opt.Graphs = false
	room := x.cache.Config().Slots * one
	at, err := m.alloc(room)
	if err != nil {
		return fmt.Errorf("device memory for %d experts: %w", x.cache.Config().Slots, err)
	}
	x.arena = &arena{m: m, at: at, left: room}
	var flags []ced.Flag
	if m.opt.HostPin {
		flags = append(flags, ced.Pin)
	}
	if x.cpu, err = ced.Open(ced.CPU, 0, m.opt.HostThreads, flags...); err != nil {
		return err
	}
	if x.ready, err = m.s.NewFence(); err != nil {
		return err
	}
	r, k, d := m.opt.StepRows, c.ExpertsPerToken, c.HiddenSize
	for _, b := range []struct {
		dst *ced.Addr
		n   int
	}{
		{&x.in.x, r * d}, {&x.in.scales, r * d / 32}, {&x.in.idx, r * k * 4}, {&x.in.wt, r * k * 4}, {&x.sum, r * d * 4},
		{&x.rowsAddr, int(unsafe.Sizeof(ced.Rows{}))},
	} {
		if *b.dst, err = m.s.HostAlloc(b.n); err != nil {
			return fmt.Errorf("rows of a step for the CPU: %w", err)
		}
		m.pinned = append(m.pinned, *b.dst)
	}
	head := ced.HostBytes(x.rowsAddr, int(unsafe.Sizeof(ced.Rows{})))
	x.rows = (*ced.Rows)(unsafe.Pointer(unsafe.SliceData(head)))
	a := m.expertArgs(whole, rowCount{max: uint32(r)})
	a.Shared, a.Layout = ced.Expert{}, 0
	if x.workspace, err = x.cpu.Alloc(x.cpu.ExpertGEMMWorkspace(&a)); err != nil {
		return fmt.Errorf("workspace of the CPU: %w", err)
	}
	for range layers {
		at, err := x.cpu.Alloc(c.Experts * int(unsafe.Sizeof(ced.Expert{})))
		if err != nil {
			return fmt.Errorf("table of the CPU's experts: %w", err)
		}
		table := ced.HostBytes(at, c.Experts*int(unsafe.Sizeof(ced.Expert{})))
		clear(table)
		x.addrs = append(x.addrs, at)
		x.tables = append(x.tables, unsafe.Slice((*ced.Expert)(unsafe.Pointer(unsafe.SliceData(table))), c.Experts))
	}
	return nil
}

// place puts an expert into the device's memory, or notes where it is for the CPU; the device's table lacks it then.
func (x *hostExperts) place(l *loader, k experts.Key, stem string) ced.Expert {
	all := l.arena
	defer func() { l.arena = all }()
	if _, ok := x.cache.Slot(k); ok {
		l.arena = x.arena
		return l.packed(x.shape, stem)
	}
	l.arena = nil
	x.tables[k.Layer][k.Expert] = l.expert(stem)
	return ced.Expert{}
}

// readAhead prepares to ask for a layer's experts that are not in memory.
func (x *hostExperts) readAhead(m *Model, l int) {
	if x == nil || !m.opt.Prefetch || m.opt.Warmed && m.opt.Stays || !m.ck.InPlace() {
		return
	}
	in := &loader{ck: m.ck}
	tensors := make([][][]byte, len(x.tables[l]))
	for e := range tensors {
		if x.tables[l][e].W1 == 0 {
			continue
		}
		for _, n := range expertTensors {
			tensors[e] = append(tensors[e], in.data(fmt.Sprintf("layers.%d.ffn.experts.%d.%s", l, e, n)))
		}
	}
	p := newExpertPages(tensors, 0, !m.ck.Observable())
	for e := range tensors {
		if p.held[e] = tensors[e] == nil; p.held[e] {
			p.count++
		}
	}
	x.pages[l] = p
}

// run computes a layer's experts of the rows that a describes.
func (x *hostExperts) run(l, rows int, a *ced.ExpertGEMMArgs) error {
	for _, c := range []struct {
		dst, src ced.Addr
		n        int
	}{
		{x.in.idx, a.Idx, rows * int(a.TopK) * 4}, {x.in.wt, a.Weights, rows * int(a.TopK) * 4},
		{x.in.x, a.X, rows * int(a.Dim)}, {x.in.scales, a.XScales, rows * int(a.Dim) / 32},
	} {
		if err := x.s.Copy(c.dst, c.src, c.n); err != nil {
			return err
		}
	}
	if err := x.s.Record(x.ready); err != nil {
		return err
	}
	a.Flags = ced.ExpertsPart | ced.ExpertsProducts
	if err := x.s.ExpertGEMM(a); err != nil {
		return err
	}
	// The copies are there, and so is the last layer's sum on the device.
	if err := x.ready.Sync(); err != nil {
		return err
	}
	idx := unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(ced.HostBytes(x.in.idx, rows*int(a.TopK)*4)))), rows*int(a.TopK))
	if err := x.cache.Observe(l, idx); err != nil {
		return err
	}
	a.Flags = ced.ExpertsPart | ced.ExpertsSum
	for _, e := range idx {
		if x.tables[l][e].W1 == 0 {
			continue
		}
		if err := x.compute(l, rows, idx, a); err != nil {
			return fmt.Errorf("experts of the CPU: %w", err)
		}
		a.Addend = x.sum
		break
	}
	return x.s.ExpertGEMM(a)
}

// compute makes the sum of the CPU's experts.
func (x *hostExperts) compute(l, rows int, idx []int32, a *ced.ExpertGEMMArgs) error {
	if p := x.pages[l]; p != nil && p.count < len(p.parts) {
		p.fetch(idx, x.stays)
	}
	x.rows.Count = int32(rows)
	return x.cpu.ExpertGEMM(&ced.ExpertGEMMArgs{
		Rows: x.rowsAddr, X: x.in.x, XScales: x.in.scales, Idx: x.in.idx, Weights: x.in.wt, Experts: x.addrs[l], Y: x.sum,
		Workspace: x.workspace, MaxRows: a.MaxRows, ExpertsCount: a.ExpertsCount, TopK: a.TopK, Dim: a.Dim, Inter: a.Inter,
		Limit: a.Limit, YFormat: ced.F32, Flags: ced.ExpertsPart,
	})
}

// counted ends a step.
func (x *hostExperts) counted(u *meter) {
	if x == nil {
		return
	}
	x.cache.End()
	for l, n := range x.cache.Counts() {
		u.layers[l].hit.Store(n.Hits)
		u.layers[l].missed.Store(n.Misses)
	}
}

func (x *hostExperts) close() {
	if x == nil {
		return
	}
	_ = x.s.Sync() // what reads page-locked memory; a fault was told to the step
	x.ready.Close()
	if x.cpu == nil {
		return
	}
	x.cpu.Free(x.workspace)
	for _, a := range x.addrs {
		x.cpu.Free(a)
	}
	x.cpu.Close()
}
