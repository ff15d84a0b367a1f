package model

import (
	"fmt"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
	"cedrun/runtime/config"
	"cedrun/runtime/experts"
	"cedrun/runtime/kv"
	"cedrun/runtime/residency"
)

// RowSource finds the Engram table rows of tokens. Implemented by package engram.
type RowSource interface {
	// Compress appends the compressed ids of tokens; dead marks image positions, nil = none.
	Compress(dst, tokens []int32, dead []bool) []int32
	// AppendRows appends the [len(ids), columns] row ids of a layer for compressed ids whose predecessors, as many as
	// there are up to Lookback, are before.
	AppendRows(dst []int64, layer int, before, ids []int32) []int64
	Lookback() int
}

// Options sizes what the model allocates once.
type Options struct {
	Slots     int // sequences at a time
	Context   int // tokens a sequence may have
	KVTokens  int // tokens of global KV in all; 0 = Slots * Context
	StepRows  int // rows of a step
	Outputs   int // rows of a step that may want logits; 0 = StepRows
	DraftRows int // rows beyond the window that a ring keeps, and draft rows an open group keeps
	// Prefetch reads experts and table rows ahead that are not in memory: for mapped weights that were not all read
	// before. Stays says that what is in memory is there for good, because everything fits; Warmed that all experts are.
	Prefetch, Stays, Warmed bool
	// Tails keeps the streams of the last rows of each sequence between encoder and decoder, for images (Save).
	Tails bool
	// ExpertBytes bounds the memory of a device that routed experts take. With less than all of them take, all lie in
	// page-locked host memory too, where kernels read those that are not on the device, over the bus: slower, with the same
	// bits. 0 = no bound. ExpertOrder, best first, are those that begin on the device, and ExpertOrderName says where the
	// order is from; experts that it lacks follow by number.
	ExpertBytes     int
	ExpertOrder     []experts.Key
	ExpertOrderName string
	// HostExperts lets the CPU, with HostThreads threads (0 = one per usable core), compute the experts that ExpertBytes have
	// no room for. Which they are follows from ExpertBytes alone, and results have bits of their own for each such
	// division; steps are not captured.
	HostExperts bool
	HostThreads int
	HostPin     bool // each of them has a core
	// Graphs captures decode steps of a device stream, and replays them: the same results with a launch for a step instead of
	// one for every kernel. Warn is told when the device refuses.
	Graphs    bool
	Warn      func(string)
	HugePages bool // ask for huge pages behind caches and step buffers of a host stream
	// StaleIndexKeys reproduces the upstream decode quirk (spec D1), for comparison with its goldens only.
	StaleIndexKeys bool
}

// Model is a loaded checkpoint and everything its steps need on one stream. One goroutine uses it.
type Model struct {
	cfg      *config.Config
	schedule []config.Layer
	ck       *checkpoint.Checkpoint
	s        *ced.Stream
	opt      Options
	w        weights
	slots    *expertSlots // nil: all experts are where kernels read them best, or byHost is not nil
	byHost   *hostExperts // nil: the CPU computes none for a device
	engram   RowSource
	probe    Probe
	owned    []ced.Addr
	pinned   []ced.Addr // page-locked host memory
	bytes    int        // of owned

	layout kv.Layout
	pool   *kv.Pool

	freeSlots   []int
	pages       ced.Addr // page pool
	pageTable   ced.Addr // i32 [slots][maxPages]
	windowStart ced.Addr // i32 [layers][slots]
	rings       ced.Addr // [layers][slots][ringRows][rowBytes]
	open        map[int]ced.Addr
	tails       [tailPlanes]ced.Addr // with Options.Tails: [slots][window][bytes of a row]

	kept ced.Addr // page-locked: [slots][keptBytes] windows as they were before a step

	freqPlain, freqCompressed ced.Addr
	ws                        workspace
	pass                      pass // of the step that runs
	lookups                   lookups
	meter                     meter
	graphs                    graphs
}

// New loads a checkpoint that passed its census on a stream. rows may be nil for a model without Engram.
func New(s *ced.Stream, ck *checkpoint.Checkpoint, cfg *config.Config, rows RowSource, opt Options) (*Model, error) {
	if opt.KVTokens == 0 {
		opt.KVTokens = opt.Slots * kv.PagesFor(opt.Context) * kv.PageTokens
	}
	if opt.Outputs == 0 {
		opt.Outputs = opt.StepRows
	}
	if len(cfg.Engram.Layers) > 0 && rows == nil {
		return nil, fmt.Errorf("the model has Engram layers but no source of row ids")
	}
	m := &Model{cfg: cfg, schedule: cfg.Schedule(), ck: ck, s: s, opt: opt, engram: rows, open: map[int]ced.Addr{}}
	m.opt.Graphs = opt.Graphs && !s.Host() && !opt.StaleIndexKeys // whose keys depend on the step
	m.graphs.steps = map[uint32]*ced.Graph{}
	m.meter.layers = make([]layerMeter, len(m.schedule))
	for i := opt.Slots - 1; i >= 0; i-- {
		m.freeSlots = append(m.freeSlots, i)
	}
	if err := m.load(); err != nil {
		m.Close()
		return nil, err
	}
	if err := m.allocate(); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Config is the model's geometry.
func (m *Model) Config() *config.Config { return m.cfg }

// Options are the sizes in force.
func (m *Model) Options() Options { return m.opt }

// Pool counts the pages of the global KV cache.
func (m *Model) Pool() *kv.Pool { return m.pool }

// FreeTokens is the number of tokens of global KV that no sequence has reserved.
func (m *Model) FreeTokens() int { return m.pool.Free() * kv.PageTokens }

// Close frees the model's stream memory; the stream and the checkpoint stay open.
func (m *Model) Close() {
	m.waitForRows()
	m.graphs.close(m.s)
	m.slots.close()
	m.byHost.close()
	for _, a := range m.owned {
		m.s.Free(a)
	}
	for _, a := range m.pinned {
		m.s.HostFree(a)
	}
	m.owned, m.pinned = nil, nil
}

func (m *Model) alloc(n int) (ced.Addr, error) {
	a, err := m.s.Alloc(max(n, 64))
	if err != nil {
		return 0, err
	}
	m.owned, m.bytes = append(m.owned, a), m.bytes+n
	if m.opt.HugePages && m.s.Host() {
		_ = residency.HugePages(uintptr(a), n) // advice: small pages do as well
	}
	return a, nil
}

func (m *Model) upload(b []byte) (ced.Addr, error) {
	a, err := m.alloc(len(b))
	if err == nil {
		err = m.s.Upload(a, b)
	}
	return a, err
}

func (m *Model) ringRows() int { return m.cfg.Window + m.opt.DraftRows }

// openRows is how many positions of (a, g) an open group's store keeps.
func (m *Model) openRows() int { return 2 + m.opt.DraftRows }
func (m *Model) rowBytes() int { return m.cfg.WindowRowBytes() }

func (m *Model) ring(layer int) ced.Addr {
	return m.rings + ced.Addr(layer*m.ringBytes())
}

// ringBytes is one layer's rings, rounded up so that each layer's start is aligned.
func (m *Model) ringBytes() int { return (m.opt.Slots*m.ringRows()*m.rowBytes() + 63) &^ 63 }

// kvOf describes the pages of an owner layer to the kernels.
func (m *Model) kvOf(layer int) ced.KV {
	o, _ := m.layout.Owner(layer)
	return ced.KV{
		Pages: m.pages, Table: m.pageTable, PageBytes: uint64(m.layout.PageBytes), MaxPages: uint32(m.maxPages()),
		PageRows: uint32(o.PageRows), Ratio: uint32(o.Ratio),
		HeadDim: uint32(m.layout.HeadDim), IndexDim: uint32(m.layout.IndexDim),
		MainCodes: uint32(o.MainCodes), MainScales: uint32(o.MainScales),
		IndexCodes: uint32(o.IndexCodes), IndexScales: uint32(o.IndexScales),
	}
}

// allocate reserves caches and step buffers. Memory that a short context never touches stays untouched.
func (m *Model) allocate() error {
	c, o := m.cfg, m.opt
	ratios := make([]int, len(c.KVSources))
	for i, l := range c.KVSources {
		ratios[i] = c.CompressRatios[l]
	}
	m.layout = kv.NewLayout(c.HeadDim, c.IndexHeadDim, c.KVSources, ratios)
	m.pool = kv.NewPool(kv.PagesFor(o.KVTokens))
	var err error
	for _, a := range []struct {
		dst *ced.Addr
		n   int
	}{
		{&m.pages, m.pool.Pages() * m.layout.PageBytes},
		{&m.pageTable, 4 * o.Slots * m.maxPages()},
		{&m.windowStart, 4 * c.Layers * o.Slots},
		{&m.rings, c.Layers * m.ringBytes()},
	} {
		if *a.dst, err = m.alloc(a.n); err != nil {
			return fmt.Errorf("KV cache for %d tokens: %w", o.KVTokens, err)
		}
	}
	for _, l := range c.KVSources {
		if c.CompressRatios[l] > 1 {
			if m.open[l], err = m.alloc(o.Slots * m.openRows() * 2 * c.HeadDim * 4); err != nil {
				return err
			}
		}
	}
	if err := m.allocateTails(); err != nil {
		return err
	}
	if err := m.allocateKept(); err != nil {
		return err
	}
	if m.freqPlain, err = m.upload(bytesOf(c.RopeFreqs(false))); err != nil {
		return err
	}
	if m.freqCompressed, err = m.upload(bytesOf(c.RopeFreqs(true))); err != nil {
		return err
	}
	return m.ws.allocate(m)
}
