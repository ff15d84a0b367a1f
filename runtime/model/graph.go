package model

import (
	"fmt"
	"sync/atomic"

	ced "cedrun/cuda"
	"cedrun/runtime/plan"
)

// graphs are the decode steps that a device replays, one for every bucket of rows. Their kernels have the addresses of
// step buffers, caches and weights, which stay where they are while the model is open, and numbers that the model and the
// bucket fix. All else is data: row sets, closing groups, Engram rows and the rows that are wanted are uploaded before the
// launch, page tables and starts of windows when they change.
type graphs struct {
	steps                             map[uint32]*ced.Graph // nil: the device refused to capture it
	captured, replayed, plain, failed atomic.Uint64
}

// GraphUse counts captured decode steps.
type GraphUse struct {
	Captured uint64 // buckets
	Replayed uint64 // steps that were one launch
	Plain    uint64 // decode steps that were not
	Failed   uint64 // captures and launches that the device refused: such steps run plainly
}

// Graphs can be called from any goroutine.
func (m *Model) Graphs() GraphUse {
	g := &m.graphs
	return GraphUse{g.captured.Load(), g.replayed.Load(), g.plain.Load(), g.failed.Load()}
}

// close waits for the launches and forgets all graphs.
func (g *graphs) close(s *ced.Stream) {
	if len(g.steps) > 0 {
		_ = s.Sync() // a device that is lost runs nothing
	}
	for _, x := range g.steps {
		x.Close()
	}
	clear(g.steps)
}

// replay runs a decode step by the graph of its bucket. The bucket's first one runs plainly, which loads what its kernels
// need, and is captured after that.
func (p *pass) replay() (n int, err error) {
	if err := p.uploadStep(); err != nil {
		return 0, err
	}
	bucket := p.in.max
	g, known := p.graphs.steps[bucket]
	if g != nil {
		if err := p.launch(g); err == nil {
			return p.in.count, nil
		} else {
			p.refused(bucket, fmt.Errorf("replay a decode step of %d rows: %w", bucket, err))
		}
	}
	p.graphs.plain.Add(1)
	if n, err = p.run(); err != nil || known {
		return n, err
	}
	p.capture(bucket)
	return n, nil
}

// uploadStep puts into stream memory what the host knows of a decode step.
func (p *pass) uploadStep() error {
	for _, l := range p.cfg.KVSources {
		if _, _, err := p.closing(l, p.schedule[l].Ratio); err != nil {
			return fmt.Errorf("layer %d: closing groups: %w", l, err)
		}
	}
	p.mark(plan.PartEngram, -1)
	for _, l := range p.cfg.Engram.Layers {
		if err := p.uploadLookups(l, p.w.layers[l].engram); err != nil {
			return fmt.Errorf("layer %d: engram: %w", l, err)
		}
	}
	p.mark(plan.PartEmbedding, -1)
	if _, _, _, err := p.wanted(); err != nil {
		return fmt.Errorf("head: %w", err)
	}
	p.uploaded = true
	return nil
}

func (p *pass) launch(g *ced.Graph) error {
	if err := p.s.Launch(g); err != nil {
		return err
	}
	p.graphs.replayed.Add(1)
	for l := range p.schedule {
		p.choose(l)
	}
	return nil
}

// capture records the step that has just run. What it leaves of the pass is as the step left it.
func (p *pass) capture(bucket uint32) {
	p.capturing = true
	g, err := p.s.Capture(func() error {
		_, err := p.run()
		return err
	})
	p.capturing = false
	if err != nil {
		p.refused(bucket, fmt.Errorf("capture a decode step of %d rows: %w", bucket, err))
		return
	}
	p.graphs.steps[bucket] = g
	p.graphs.captured.Add(1)
}

// refused gives up a bucket's graph. The steps go on without.
func (p *pass) refused(bucket uint32, why error) {
	p.graphs.steps[bucket].Close()
	p.graphs.steps[bucket] = nil
	if p.graphs.failed.Add(1) == 1 && p.opt.Warn != nil {
		p.opt.Warn(why.Error() + "; such steps run kernel by kernel: the same results, later")
	}
}
