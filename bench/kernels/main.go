// Command kernels times every kernel at the shapes of a model, the released one by default, against what this machine
// allows: bytes over its read bandwidth or FLOPs over its multiply rate, measured in the same run.
//
//	go run ./bench/kernels                              # the release's shapes
//	go run ./bench/kernels --model DIR --rows 1,64      # those of a checkpoint
//	go run ./bench/kernels --kernel engram_gather --json
//
// Weights are read from a gigabyte in turn, so they come from memory. Up to 8 rows are decode steps of as many sequences,
// more are a prompt's chunk. Activations count as bytes too, but mostly stay in caches: kernels that only move them can be
// faster than memory, which shows as more than 100 % of the limit.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	ced "cedrun/cuda"
	"cedrun/runtime/config"
	"cedrun/runtime/machine"
	"cedrun/runtime/plan"
)

type options struct {
	model   string
	rows    []int
	kernel  string
	threads int
	budget  time.Duration
	json    bool
	arena   int
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "kernels:", err)
		os.Exit(1)
	}
}

func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("kernels", flag.ContinueOnError)
	rows := "1,8,64,512"
	f.StringVar(&o.model, "model", "testdata/release", "take shapes from config.json in `DIR`")
	f.StringVar(&rows, "rows", rows, "measure `N,...` rows")
	f.StringVar(&o.kernel, "kernel", "", "measure kernels whose name holds `TEXT` only")
	f.IntVar(&o.threads, "threads", 0, "use `N` threads; 0 = one per core")
	f.DurationVar(&o.budget, "time", 200*time.Millisecond, "measure each call for about `T`, three times if it is not slow")
	f.IntVar(&o.arena, "arena", 1<<30, "read weights from `BYTES` in turn: more than the caches hold")
	f.BoolVar(&o.json, "json", false, "print one JSON object")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	for _, x := range strings.Split(rows, ",") {
		n, err := strconv.Atoi(x)
		if err != nil || n < 1 || n > 4096 {
			return o, fmt.Errorf("--rows %q: give numbers from 1 to 4096, with commas between", x)
		}
		o.rows = append(o.rows, n)
	}
	return o, nil
}

// result is one line of the table.
type result struct {
	Kernel  string  `json:"kernel"`
	What    string  `json:"what,omitempty"`
	Rows    int     `json:"rows"`
	Seconds float64 `json:"seconds"` // median
	Bytes   float64 `json:"bytes"`   // weights, cache and table rows, activations
	FLOPs   float64 `json:"flops"`
	Limit   float64 `json:"limit_seconds"`
	OfLimit float64 `json:"fraction_of_limit"`
	Bound   string  `json:"bound"`
	Single  float64 `json:"seconds_one_thread,omitempty"` // 0 = not measured, for slow calls
}

// report is what a run prints.
type report struct {
	Machine struct {
		ISA     string  `json:"isa"`
		Threads int     `json:"threads"`
		Read    float64 `json:"read_gbps"`
		BF16    float64 `json:"bf16_gflops"`
		F32     float64 `json:"f32_gflops"`
	} `json:"machine"`
	Results []result `json:"kernels"`
}

func run(args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	c, err := config.Load(filepath.Join(o.model, "config.json"))
	if err != nil {
		return err
	}
	b := &bench{options: o, out: out}
	if b.all, err = ced.Open(ced.CPU, 0, o.threads); err != nil {
		return err
	}
	defer b.all.Close()
	if b.one, err = ced.Open(ced.CPU, 0, 1); err != nil {
		return err
	}
	defer b.one.Close()
	if b.prober, err = machine.NewProber(context.Background(), b.all); err != nil {
		return err
	}
	defer b.prober.Close()
	return b.run(c)
}

// bench runs cases on all threads and on one: host streams share their memory.
type bench struct {
	options
	out      io.Writer
	all, one *ced.Stream
	prober   *machine.Prober
}

func (b *bench) run(c *config.Config) error {
	r, err := newRig(b.all, c, b.arena)
	if err != nil {
		return err
	}
	var timed []timing
	for _, prepare := range cases() {
		for _, n := range b.rowsOf(r, prepare) {
			t, err := b.measure(r, prepare, n)
			if err != nil {
				return err
			}
			timed = append(timed, t...)
		}
	}
	return b.print(b.summarise(timed))
}

// gathers of behaviour 18: 48 and 144 table rows of the release are 2 and 6 tokens.
var gathers = []int{2, 6}

func (b *bench) rowsOf(r *rig, p prepare) []int {
	c, ok := p(r, 1)
	defer r.reset()
	if ok && !strings.Contains(c.kernel, b.kernel) {
		return nil
	}
	if c.kernel == "engram_gather" {
		return slices.Compact(slices.Sorted(slices.Values(slices.Concat(b.rows, gathers))))
	}
	return b.rows
}

type timing struct {
	call
	seconds, single float64
}

// measure times a case; none when the geometry has no such call.
func (b *bench) measure(r *rig, p prepare, rows int) ([]timing, error) {
	defer r.reset()
	if err := b.prober.Probe(); err != nil {
		return nil, err
	}
	t := timing{}
	for _, x := range []struct {
		s       *ced.Stream
		seconds *float64
	}{{b.all, &t.seconds}, {b.one, &t.single}} {
		if t.seconds > slow { // threads share such a call evenly; one thread alone would take long
			break
		}
		r.s = x.s
		c, ok := p(r, rows)
		if !ok || r.err != nil {
			return nil, r.err
		}
		t.call = c
		var err error
		if *x.seconds, err = b.time(c.run); err != nil {
			return nil, fmt.Errorf("%s %s, %d rows: %w", c.kernel, c.what, rows, err)
		}
		r.reset()
	}
	return []timing{t}, nil
}

const (
	slow     = 0.1             // seconds
	patience = 2 * time.Second // for the third and fourth call
)

// time is the median of some calls, after one that is not counted.
func (b *bench) time(run func() error) (float64, error) {
	var times []float64
	for began := time.Now(); len(times) < 2 || len(times) < 4 && time.Since(began) < patience || len(times) < 1000 && time.Since(began) < b.budget; {
		at := time.Now()
		if err := run(); err != nil {
			return 0, err
		}
		times = append(times, time.Since(at).Seconds())
	}
	return median(times[1:]), nil
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[(len(s)-1)/2]
}

// wake is about what it takes threads to start on a call and to end it; shorter limits are not reached.
const wake = 5e-6

func (b *bench) summarise(timed []timing) *report {
	out, rates := &report{}, b.prober.Rates()
	m := &out.Machine
	m.ISA, m.Threads = ced.ISA(), b.all.Threads()
	m.Read, m.BF16, m.F32 = rates.Read/1e9, rates.BF16/1e9, rates.F32/1e9
	limits := plan.Limits{Read: rates.Read, Multiply: rates.Multiply(), F32: rates.F32}
	for _, t := range timed {
		x := result{Kernel: t.kernel, What: t.what, Rows: t.rows, Seconds: t.seconds, Single: t.single, Bytes: float64(t.activations)}
		for _, w := range t.work {
			x.Bytes, x.FLOPs = x.Bytes+w.Bytes()+w.Lookup, x.FLOPs+w.FLOPs()
		}
		part := plan.PartProjections
		if t.kernel == "mhc_mix" || t.kernel == "mhc_border" {
			part = plan.PartMixing
		}
		x.Limit, x.Bound = limits.Least(part, plan.Work{Bytes: x.Bytes, FLOPs: x.FLOPs})
		if x.OfLimit = x.Limit / x.Seconds; x.Limit < wake && x.OfLimit < 0.5 {
			x.Bound = plan.BoundLatency
		}
		out.Results = append(out.Results, x)
	}
	return out
}

func (b *bench) print(r *report) error {
	if b.json {
		return json.NewEncoder(b.out).Encode(r)
	}
	m := &r.Machine
	fmt.Fprintf(b.out, "%s, %d threads; this machine reads %.1f GB/s, multiplies %.0f GFLOP/s in BF16, %.0f GFLOP/s in F32\n\n", m.ISA, m.Threads, m.Read, m.BF16, m.F32)
	fmt.Fprintf(b.out, "%-14s %-34s %5s %10s %9s %9s %8s %8s %9s %-8s %8s\n", "kernel", "", "rows", "us", "MB", "MFLOP", "GB/s", "GFLOP/s", "of limit", "bound", "threads")
	for _, x := range r.Results {
		threads := ""
		if x.Single > 0 {
			threads = fmt.Sprintf("%.2fx", x.Single/x.Seconds)
		}
		if _, err := fmt.Fprintf(b.out, "%-14s %-34s %5d %10.1f %9.3f %9.4g %8.2f %8.1f %7.1f %% %-8s %8s\n", x.Kernel, x.What, x.Rows, 1e6*x.Seconds, x.Bytes/1e6, x.FLOPs/1e6,
			x.Bytes/x.Seconds/1e9, x.FLOPs/x.Seconds/1e9, 100*x.OfLimit, x.Bound, threads); err != nil {
			return err
		}
	}
	return nil
}
