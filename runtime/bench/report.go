package bench

import (
	"cmp"
	"math"
	"slices"

	ced "cedrun/cuda"
	"cedrun/runtime/machine"
	"cedrun/runtime/model"
	"cedrun/runtime/plan"
)

// Report is what was measured.
type Report struct {
	Machine     Machine `json:"machine"`
	Interrupted bool    `json:"interrupted"` // not all cases and runs are in it
	Rows        []Row   `json:"rows"`
}

// Machine is where, and its limits: medians over the run, all threads together, or those of the device.
type Machine struct {
	Model   string `json:"model"`
	Backend string `json:"backend"`
	Device  string `json:"device,omitempty"`
	// Simulated: the device is none, and no time or rate here says anything.
	Simulated bool    `json:"simulated,omitempty"`
	ISA       string  `json:"isa"` // of the kernels; of a device its compute capability
	Threads   int     `json:"threads"`
	Chunk     int     `json:"chunk"` // prompt tokens of a step
	Repeat    int     `json:"repeat"`
	Read      float64 `json:"read_gbps"`
	BF16      float64 `json:"bf16_gflops"`
	F32       float64 `json:"f32_gflops"`
	// Spread is how far apart the measurements of a rate were: largest over smallest, less 1. NotQuiet is a spread so
	// large that something else ran, and the figures are unreliable.
	Spread   float64 `json:"probe_spread"`
	NotQuiet bool    `json:"not_quiet"`
	// Growth is how much the process grew per token of the largest decode case, Planned what the cache format says.
	Growth  float64 `json:"bytes_per_token,omitempty"`
	Planned int     `json:"cache_bytes_per_token"`
}

// Row is the median run of a case: a prompt, or a decode step.
type Row struct {
	Phase   string  `json:"phase"` // prefill or decode
	Mode    string  `json:"mode"`  // of prefill
	Context int     `json:"context"`
	Batch   int     `json:"batch"`
	Rate    float64 `json:"tok_s"` // of all sequences together
	Fastest float64 `json:"tok_s_best"`
	Slowest float64 `json:"tok_s_worst"`
	Runs    int     `json:"runs"`
	Steps   int     `json:"steps"`
	Seconds float64 `json:"seconds"` // of the prompt, or of a decode step
	// Traced is the time that Parts are of, on a device: of the median run with events around each kernel, in which decode steps
	// are no graphs. Graphs is the share of the steps of all other runs, whose times these are, that were.
	Traced float64 `json:"traced_seconds,omitempty"`
	Graphs float64 `json:"graphs,omitempty"`

	// Bytes and FLOPs of the prompt or step, and the least time that they take at the machine's limits.
	plan.Work
	Limit       float64 `json:"limit_seconds"`
	OfLimit     float64 `json:"fraction_of_limit"`
	OfBandwidth float64 `json:"fraction_of_bandwidth"` // bytes over the read bandwidth, of the time
	OfBF16      float64 `json:"fraction_of_bf16"`      // FLOPs over the BF16 rate, of the time
	Accounted   float64 `json:"accounted"`             // share of the time of Parts that its rows but the last cover
	Anonymous   int64   `json:"rss_anonymous"`         // resident bytes of the process itself, after this run and all before
	File        int64   `json:"rss_file"`              // and of mapped weights
	Parts       []Part  `json:"parts"`
}

// Part is a row of the table of a step's time. The last ones are the host's: between kernels, scheduler, sampling, and
// what nothing accounts for.
type Part struct {
	Name    string  `json:"part"`
	Seconds float64 `json:"seconds"`
	Share   float64 `json:"share"`
	plan.Work
	Limit   float64  `json:"limit_seconds"`
	OfLimit float64  `json:"fraction_of_limit"`
	Bound   string   `json:"bound,omitempty"`
	Kernels []Kernel `json:"kernels,omitempty"`
}

// Kernel is a kernel's share in a part.
type Kernel struct {
	Name    string  `json:"kernel"`
	Calls   float64 `json:"calls"`
	Seconds float64 `json:"seconds"`
	Share   float64 `json:"share"` // of the step
}

// Names of the rows that no kernel belongs to.
const (
	HostPart    = "host between kernels"
	UnknownPart = "unaccounted"
)

func (b *bench) report() *Report {
	c, r := b.inst.Config, b.prober.Rates()
	out := &Report{Machine: Machine{
		Model: b.inst.Source.Name(), Backend: b.opt.Setup.Backend.String(), ISA: ced.ISA(), Threads: b.inst.Threads(),
		Chunk: b.opt.Setup.Chunk, Repeat: b.opt.Repeat, Read: r.Read / 1e9, BF16: r.BF16 / 1e9, F32: r.F32 / 1e9,
		Spread: b.prober.Spread(), Planned: c.BytesPerToken(), Growth: b.growth(),
	}}
	if d := b.device; d != nil {
		out.Machine.Device, out.Machine.ISA, out.Machine.Simulated = d.Name, "compute capability "+d.Capability(), ced.Simulated
		out.Machine.Growth = 0 // the device's memory is not this process's
	}
	out.Machine.NotQuiet = out.Machine.Spread > quietSpread
	for _, c := range b.cases {
		out.Interrupted = out.Interrupted || len(c.runs) < b.opt.Repeat
		if len(c.runs) == 0 {
			continue
		}
		out.Rows = append(out.Rows, b.row(c, r))
	}
	return out
}

// quietSpread is how far measurements of a rate of a quiet machine are apart at most.
const quietSpread = 0.3

// growthTokens are enough for growth to be told from the rest of the process.
const growthTokens = 1 << 14

// growth is the memory that the largest decode case took, per token beyond those whose memory was touched before.
func (b *bench) growth() float64 {
	most, grown := 0, int64(0)
	for _, c := range b.cases {
		if n := c.context * c.batch; !c.prefill && len(c.runs) > 0 && n > most {
			most, grown = n, c.memory.anonymous-b.start.anonymous
		}
	}
	if most-b.touched < growthTokens {
		return 0
	}
	return math.Round(float64(grown) / float64(most-b.touched))
}

// budget is the work of a case's prompt or step, in whole bytes and FLOPs.
func (b *bench) budget(c *bcase) (w *plan.Budget) {
	cfg := b.inst.Config
	if c.prefill {
		p := model.NewPlan(cfg, c.mode, c.context)
		w = plan.PromptBudget(cfg, plan.Thresholds(p), c.context, b.opt.Setup.Chunk)
	} else {
		w = plan.DecodeBudget(cfg, c.batch, c.context+b.opt.Steps/2)
	}
	for i, p := range w { // of experts it is an expectation
		w[i] = plan.Work{Bytes: math.Round(p.Bytes), FLOPs: math.Round(p.FLOPs)}
	}
	return w
}

func (b *bench) row(c *bcase, r machine.Rates) Row {
	runs, t := c.sorted(c.whole())
	tokens := float64(c.batch)
	if c.prefill {
		tokens = float64(c.context)
	}
	row := Row{
		Phase: "decode", Context: c.context, Batch: c.batch, Runs: len(runs), Steps: t.steps, Seconds: t.each(c),
		Rate: tokens / t.each(c), Fastest: tokens / runs[0].each(c), Slowest: tokens / runs[len(runs)-1].each(c),
		Anonymous: c.memory.anonymous, File: c.memory.file,
	}
	if c.prefill {
		row.Phase, row.Mode = "prefill", c.mode.String()
	}
	budget, limits := b.budget(c), plan.Limits{Read: r.Read, Multiply: r.Multiply(), F32: r.F32}
	row.Work, row.Limit = budget.Total(), budget.Least(limits)
	row.OfLimit, row.OfBandwidth, row.OfBF16 = row.Limit/row.Seconds, row.Bytes/r.Read/row.Seconds, row.FLOPs/r.BF16/row.Seconds
	took := row.Seconds
	if len(c.plain) > 0 {
		steps := 0
		for _, x := range c.plain {
			steps += x.steps
		}
		_, t = c.sorted(c.runs)
		took = t.each(c)
		row.Traced = took
		if !c.prefill { // steps that are not counted are replayed too
			row.Graphs = min(1, float64(c.graphs)/float64(steps))
		}
	}
	row.Parts = t.table(took/t.took.Seconds(), took, budget, limits)
	row.Accounted = 1 - row.Parts[len(row.Parts)-1].Share
	return row
}

// sorted are runs, the fastest first, and the median one.
func (c *bcase) sorted(runs []*times) ([]*times, *times) {
	all := slices.SortedFunc(slices.Values(runs), func(x, y *times) int { return cmp.Compare(x.each(c), y.each(c)) })
	return all, all[(len(all)-1)/2]
}

// each is the time of a prompt or of a step.
func (t *times) each(c *bcase) float64 {
	if c.prefill {
		return t.took.Seconds()
	}
	return t.took.Seconds() / float64(t.steps)
}

// table splits a time of all seconds; scale makes it of the time of all steps.
func (t *times) table(scale, all float64, budget *plan.Budget, limits plan.Limits) (rows []Part) {
	between, left := 0., all
	add := func(p Part) {
		if p.Share = p.Seconds / all; p.Limit > 0 {
			p.OfLimit = p.Limit / p.Seconds
		}
		rows, left = append(rows, p), left-p.Seconds
	}
	for p := range plan.PartScheduler {
		x := &t.parts[p]
		calls := x.calls()
		between += scale * (x.section - calls).Seconds()
		if calls == 0 {
			continue
		}
		work := budget[p]
		row := Part{Name: p.String(), Seconds: scale * calls.Seconds(), Kernels: x.list(scale, all)}
		row.Limit, row.Bound = limits.Least(p, work)
		if p == plan.PartExperts { // its kernel runs the shared expert too
			shared := budget[plan.PartShared]
			least, _ := limits.Least(plan.PartShared, shared)
			row.Limit, work = row.Limit+least, plan.Work{Bytes: work.Bytes + shared.Bytes, FLOPs: work.FLOPs + shared.FLOPs}
		}
		row.Work = work
		add(row)
	}
	add(Part{Name: HostPart, Seconds: between})
	for p := plan.PartScheduler; p < plan.NumParts; p++ {
		x := &t.parts[p]
		add(Part{Name: p.String(), Seconds: scale * x.section.Seconds(), Kernels: x.list(scale, all)})
	}
	add(Part{Name: UnknownPart, Seconds: left})
	return rows
}

// list is the kernels of a part, the slowest first.
func (p *part) list(scale, all float64) (out []Kernel) {
	for name, k := range p.kernels {
		s := scale * k.took.Seconds()
		out = append(out, Kernel{Name: name, Calls: scale * float64(k.calls), Seconds: s, Share: s / all})
	}
	slices.SortFunc(out, func(x, y Kernel) int {
		return cmp.Or(cmp.Compare(y.Seconds, x.Seconds), cmp.Compare(x.Name, y.Name))
	})
	return out
}
