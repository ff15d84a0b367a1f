package model

import (
	"sync"

	"cedrun/runtime/residency"
)

// Weights of mapped files that are not in memory are read ahead of the kernel that needs them: experts when the router
// has chosen, table rows when the step's tokens are known. A kernel that faults its pages in itself waits for the disk
// at each run of 128 KiB.

// prefetchAhead bounds the bytes of experts that one call asks for, lest they push each other out.
const prefetchAhead = 2 << 30

// expertPages knows where a layer's experts lie in mapped files.
type expertPages struct {
	parts [][][]byte // per expert: its tensors, neighbours joined
	held  []bool     // in memory, for good
	count int        // of held
	blind bool       // the system does not tell what is in memory
	idx   []int32    // choices of a step
	want  []bool     // per expert: chosen and not held
}

// newExpertPages takes the tensors of a layer's experts.
func newExpertPages(experts [][][]byte, choices int, blind bool) *expertPages {
	e := &expertPages{held: make([]bool, len(experts)), want: make([]bool, len(experts)), idx: make([]int32, choices), blind: blind}
	for _, tensors := range experts {
		e.parts = append(e.parts, residency.Merge(tensors))
	}
	return e
}

// choose counts what the router of a layer has chosen.
func (p *pass) choose(l int) {
	n := p.in.count * p.cfg.ExpertsPerToken
	p.meter.layers[l].chosen.Add(uint64(n))
	if p.slots != nil {
		p.slots.routed[l] = n
	}
}

// fetchExperts reads the chosen experts ahead. Once all of a layer have been in memory, and what is there stays, it does
// nothing.
func (p *pass) fetchExperts(l int) error {
	if !p.capturing {
		p.choose(l)
	}
	if p.w.layers[l].pages == nil {
		return nil
	}
	e := p.w.layers[l].pages
	if e.count == len(e.parts) {
		return nil
	}
	idx := e.idx[:p.in.count*p.cfg.ExpertsPerToken]
	if err := p.s.Download(bytesOf(idx), p.idx(l)); err != nil {
		return err
	}
	p.meter.layers[l].missed.Add(uint64(e.fetch(idx, p.opt.Stays)))
	return nil
}

// fetch asks for the experts of idx that are not in memory, in ascending order as the kernel reads them, and returns
// their number.
func (e *expertPages) fetch(idx []int32, stays bool) (asked int) {
	clear(e.want)
	for _, i := range idx {
		e.want[i] = !e.held[i]
	}
	ahead := 0
	for i, want := range e.want {
		if !want {
			continue
		}
		held := !e.blind
		for _, b := range e.parts[i] {
			held = held && residency.Held(b)
		}
		if !held {
			for _, b := range e.parts[i] {
				ahead += len(b)
				residency.WillNeed(b)
			}
			asked++
		}
		if e.held[i] = stays; stays {
			e.count++
		}
		if ahead > prefetchAhead {
			break
		}
	}
	return asked
}

// rowFetch reads an Engram layer's table rows ahead, on its own goroutines: into memory that the kernel reads in place,
// or, of a table that is not mapped, into buffers.
type rowFetch struct {
	table, scales   []byte // mapped, and not wholly in memory when last looked
	checkable, held bool   // whether it may be found in memory for good, and was
	steps           int
	names           [2]string
	weights, scale8 []byte // rows of a table that is not mapped
	running         sync.WaitGroup
	errs            [rowReaders]error
}

const (
	rowReaders   = 8       // reads at a time
	wholeTable   = 4 << 30 // a larger one is not looked at page by page
	stepsOfLook  = 64      // from one look to the next
	rowsOfReader = 16      // at least
)

// fetchRows starts reading the rows that lookUp found.
func (p *pass) fetchRows() {
	for k, l := range p.cfg.Engram.Layers {
		f := p.w.layers[l].engram.fetch
		if f == nil || f.held {
			continue
		}
		ids, dim := p.lookups.ids[k], p.cfg.Engram.HeadDim
		if f.table != nil {
			f.running.Go(func() { f.advise(ids, dim) })
			continue
		}
		f.weights, f.scale8 = grow(f.weights, len(ids)*dim), grow(f.scale8, len(ids)*dim/32)
		clear(f.errs[:])
		each := max((len(ids)+rowReaders-1)/rowReaders, rowsOfReader)
		for r := 0; r*each < len(ids); r++ {
			from, to := r*each, min((r+1)*each, len(ids))
			f.running.Go(func() { f.errs[r] = f.read(p.Model, ids, from, to, dim) })
		}
	}
}

func grow(b []byte, n int) []byte {
	if n > cap(b) {
		return make([]byte, n)
	}
	return b[:n]
}

func (f *rowFetch) advise(ids []int64, dim int) {
	if f.steps++; f.checkable && f.steps%stepsOfLook == 0 && f.look() {
		return
	}
	for _, id := range ids {
		at := int(id) * dim
		residency.WillNeed(f.table[at : at+dim])
		residency.WillNeed(f.scales[at/32 : (at+dim)/32])
	}
}

// look sees whether the whole table is in memory.
func (f *rowFetch) look() bool {
	f.held = residency.HeldWhole(f.table) && residency.HeldWhole(f.scales)
	return f.held
}

func (f *rowFetch) read(m *Model, ids []int64, from, to, dim int) error {
	if err := m.ck.ReadRows(f.names[0], dim, ids[from:to], f.weights[from*dim:to*dim]); err != nil {
		return err
	}
	return m.ck.ReadRows(f.names[1], dim/32, ids[from:to], f.scale8[from*dim/32:to*dim/32])
}

// stage waits for the rows of a layer whose table is not mapped and uploads them.
func (p *pass) stage(f *rowFetch, to *engramRows) error {
	f.running.Wait()
	for _, err := range f.errs {
		if err != nil {
			return err
		}
	}
	if err := p.s.Upload(to.staged, f.weights); err != nil {
		return err
	}
	return p.s.Upload(to.stagedScl, f.scale8)
}

// waitForRows ends what fetchRows started; the ids are then free for the next step, and the files may be closed.
func (m *Model) waitForRows() {
	for i := range m.w.layers {
		if e := m.w.layers[i].engram; e != nil && e.fetch != nil {
			e.fetch.running.Wait()
		}
	}
}

// newRowFetch decides how a layer's rows are read ahead; nil: they are in memory.
func (m *Model) newRowFetch(l *loader, stem string) *rowFetch {
	f := &rowFetch{names: [2]string{stem + "embed.weight", stem + "embed.scale"}}
	if !m.inPlace() {
		return f
	}
	if !m.opt.Prefetch {
		return nil
	}
	f.table, f.scales = l.data(f.names[0]), l.data(f.names[1])
	if f.checkable = m.opt.Stays && m.ck.Observable() && len(f.table) <= wholeTable; f.checkable && f.look() {
		return nil
	}
	return f
}

// inPlace reports whether kernels read the checkpoint's bytes where they are.
func (m *Model) inPlace() bool { return m.s.Host() && m.ck.InPlace() }
