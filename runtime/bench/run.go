package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	ced "cedrun/cuda"
	"cedrun/runtime/config"
	"cedrun/runtime/engine"
	"cedrun/runtime/kv"
	"cedrun/runtime/machine"
	"cedrun/runtime/model"
	"cedrun/runtime/plan"
	"cedrun/runtime/sample"
)

// Options say what to measure.
type Options struct {
	Contexts []int // tokens of a prompt, and tokens that stand before a decode step
	Fill     []int // further depths for decode alone
	Modes    []model.Prefill
	Batches  []int // sequences that decode together
	Repeat   int
	Steps    int // decode steps of a run
	Seed     uint64
	Setup    engine.Setup // backend, threads, chunk; sizes are filled in
	// Progress is told before each run what it is, and how many of all are done. Optional, as is Warn.
	Progress func(what string, done, of int)
	Warn     func(what string)
}

// bench is a model under measurement.
type bench struct {
	opt     Options
	inst    *engine.Instance
	stream  *ced.Stream // of the same threads or device, for its rates
	device  *ced.Device // nil: the CPU
	prober  *machine.Prober
	collect *collector
	cases   []*bcase
	start   resident // before any case, what stays touched already
	touched int      // tokens of cache that start includes
}

// bcase is a prompt or a decode depth, with its runs.
type bcase struct {
	prefill        bool
	mode           model.Prefill
	context, batch int
	runs           []*times
	// On a device a traced run is another than a whole one: events lie around each kernel, and decode steps are no graphs.
	// plain are the runs without a trace, graphs their steps that were replayed.
	plain  []*times
	graphs int
	memory resident
}

// whole are the runs whose time is that of the case.
func (c *bcase) whole() []*times {
	if len(c.plain) > 0 {
		return c.plain
	}
	return c.runs
}

// Run measures, and closes the files. When ctx ends it, it reports what was measured until then beside the error.
func Run(ctx context.Context, f *engine.Files, opt Options) (r *Report, err error) {
	b := &bench{opt: opt, collect: newCollector()}
	if b.cases, b.opt.Setup, err = opt.cases(f.Config); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	b.opt.Setup.Trace, b.opt.Setup.Observe = b.collect.trace, b.collect.observe
	if opt.Warn == nil {
		opt.Warn = func(string) {}
	}
	if load, err := f.Plan(b.opt.Setup); err == nil {
		if load.LacksCache() {
			return nil, errors.Join(fmt.Errorf("the KV cache of %d sequences of up to %d tokens takes %s and %s of memory are free: lower --contexts, --fill or --batch",
				b.opt.Setup.Slots, b.opt.Setup.Context, plan.GB(load.Buffers.KV+load.Buffers.Windows), plan.GB(load.Available)), f.Close())
		}
		if load.Shortage != "" {
			opt.Warn(load.Shortage)
		}
	}
	if b.inst, err = engine.Start(f, b.opt.Setup); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	defer func() { err = errors.Join(err, b.inst.Close()) }()
	b.opt.Setup = b.inst.Setup
	if n := b.opt.Setup.Chunk; opt.Setup.Chunk > n {
		opt.Warn(fmt.Sprintf("--chunk %d is lowered to %d: no sequence here is longer", opt.Setup.Chunk, n))
	}
	if b.stream, err = ced.Open(b.opt.Setup.Backend, b.opt.Setup.Device, b.inst.Threads()); err != nil {
		return nil, err
	}
	defer b.stream.Close()
	if !b.stream.Host() {
		d, err := ced.DeviceInfo(b.opt.Setup.Device)
		if err != nil {
			return nil, err
		}
		b.device = &d
	}
	if b.prober, err = machine.NewProber(ctx, b.stream); err != nil {
		return nil, err
	}
	defer b.prober.Close()
	if err := b.warm(ctx); err != nil {
		return nil, err
	}
	done := 0
	for n := range opt.Repeat {
		for _, c := range b.cases {
			if opt.Progress != nil {
				opt.Progress(fmt.Sprintf("%s, run %d of %d", c, n+1, opt.Repeat), done, opt.Repeat*len(b.cases))
			}
			if err := b.prober.Probe(); err != nil {
				return nil, err
			}
			if err := b.measure(ctx, c); err != nil && ctx.Err() != nil {
				return b.report(), ctx.Err()
			} else if err != nil {
				return nil, fmt.Errorf("%s: %w", c, err)
			}
			done++
		}
	}
	return b.report(), nil
}

// measure adds a run of a case: on a device two, of which one is traced.
func (b *bench) measure(ctx context.Context, c *bcase) error {
	var whole *times
	replayed := b.inst.Load().Graphs.Replayed
	if b.device != nil {
		var err error
		if whole, err = b.run(ctx, c, false, c.context, b.opt.Steps); err != nil {
			return err
		}
		replayed = b.inst.Load().Graphs.Replayed - replayed
	}
	traced, err := b.run(ctx, c, true, c.context, b.opt.Steps)
	if err != nil {
		return err
	}
	if c.runs, c.memory = append(c.runs, traced), b.resident(); whole != nil {
		c.plain, c.graphs = append(c.plain, whole), c.graphs+int(replayed)
	}
	return nil
}

func (c *bcase) String() string {
	if c.prefill {
		return fmt.Sprintf("prefill of %d tokens (%s)", c.context, c.mode)
	}
	return fmt.Sprintf("decode of %d sequences after %d tokens", c.batch, c.context)
}

// slack is what decode may run beyond its measured steps: sequences do not all begin in the same step, and the first
// step of all together is not counted.
func slack(batch int) int { return 64 + batch }

// Sized is the setup with room for the largest of the cases.
func (o Options) Sized(c *config.Config) (engine.Setup, error) {
	_, s, err := o.cases(c)
	return s, err
}

// cases lists what is measured, and sizes the engine for the largest.
func (o Options) cases(c *config.Config) (cases []*bcase, s engine.Setup, err error) {
	limit, most, tokens := c.MaxPositions, 0, 0
	tooLong := func(n int) error {
		return fmt.Errorf("contexts take up to %d tokens with what is written after them: this model takes %d", n, limit)
	}
	for _, n := range o.Contexts {
		if n >= limit && len(o.Modes) > 0 {
			return nil, s, tooLong(n + 1)
		}
		for _, m := range o.Modes {
			cases = append(cases, &bcase{prefill: true, mode: m, context: n, batch: 1})
			most, tokens = max(most, n+1), max(tokens, n+1)
		}
	}
	depths := slices.Compact(slices.Sorted(slices.Values(slices.Concat(o.Contexts, o.Fill))))
	slots := 1
	for _, n := range depths {
		for _, batch := range o.Batches {
			cases = append(cases, &bcase{context: n, batch: batch})
			switch room := limit - (n + 1 + o.Steps + slack(0)); {
			case room < 1:
				return nil, s, tooLong(n + 1 + o.Steps + slack(1))
			case batch > room:
				return nil, s, fmt.Errorf("--batch %d: until so many sequences of %d tokens have begun, the first would pass the %d tokens that this model takes; lower --batch to %d", batch, n, limit, room)
			}
			end := n + 1 + o.Steps + slack(batch)
			slots, most, tokens = max(slots, batch), max(most, end), max(tokens, batch*pages(end))
		}
	}
	if len(cases) == 0 {
		return nil, s, errors.New("nothing to measure: give contexts and prefill modes, or batches")
	}
	s = o.Setup
	s.Context, s.Slots, s.KVTokens, s.Outputs = most, slots, pages(tokens), slots
	return cases, s, nil
}

func pages(tokens int) int { return kv.PagesFor(tokens) * kv.PageTokens }

// warm runs every kind of case once, shortly. Weights are brought into memory before, by Files.Warm.
func (b *bench) warm(ctx context.Context) error {
	some := 2 * b.opt.Setup.Chunk
	for _, c := range b.cases {
		n := min(c.context, some)
		if _, err := b.run(ctx, c, true, n, min(2, b.opt.Steps)); err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
		b.touched = max(b.touched, n*c.batch)
	}
	b.start = b.resident()
	return nil
}

// resident leaves out the buffer that bandwidth is measured on.
func (b *bench) resident() resident {
	debug.FreeOSMemory()
	r := readResident()
	r.anonymous = max(r.anonymous-b.prober.Bytes(), 0)
	return r
}

// run measures one run of a case, traced or not, with another depth and number of steps.
func (b *bench) run(ctx context.Context, c *bcase, traced bool, depth, steps int) (*times, error) {
	random := rand.New(rand.NewPCG(b.opt.Seed, uint64(depth)))
	prompt := func() []int32 {
		ids := make([]int32, depth)
		for i := range ids {
			ids[i] = int32(random.IntN(b.inst.Config.VocabSize))
		}
		return ids
	}
	// Without filters: logits of random weights are flat, and a nucleus of them is larger than any trained model's.
	q := engine.Request{Prompt: prompt(), MaxTokens: 1, Prefill: c.mode, Sampling: sample.Params{Temperature: 1, TopP: 1, Seed: b.opt.Seed}}
	if c.prefill {
		left := depth
		b.collect.start(traced, func(s engine.Step) (wanted, last bool) {
			left -= s.Prefill
			return s.Prefill > 0, left == 0
		})
		return b.collect.finish(ctx, func(ctx context.Context) error { return b.submit(ctx, []engine.Request{q}) })
	}
	q.MaxTokens = steps + slack(c.batch)
	var all []engine.Request
	for range c.batch {
		q.Prompt = append(prompt(), 0) // the last token of a filled prompt is processed
		q.Prompt[depth], q.Filled = q.Prompt[0], depth
		q.Sampling.Seed++
		all = append(all, q)
	}
	together := 0
	b.collect.start(traced, func(s engine.Step) (wanted, last bool) {
		if s.Decode != c.batch || s.Prefill > 0 {
			time.Sleep(time.Millisecond) // for the others to be submitted; steps may be shorter than that takes
			return false, false
		}
		together++
		return together > 1, together == steps+1
	})
	return b.collect.finish(ctx, func(ctx context.Context) error { return b.submit(ctx, all) })
}

// submit runs requests to their ends, or until ctx ends them.
func (b *bench) submit(ctx context.Context, all []engine.Request) error {
	var running []*engine.Generation
	var errs []error
	for _, q := range all {
		g, err := b.inst.Submit(ctx, q)
		if err != nil {
			errs = append(errs, err)
			break
		}
		running = append(running, g)
	}
	for _, g := range running {
		if r := g.Wait(); r.Finish != engine.FinishCancelled {
			errs = append(errs, r.Err)
		}
	}
	return errors.Join(errs...)
}
