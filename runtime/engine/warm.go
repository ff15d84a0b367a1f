package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"cedrun/runtime/checkpoint"
	"cedrun/runtime/inventory"
	"cedrun/runtime/model"
	"cedrun/runtime/plan"
	"cedrun/runtime/residency"
)

// Warm says which mapped weights are read into memory before the first request.
type Warm int

const (
	// WarmOff reads none: pages come in as they are used.
	WarmOff Warm = iota
	// WarmAuto reads what every token uses, if that fits, and the experts, if all of them fit.
	WarmAuto
	// WarmPopulate reads as much as fits: what every token uses, then experts, then table rows.
	WarmPopulate
)

var warmNames = []string{"off", "auto", "populate"}

func (w Warm) String() string { return warmNames[w] }

// ParseWarm reads a choice by name.
func ParseWarm(s string) (Warm, error) {
	for i, n := range warmNames {
		if s == n {
			return Warm(i), nil
		}
	}
	return 0, fmt.Errorf("%q: use auto, off or populate", s)
}

// Warming says how Files.Warm brings weights into memory.
type Warming struct {
	Mode Warm
	Lock bool // keep them there: never paged out
	// Report, if set, is told how many bytes of how many are done, one call at a time.
	Report func(done, total int64)
}

// Warmed is what Files.Warm did.
type Warmed struct {
	Read, Locked int64 // bytes
	Experts      bool  // all experts are in memory
}

// Warm reads weights into memory before Start, for an engine of that setup: of mapped files as o says, of others all that
// Start would read. Cancelling ctx ends it.
func (f *Files) Warm(ctx context.Context, setup Setup, o Warming) (Warmed, error) {
	p, err := f.Plan(setup)
	if err != nil {
		return Warmed{}, err
	}
	if err := p.Check(); err != nil || f.Source.FS != nil {
		return Warmed{}, err
	}
	w := f.weights()
	var l Warmed
	if !f.Checkpoint.Mapped() {
		names := slices.Concat(w.dense, w.experts)
		if o.Mode != WarmOff {
			l.Read, l.Experts = f.size(names), true
			if err := f.readAll(ctx, names, l.Read, o.Report); err != nil {
				return l, err
			}
		}
		return l, f.lock(&l, o, names)
	}
	names, experts := f.choose(w, o.Mode, p)
	f.warmed = false
	if len(names) > 0 {
		parts, err := f.parts(names)
		if err != nil {
			return l, err
		}
		l.Read, l.Experts = length(parts), experts
		report := func(done int64) {
			if o.Report != nil {
				o.Report(done, l.Read)
			}
		}
		if err := residency.Populate(ctx, parts, report); err != nil {
			return l, fmt.Errorf("read %s of weights into memory: %w", plan.GB(l.Read), err)
		}
		f.warmed = experts
	}
	if o.Mode == WarmOff {
		names = slices.Concat(w.dense, w.experts)
	}
	return l, f.lock(&l, o, names)
}

// weights are the names of tensors by how a step reads them (plan.Weights).
type weights struct{ dense, experts, tables []string }

func (f *Files) sortWeights() (w weights) {
	for _, s := range checkpoint.Expected(f.Config) {
		if _, ok := f.Checkpoint.Tensor(s.Name); !ok {
			continue
		}
		switch inventory.PartOf(&s) {
		case inventory.Draft, inventory.Vision: // not run
		case inventory.Experts:
			w.experts = append(w.experts, s.Name)
		case inventory.Embedding, inventory.EngramTables:
			w.tables = append(w.tables, s.Name)
		default:
			w.dense = append(w.dense, s.Name)
		}
	}
	return w
}

func (f *Files) size(names []string) (n int64) {
	for _, name := range names {
		t, _ := f.Checkpoint.Tensor(name)
		n += t.Size
	}
	return n
}

// choose lists the tensors to read into the memory that a plan leaves; experts says whether all experts are among them.
func (f *Files) choose(w weights, warm Warm, p plan.Load) (names []string, experts bool) {
	if warm == WarmOff {
		return nil, false
	}
	room := p.Available - p.Buffers.Total()
	add := func(group []string, part bool) bool {
		if n := f.size(group); p.Available == 0 || n <= room {
			names = append(names, group...)
			room -= n
			return true
		}
		for _, name := range group {
			if n := f.size([]string{name}); part && n <= room {
				names = append(names, name)
				room -= n
			}
		}
		return false
	}
	populate := warm == WarmPopulate
	if !add(w.dense, populate) {
		return names, false
	}
	if experts = add(w.experts, populate); experts && populate {
		add(w.tables, false)
	}
	return names, experts
}

// parts are the tensors' bytes in place, neighbours joined.
func (f *Files) parts(names []string) ([][]byte, error) {
	parts := make([][]byte, len(names))
	for i, name := range names {
		var err error
		if parts[i], err = f.Checkpoint.Bytes(name); err != nil {
			return nil, err
		}
	}
	return residency.Merge(parts), nil
}

func length(parts [][]byte) (n int64) {
	for _, b := range parts {
		n += int64(len(b))
	}
	return n
}

// readers is how many tensors are read at a time.
const readers = 4

// readAll reads tensors of total bytes into anonymous memory.
func (f *Files) readAll(ctx context.Context, names []string, total int64, report func(done, total int64)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		all  sync.WaitGroup
		next atomic.Int64
		mu   sync.Mutex
		done int64
	)
	for range readers {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(names) || ctx.Err() != nil {
					return
				}
				b, err := f.Checkpoint.Bytes(names[i])
				if err != nil {
					cancel(err)
					return
				}
				mu.Lock()
				if done += int64(len(b)); report != nil {
					report(done, total)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// lock keeps tensors in memory.
func (f *Files) lock(l *Warmed, o Warming, names []string) error {
	if !o.Lock {
		return nil
	}
	parts, err := f.parts(names)
	if err != nil {
		return err
	}
	total := length(parts)
	for _, b := range parts {
		if err := residency.Lock(b); err != nil {
			return lockError(total, l.Locked, residency.LockLimit(), err)
		}
		l.Locked += int64(len(b))
	}
	return nil
}

// lockError says what was refused, and by what limit.
func lockError(total, locked, limit int64, err error) error {
	what := fmt.Sprintf("--lock: the system refused to lock %s of weights in memory (%v after %s)", plan.GB(total), err, plan.GB(locked))
	if limit >= 0 && limit < total {
		return fmt.Errorf("%s: this process may lock %s; raise that limit (ulimit -l, LimitMEMLOCK= of a systemd unit, --ulimit memlock of a container) or leave out --lock", what, plan.GB(limit))
	}
	return fmt.Errorf("%s: leave out --lock", what)
}

// residence tells the model what it need not read ahead.
func (f *Files) residence(p plan.Load, o *model.Options) {
	if !f.Checkpoint.Mapped() {
		return
	}
	w := f.weights()
	o.Prefetch, o.Warmed = true, f.warmed
	o.Stays = p.Available == 0 || p.Buffers.Total()+f.size(w.dense)+f.size(w.experts) <= p.Available
}
