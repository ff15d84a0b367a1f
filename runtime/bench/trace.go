package bench

import (
	"context"
	"errors"
	"sync"
	"time"

	ced "cedrun/cuda"
	"cedrun/runtime/engine"
	"cedrun/runtime/plan"
)

// traceEvents is room for a step of a model of some hundred layers.
const traceEvents = 1 << 15

// times is where the time of steps went. Without a trace, parts are empty.
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
	want  func(engine.Step) (wanted, last bool) // nil: none
	times *times
	// done is closed after the last step, release when the requests have been told to end.
	done, release chan struct{}
}

func newCollector() *collector {
	c := &collector{trace: ced.NewTrace(traceEvents), names: map[string]plan.Part{}}
	for p := range plan.NumParts {
		c.names[p.String()] = p
	}
	return c
}

// start makes the collector gather the steps that are wanted, until the last, with or without their traces. The engine must
// be idle.
func (c *collector) start(traced bool, want func(engine.Step) (wanted, last bool)) {
	c.trace.Pause(!traced)
	c.want, c.times, c.done, c.release = want, &times{}, make(chan struct{}), make(chan struct{})
}

// finish runs requests until the last step is gathered, and ends them there.
func (c *collector) finish(ctx context.Context, submit func(context.Context) error) (*times, error) {
	inner, cancel := context.WithCancel(ctx)
	end := sync.OnceFunc(func() {
		cancel()
		close(c.release)
	})
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- submit(inner) }()
	select {
	case <-c.done:
	case err := <-ended:
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nil, err
		}
		select {
		case <-c.done: // a token is told of before its step
		case <-time.After(time.Second):
			return nil, errors.New("the sequences never ran together for long enough")
		}
		ended <- nil
	}
	end()
	return c.times, <-ended
}

// observe is called by the engine after each step. After the last of a run it holds the engine until finish has ended
// the requests.
func (c *collector) observe(s engine.Step) {
	defer c.trace.Reset()
	if c.want == nil {
		return
	}
	wanted, last := c.want(s)
	if wanted {
		c.add(s)
	}
	if last {
		c.want = nil
		release := c.release
		close(c.done)
		<-release
	}
}

// add adds a step's events to the run.
func (c *collector) add(s engine.Step) {
	t := c.times
	t.steps++
	t.took += s.Took
	t.dropped += c.trace.Dropped()
	began := c.trace.At(s.Began)
	for _, e := range c.trace.Events() {
		if e.Start < began { // of requests that ended without a step
			continue
		}
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
