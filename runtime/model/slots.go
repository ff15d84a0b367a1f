package model

import (
	"fmt"
	"time"
	"unsafe"

	ced "cedrun/cuda"
	"cedrun/runtime/config"
	"cedrun/runtime/experts"
)

// expertSlots keeps routed experts within Options.ExpertBytes of device memory: all lie in page-locked host memory, and
// those that steps use most also in slots of the device. Which they are changes between steps (package experts): the
// table's entries are data at fixed addresses, so that a captured step goes on to be right.
type expertSlots struct {
	s, copies *ced.Stream // steps; what fills slots
	cache     *experts.Cache
	shape     slotShape
	host      []ced.Addr // per layer and expert: its copy
	slots     ced.Addr
	tables    []ced.Addr // per layer: ced.Expert per expert, on the device
	read      *ced.Fence // the steps that may have read what is filled now
	landed    *ced.Fence // what is filled is there
	routed    []int      // per layer: choices of the step that is built
	stride    int        // bytes from one layer's choices to the next one's, in the step that is built
	stream    *expertStream
	logs      []*routeLog
	spare     []*routeLog
	entry     [1]ced.Expert
	stalled   time.Duration // that steps waited, on the host
	still     bool          // nobody takes another's slot
	first     string        // what the slots held first
}

// slotShape is how a packed expert lies in memory.
type slotShape struct {
	dim, inter int
	w2, bytes  int
}

// routeLog is what a step's router chose, on its way to the host.
type routeLog struct {
	ids    ced.Addr // page-locked
	routed []int    // per layer: how many of them
	stride int
	done   *ced.Fence
}

// logsAhead is how many steps may be enqueued before the first one's log has come.
const logsAhead = 2

func shapeOf(c *config.Config) slotShape {
	s := slotShape{dim: c.HiddenSize, inter: c.MoEIntermediate}
	s.bytes, s.w2 = ced.PackedExpertBytes(s.dim, s.inter)
	s.bytes = (s.bytes + 255) &^ 255
	return s
}

func (s slotShape) expert(at ced.Addr) ced.Expert {
	return ced.Expert{W1: at, W2: at + ced.Addr(s.w2)}
}

// pack writes an expert to host memory in the order in which a device's kernels use it.
func (s slotShape) pack(l *loader, to ced.Addr, stem string) {
	var at [6]ced.Addr
	matrix := s.dim * s.inter / 2
	for i, n := range expertTensors {
		b, want := l.data(stem+n), matrix
		if i%2 != 0 {
			want /= 16
		}
		if l.err == nil && len(b) != want {
			l.err = fmt.Errorf("load %s%s: %d bytes, where an expert of this model has %d", stem, n, len(b), want)
		}
		at[i] = ced.HostAddr(b)
	}
	if l.err != nil {
		return
	}
	from := ced.Expert{W1: at[0], W1Scales: at[1], W3: at[2], W3Scales: at[3], W2: at[4], W2Scales: at[5]}
	if err := ced.PackExpert(to, from, s.dim, s.inter); err != nil {
		l.err = fmt.Errorf("load %s: %w", stem, err)
	}
}

// packed puts a packed expert into the device's memory.
func (l *loader) packed(s slotShape, stem string) ced.Expert {
	if l.err == nil && l.stage == 0 {
		if l.stage, l.err = l.arena.m.s.HostAlloc(s.bytes); l.err != nil {
			l.err = fmt.Errorf("page-locked memory for an expert on its way: %w", l.err)
		}
	}
	if l.err != nil {
		return ced.Expert{}
	}
	s.pack(l, l.stage, stem)
	if l.err != nil {
		return ced.Expert{}
	}
	at, err := l.arena.put(ced.HostBytes(l.stage, s.bytes))
	if err != nil {
		l.err = fmt.Errorf("load %s: %w", stem, err)
	}
	return s.expert(at)
}

// newExpertSlots decides whether the model's experts need a budget; nil: they all have room.
func (m *Model) newExpertSlots(l *loader) (*expertSlots, error) {
	c := m.cfg
	all := len(m.schedule) * c.Experts
	if m.s.Host() || m.opt.ExpertBytes <= 0 || all == 0 || m.byHost != nil {
		return nil, nil
	}
	x := &expertSlots{s: m.s, shape: shapeOf(c), first: m.opt.ExpertOrderName}
	cfg := experts.Config{
		Layers: len(m.schedule), Experts: c.Experts, Slots: m.opt.ExpertBytes / x.shape.bytes, Floor: min(c.ExpertsPerToken, c.Experts),
	}
	if cfg.Slots >= all {
		return nil, nil
	}
	room := streamRoom(cfg.Slots, cfg.Layers, cfg.Experts, cfg.Floor)
	if least := cfg.Layers * cfg.Floor; cfg.Slots < least {
		return nil, fmt.Errorf("%d bytes for experts hold %d of them, of %d bytes each: give at least %d bytes, for the %d that a token uses in each of %d layers",
			m.opt.ExpertBytes, cfg.Slots, x.shape.bytes, least*x.shape.bytes, cfg.Floor, cfg.Layers)
	}
	if x.first == "" {
		x.first = "by number"
	}
	cfg.Slots -= 2 * room
	var err error
	if x.cache, err = experts.New(cfg, m.opt.ExpertOrder); err != nil {
		return nil, err
	}
	m.slots = x // whose Close is the model's from here on
	if x.slots, err = m.alloc(cfg.Slots * x.shape.bytes); err != nil {
		return nil, fmt.Errorf("device memory for %d experts: %w", cfg.Slots, err)
	}
	if x.copies, err = m.s.Beside(); err != nil {
		return nil, err
	}
	for _, e := range []**ced.Fence{&x.read, &x.landed} {
		if *e, err = m.s.NewFence(); err != nil {
			return nil, err
		}
	}
	if err := m.newExpertStream(x, room); err != nil {
		return nil, err
	}
	x.routed, x.stride = make([]int, cfg.Layers), m.routeBytes(m.opt.StepRows)
	for range logsAhead {
		g := &routeLog{routed: make([]int, cfg.Layers)}
		x.spare = append(x.spare, g)
		if g.done, err = m.s.NewFence(); err != nil {
			return nil, err
		}
		if g.ids, err = m.s.HostAlloc(cfg.Layers * x.stride); err != nil {
			return nil, fmt.Errorf("log of the routers: %w", err)
		}
		m.pinned = append(m.pinned, g.ids)
	}
	return x, nil
}

// routeBytes is the room of a layer's choices for so many rows, rounded up so that each layer's start is aligned.
func (m *Model) routeBytes(rows int) int { return (rows*m.cfg.ExpertsPerToken*4 + 63) &^ 63 }

// lay lays the choices of a step's layers out, one behind the other; a captured step's bucket has its own layout.
func (m *Model) lay(rows rowCount) {
	if m.slots != nil {
		m.slots.stride = m.routeBytes(int(rows.max))
	}
}

// place puts an expert into host memory and, if it has one, into its slot.
func (x *expertSlots) place(l *loader, k experts.Key, stem string) ced.Expert {
	if l.err != nil {
		return ced.Expert{}
	}
	at, err := l.host.reserve(x.shape.bytes)
	if err != nil {
		l.err = fmt.Errorf("load %s: %w", stem, err)
		return ced.Expert{}
	}
	if x.shape.pack(l, at, stem); l.err != nil {
		return ced.Expert{}
	}
	x.host = append(x.host, at)
	if s, ok := x.cache.Slot(k); ok {
		at = x.slot(s)
		l.err = x.fill(x.s, s, k)
	}
	return x.shape.expert(at)
}

func (x *expertSlots) slot(s int) ced.Addr { return x.slots + ced.Addr(s*x.shape.bytes) }

func (x *expertSlots) hostOf(k experts.Key) ced.Addr {
	return x.host[k.Layer*x.cache.Config().Experts+k.Expert]
}

func (x *expertSlots) fill(s *ced.Stream, slot int, k experts.Key) error {
	return s.Copy(x.slot(slot), x.hostOf(k), x.shape.bytes)
}

// point changes an entry of the table, after the steps that were enqueued.
func (x *expertSlots) point(k experts.Key, at ced.Addr) error {
	x.entry[0] = x.shape.expert(at)
	b := bytesOf(x.entry[:])
	return x.s.Upload(x.tables[k.Layer]+ced.Addr(k.Expert*len(b)), b)
}

// between runs before a step: it counts what earlier ones chose and changes who has a slot. While a step's log is under
// way nothing changes, so that it is counted by the places that it found.
func (x *expertSlots) between(u *meter) error {
	if x == nil {
		return nil
	}
	clear(x.routed)
	if x.stream != nil {
		x.stream.ahead = none
	}
	for len(x.logs) > 0 {
		done, err := x.logs[0].done.Done()
		if err == nil && !done && len(x.spare) == 0 {
			began := time.Now()
			err = x.logs[0].done.Sync()
			x.stalled += time.Since(began)
			done = true
		}
		if err != nil {
			return fmt.Errorf("log of the routers: %w", err)
		}
		if !done {
			return nil
		}
		if err := x.observe(x.logs[0]); err != nil {
			return err
		}
		x.spare, x.logs = append(x.spare, x.logs[0]), append(x.logs[:0], x.logs[1:]...)
	}
	if err := x.land(); err != nil {
		return err
	}
	if !x.still {
		if err := x.start(); err != nil {
			return err
		}
	}
	u.place(x)
	return nil
}

func (x *expertSlots) observe(g *routeLog) error {
	for l, n := range g.routed {
		ids := ced.HostBytes(g.ids+ced.Addr(l*g.stride), 4*n)
		if err := x.cache.Observe(l, unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(ids))), n)); err != nil {
			return err
		}
	}
	x.cache.End()
	return nil
}

// sent brings what the step's routers chose to the host, behind the step.
func (x *expertSlots) sent(idx ced.Addr) error {
	if x == nil {
		return nil
	}
	g := x.spare[len(x.spare)-1]
	copy(g.routed, x.routed)
	g.stride = x.stride
	if err := x.s.Copy(g.ids, idx, len(x.routed)*x.stride); err != nil {
		return err
	}
	if err := x.s.Record(g.done); err != nil {
		return err
	}
	x.spare, x.logs = x.spare[:len(x.spare)-1], append(x.logs, g)
	return nil
}

func (x *expertSlots) close() {
	if x == nil {
		return
	}
	if x.copies != nil {
		_ = x.copies.Sync() // a fault was told to the step
	}
	for _, g := range append(x.spare, x.logs...) {
		g.done.Close()
	}
	x.stream.close()
	x.read.Close()
	x.landed.Close()
	if x.copies != nil {
		x.copies.Close()
	}
}

// land lets entries point to the slots that are filled.
func (x *expertSlots) land() error {
	if !x.cache.Moving() {
		return nil
	}
	if done, err := x.landed.Done(); err != nil || !done {
		return err
	}
	moves, err := x.cache.Land()
	if err != nil {
		return err
	}
	for _, v := range moves {
		if err := x.point(v.In, x.slot(v.Slot)); err != nil {
			return err
		}
	}
	return nil
}

// start lets entries point to the host again and fills their slots, once the steps that may read them are done.
func (x *expertSlots) start() error {
	moves, err := x.cache.Start()
	if err != nil || len(moves) == 0 {
		return err
	}
	for _, v := range moves {
		if err := x.point(v.Out, x.hostOf(v.Out)); err != nil {
			return err
		}
	}
	if err := x.s.Record(x.read); err != nil {
		return err
	}
	if err := x.copies.Wait(x.read); err != nil {
		return err
	}
	for _, v := range moves {
		if err := x.fill(x.copies, v.Slot, v.In); err != nil {
			return err
		}
	}
	return x.copies.Record(x.landed)
}
