package bench

import (
	"time"

	ced "cedrun/cuda"
	"cedrun/runtime/engine"
	"cedrun/runtime/plan"
)

// traceEvents is room for a step of a model of some hundred layers.
const traceEvents = 1 << 15

// times is where the time of steps went.
type times struct {
	steps   int
	took    time.Duration
	parts   [plan.NumParts]part
	dropped int
}

type part struct {
	section time.Duration // kernels and the host between them
	kernels map[string]*kernel
}

type kernel struct {
	calls int
	took  time.Duration
}

// calls is the time in kernels and copies.
func (p *part) calls() (d time.Duration) {
	for _, k := range p.kernels {
		d += k.took
	}
	return d
}

// collector gathers the steps of a run that a case wants. The engine's goroutine calls observe.
type collector struct {
	trace *ced.Trace
	names map[string]plan.Part
	want  func(engine.Step) bool // nil: none
	times *times
	left  int           // rows of the run that are still to come
	done  chan struct{} // closed after the last
}

func newCollector() *collector {
	c := &collector{trace: ced.NewTrace(traceEvents), names: map[string]plan.Part{}}
	for p := range plan.NumParts {
		c.names[p.String()] = p
	}
	return c
}

// start makes the collector gather the steps that want accepts, of a run of so many rows. The engine must be idle.
func (c *collector) start(rows int, want func(engine.Step) bool) {
	c.want, c.times, c.left, c.done = want, &times{}, rows, make(chan struct{})
}

// finish waits until the engine has told of the last row, which is after its token.
func (c *collector) finish() *times {
	<-c.done
	return c.times
}

func (c *collector) observe(s engine.Step) {
	defer c.trace.Reset()
	if c.left -= s.Prefill + s.Decode; c.left == 0 {
		defer close(c.done)
	}
	if c.want == nil || !c.want(s) {
		return
	}
	t := c.times
	t.steps++
	t.took += s.Took
	t.dropped += c.trace.Dropped()
	for _, e := range c.trace.Events() {
		p := &t.parts[c.names[e.Part]]
		if e.Kernel == "" {
			p.section += e.Took
			continue
		}
		if p.kernels == nil {
			p.kernels = map[string]*kernel{}
		}
		k := p.kernels[e.Kernel]
		if k == nil {
			k = &kernel{}
			p.kernels[e.Kernel] = k
		}
		k.calls++
		k.took += e.Took
	}
}
