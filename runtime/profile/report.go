package profile

import (
	"cmp"
	"slices"
	"time"

	ced "cedrun/cuda"
	"cedrun/runtime/machine"
	"cedrun/runtime/plan"
)

// Report is where the time of a recording's steps went.
type Report struct {
	Subject
	Limits *Limits `json:"limits,omitempty"` // of the machine, measured in the same run
	// Recorded is the time from the first step's begin to the last one's end, Outside what was in no step.
	Recorded time.Duration `json:"recorded_ns"`
	Outside  time.Duration `json:"outside_steps_ns"`
	Dropped  int           `json:"dropped_events"`
	LeftOut  int           `json:"left_out_steps"`
	Used     Used          `json:"process"`
	Phases   []Phase       `json:"phases"`
}

// Subject says what ran, and how.
type Subject struct {
	Model   string `json:"model"`
	Backend string `json:"backend"`
	Device  string `json:"device,omitempty"`
	// Simulated: the device is none, and no time or rate of it says anything.
	Simulated bool   `json:"simulated,omitempty"`
	ISA       string `json:"isa"` // of a device its compute capability
	Threads   int    `json:"threads"`
	Chunk     int    `json:"chunk"`          // prompt tokens of a step
	Mode      string `json:"mode,omitempty"` // of prefill; empty: each request's own
	PID       int    `json:"pid,omitempty"`  // of the process that was attached to
}

// Limits are the machine's rates, all threads together, or the device's.
type Limits struct {
	Read   float64 `json:"read_gbps"`
	BF16   float64 `json:"bf16_gflops"`
	F32    float64 `json:"f32_gflops"`
	Spread float64 `json:"probe_spread"` // how far apart their measurements were: largest over smallest, less 1
}

// NewLimits are what a prober measured.
func NewLimits(p *machine.Prober) *Limits {
	r := p.Rates()
	return &Limits{Read: r.Read / 1e9, BF16: r.BF16 / 1e9, F32: r.F32 / 1e9, Spread: p.Spread()}
}

// rates are what a part's least time follows from.
func (l *Limits) rates() plan.Limits {
	return plan.Limits{Read: 1e9 * l.Read, Multiply: 1e9 * max(l.BF16, l.F32), F32: 1e9 * l.F32}
}

// Names of phases.
const (
	Prefill = "prefill"
	Decode  = "decode"
	Mixed   = "mixed" // steps with rows of both
)

// Phase is the steps of a kind, together. Its rows and Unaccounted sum to Took.
type Phase struct {
	Name        string        `json:"phase"`
	Tokens      int           `json:"tokens"` // rows that its steps ran
	Steps       int           `json:"steps"`
	Took        time.Duration `json:"took_ns"`
	Rate        float64       `json:"tok_s"`
	Rows        []Row         `json:"rows"` // by layer, part and kernel, as they run
	Unaccounted time.Duration `json:"unaccounted_ns"`
	Accounted   float64       `json:"accounted"` // share of Took that is in Rows
	Plain       *Plain        `json:"untraced,omitempty"`
}

// Plain is what a phase's steps took without a trace, beside a device's, whose events and launches one by one cost time.
type Plain struct {
	Steps  int           `json:"steps"`
	Took   time.Duration `json:"took_ns"`
	Graphs int           `json:"graphs"` // steps that were one launch
}

// Host is the kernel of the rows that hold the host's time between kernels.
const Host = "host"

// Row is a kernel's time in a part of a layer, or what the host took there between kernels.
type Row struct {
	Layer  int           `json:"layer"` // -1: outside layers
	Part   string        `json:"part"`
	Kernel string        `json:"kernel"`
	Calls  int           `json:"calls"`
	Took   time.Duration `json:"took_ns"`
	Share  float64       `json:"share"` // of the phase
	Bound
}

// Bound is how close work came to what the machine allows; zero where the work is not counted, or no limits are known.
type Bound struct {
	plan.Work
	Limit   float64 `json:"limit_seconds"`
	OfLimit float64 `json:"fraction_of_limit"`
	By      string  `json:"bound,omitempty"` // memory or multiply
}

// Works is the work of each phase's steps, where it is known.
type Works map[string]plan.Sites

// New makes a report. Without limits, works only tell bytes and FLOPs.
func New(s Subject, rec *Recording, works Works, limits *Limits) *Report {
	r := &Report{Subject: s, Limits: limits, Dropped: rec.Dropped, LeftOut: rec.LeftOut, Used: rec.Used}
	kinds := map[string]*tally{}
	inside := time.Duration(0)
	for i := range rec.Steps {
		step := &rec.Steps[i]
		name := phaseOf(step)
		if kinds[name] == nil {
			kinds[name] = &tally{rows: map[site]*Row{}}
		}
		kinds[name].add(step)
		inside += step.Took
	}
	if n := len(rec.Steps); n > 0 {
		r.Recorded = rec.Steps[n-1].end() - rec.Steps[0].Began
		r.Outside = r.Recorded - inside
	}
	for _, name := range []string{Prefill, Mixed, Decode} {
		if k := kinds[name]; k != nil {
			r.Phases = append(r.Phases, k.phase(name, works[name], limits))
		}
	}
	return r
}

// Compare adds what the same request took without a trace.
func (r *Report) Compare(plain *Recording) {
	for i := range r.Phases {
		x, p := &r.Phases[i], &Plain{}
		for j := range plain.Steps {
			if s := &plain.Steps[j]; phaseOf(s) == x.Name {
				p.Steps, p.Took = p.Steps+1, p.Took+s.Took
			}
		}
		if x.Name == Decode {
			p.Graphs = int(plain.Graphs)
		}
		if p.Steps > 0 {
			x.Plain = p
		}
	}
}

func phaseOf(s *Step) string {
	switch {
	case s.Prefill > 0 && s.Decode > 0:
		return Mixed
	case s.Prefill > 0:
		return Prefill
	}
	return Decode
}

type site struct {
	layer        int
	part, kernel string
}

// tally sums the steps of a phase.
type tally struct {
	tokens, steps int
	took          time.Duration
	rows          map[site]*Row
	order         []*Row // by first appearance
}

func (t *tally) row(e *ced.Event, kernel string) *Row {
	at := site{e.Layer, e.Part, kernel}
	r := t.rows[at]
	if r == nil {
		r = &Row{Layer: e.Layer, Part: e.Part, Kernel: kernel}
		t.rows[at] = r
		t.order = append(t.order, r)
	}
	return r
}

func (t *tally) add(s *Step) {
	t.tokens += s.Prefill + s.Decode
	t.steps++
	t.took += s.Took
	for i := range s.Events {
		e := &s.Events[i]
		if e.Kernel == "" { // its kernels were taken from its host row before
			t.row(e, Host).Took += e.Took
			continue
		}
		r := t.row(e, e.Kernel)
		r.Calls++
		r.Took += e.Took
		t.row(e, Host).Took -= e.Took
	}
}

func (t *tally) phase(name string, works plan.Sites, limits *Limits) Phase {
	p := Phase{Name: name, Tokens: t.tokens, Steps: t.steps, Took: t.took, Unaccounted: t.took}
	slices.SortStableFunc(t.order, func(a, b *Row) int { // a layer's rows together, the host's last in its part
		return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(partOf[a.Part], partOf[b.Part]), cmp.Compare(last(a), last(b)))
	})
	for _, r := range t.order {
		p.Unaccounted -= r.Took
		if t.took > 0 {
			r.Share = float64(r.Took) / float64(t.took)
		}
		if part, ok := partOf[r.Part]; ok {
			r.Bound = newBound(works[plan.Site{Layer: r.Layer, Part: part, Kernel: r.Kernel}], part, r.Took, limits)
		}
		p.Rows = append(p.Rows, *r)
	}
	if t.took > 0 {
		p.Rate = float64(t.tokens) / t.took.Seconds()
		p.Accounted = 1 - float64(p.Unaccounted)/float64(t.took)
	}
	return p
}

func newBound(w plan.Work, part plan.Part, took time.Duration, limits *Limits) Bound {
	b := Bound{Work: w}
	if limits != nil && w != (plan.Work{}) {
		b.Limit, b.By = limits.rates().Least(part, w)
		if took > 0 {
			b.OfLimit = b.Limit / took.Seconds()
		}
	}
	return b
}

// partOf finds a part by the name that traces give it.
var partOf = func() map[string]plan.Part {
	all := map[string]plan.Part{}
	for p := range plan.NumParts {
		all[p.String()] = p
	}
	return all
}()

// place orders rows: what comes before the layers, the layers, and what comes after.
func place(r *Row) int {
	const after = 1 << 30
	if p := partOf[r.Part]; r.Layer < 0 && p >= plan.PartHead {
		return after
	}
	return r.Layer
}

func last(r *Row) int {
	if r.Kernel == Host {
		return 1
	}
	return 0
}
