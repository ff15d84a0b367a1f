package bench

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"math"
	"strings"
	"testing"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
	"cedrun/runtime/engine"
	"cedrun/runtime/model"
)

func measure(t *testing.T, name string, opt Options) *Report {
	t.Helper()
	f, err := engine.OpenFiles(engine.Source{Dir: "../../testdata/mini/" + name}, checkpoint.Options{}, "")
	if err != nil {
		t.Fatal(err)
	}
	opt.Setup.Backend, opt.Setup.NoSelfTest = ced.CPU, true
	r, err := Run(context.Background(), f, opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRowsComeInOrderAndTheirPartsSumToTheirTime(t *testing.T) {
	r := measure(t, "base", Options{
		Contexts: []int{20, 40}, Fill: []int{90}, Modes: []model.Prefill{model.Exact, model.Replay}, Batches: []int{1, 3}, Repeat: 2, Steps: 4,
		Setup: engine.Setup{Chunk: 16},
	})
	want := []Row{
		{Phase: "prefill", Mode: "exact", Context: 20, Batch: 1}, {Phase: "prefill", Mode: "replay", Context: 20, Batch: 1},
		{Phase: "prefill", Mode: "exact", Context: 40, Batch: 1}, {Phase: "prefill", Mode: "replay", Context: 40, Batch: 1},
		{Phase: "decode", Context: 20, Batch: 1}, {Phase: "decode", Context: 20, Batch: 3},
		{Phase: "decode", Context: 40, Batch: 1}, {Phase: "decode", Context: 40, Batch: 3},
		{Phase: "decode", Context: 90, Batch: 1}, {Phase: "decode", Context: 90, Batch: 3},
	}
	if len(r.Rows) != len(want) {
		t.Fatalf("%d rows, want %d", len(r.Rows), len(want))
	}
	for i, x := range r.Rows {
		if w := want[i]; x.Phase != w.Phase || x.Mode != w.Mode || x.Context != w.Context || x.Batch != w.Batch {
			t.Errorf("row %d is %s %s %d %d", i, x.Phase, x.Mode, x.Context, x.Batch)
		}
		if steps := map[string]int{"prefill": (x.Context + 15) / 16, "decode": 4}[x.Phase]; x.Steps != steps {
			t.Errorf("%s: %d steps, want %d", x.title(), x.Steps, steps)
		}
		if x.Rate <= 0 || x.Rate > x.Fastest || x.Rate < x.Slowest || x.Bytes <= 0 || x.FLOPs <= 0 || x.OfLimit <= 0 {
			t.Errorf("%s: %+v", x.title(), x)
		}
		sum, bytes, known := 0., 0., map[string]bool{}
		for _, p := range x.Parts {
			sum, bytes, known[p.Name] = sum+p.Seconds, bytes+p.Bytes, true
			kernels := 0.
			for _, k := range p.Kernels {
				kernels += k.Seconds
			}
			if kernels > p.Seconds*1.0001 || p.Seconds < 0 && p.Name != UnknownPart {
				t.Errorf("%s, %s: %v s, kernels %v s", x.title(), p.Name, p.Seconds, kernels)
			}
		}
		if math.Abs(sum/x.Seconds-1) > 1e-9 || math.Abs(bytes/x.Bytes-1) > 1e-9 {
			t.Errorf("%s: parts sum to %v s and %v bytes, row %v and %v", x.title(), sum, bytes, x.Seconds, x.Bytes)
		}
		// How much is a time: a machine that takes the processor away between two sections lowers it.
		if x.Accounted <= 0 || x.Accounted > 1.0001 {
			t.Errorf("%s: %.3f of the time is accounted for", x.title(), x.Accounted)
		}
		for _, name := range []string{"embedding", "Engram", "mHC and norms", "attention projections", "attention core", "experts", "head", HostPart, "scheduler", "sampling", UnknownPart} {
			if !known[name] {
				t.Errorf("%s: no row of %s", x.title(), name)
			}
		}
	}
	if m := r.Machine; m.Read <= 0 || m.BF16 <= 0 || m.F32 <= 0 || m.Threads < 1 || m.ISA == "" || m.Chunk != 16 {
		t.Errorf("machine %+v", m)
	}
	if exact, replay := r.Rows[2].FLOPs, r.Rows[3].FLOPs; replay >= exact {
		t.Errorf("replay multiplies %v times, exact %v", replay, exact)
	}
}

func TestReportsAreTables(t *testing.T) {
	r := measure(t, "edge", Options{Contexts: []int{12}, Modes: []model.Prefill{model.Cone}, Batches: []int{2}, Repeat: 1, Steps: 2})
	var text, table, object bytes.Buffer
	if err := r.Print(&text, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"GB/s", "prefill of 12 tokens (cone)", "decode step of 2 after 12 tokens", "csa2_attend x", "unaccounted"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	var narrow bytes.Buffer
	r.Machine.NotQuiet = true
	if err := r.Print(&narrow, false); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(narrow.String(), "the machine was not quiet") {
		t.Errorf("%s", &narrow)
	}
	for i, l := range strings.Split(narrow.String(), "\n") {
		if len(l) > 80 && i > 0 { // the first names a directory
			t.Errorf("%d columns: %s", len(l), l)
		}
	}
	if err := r.CSV(&table); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(&table).ReadAll() // all lines have as many fields as the first
	if err != nil || len(lines) != 1+2+len(r.Rows[0].Parts)+len(r.Rows[1].Parts) {
		t.Errorf("%d lines of CSV, %v", len(lines), err)
	}
	if err := json.NewEncoder(&object).Encode(r); err != nil { // fails on numbers that are none
		t.Fatal(err)
	}
	var shape struct {
		Machine     map[string]any   `json:"machine"`
		Interrupted bool             `json:"interrupted"`
		Rows        []map[string]any `json:"rows"`
	}
	d := json.NewDecoder(&object)
	d.DisallowUnknownFields()
	if err := d.Decode(&shape); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"read_gbps", "bf16_gflops", "f32_gflops", "probe_spread", "not_quiet"} {
		if shape.Machine[k] == nil {
			t.Errorf("machine lacks %s", k)
		}
	}
	for _, k := range []string{"phase", "mode", "context", "batch", "tok_s", "fraction_of_limit", "fraction_of_bandwidth", "fraction_of_bf16", "parts"} {
		if shape.Rows[0][k] == nil {
			t.Errorf("rows lack %s", k)
		}
	}
}

func TestWhatCannotBeMeasuredIsRefused(t *testing.T) {
	for want, opt := range map[string]Options{
		"nothing to measure":    {Repeat: 1},
		"lower --batch to 3966": {Repeat: 1, Steps: 2, Fill: []int{63}, Batches: []int{1 << 30}},
		"this model takes":      {Repeat: 1, Steps: 2, Fill: []int{1 << 30}, Batches: []int{1}},
	} {
		f, err := engine.OpenFiles(engine.Source{Dir: "../../testdata/mini/base"}, checkpoint.Options{}, "")
		if err != nil {
			t.Fatal(err)
		}
		opt.Setup.Backend = ced.CPU
		if _, err := Run(context.Background(), f, opt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestOneStepAfterAFewTokensIsMeasured(t *testing.T) {
	r := measure(t, "calm", Options{Contexts: []int{8}, Batches: []int{1}, Repeat: 1, Steps: 1})
	if len(r.Rows) != 1 || r.Rows[0].Steps != 1 {
		t.Errorf("%+v", r.Rows)
	}
}

func TestACancelledRunReportsWhatItHas(t *testing.T) {
	f, err := engine.OpenFiles(engine.Source{Dir: "../../testdata/mini/base"}, checkpoint.Options{}, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	opt := Options{Contexts: []int{20, 30}, Modes: []model.Prefill{model.Exact}, Repeat: 100, Progress: func(_ string, done, _ int) {
		if done == 3 {
			cancel()
		}
	}, Setup: engine.Setup{Backend: ced.CPU}}
	r, err := Run(ctx, f, opt)
	if err == nil || r == nil {
		t.Fatalf("report %v, error %v", r, err)
	}
	if !r.Interrupted || len(r.Rows) != 2 || r.Rows[0].Runs < 2 || r.Rows[1].Runs < 1 {
		t.Errorf("%+v", r)
	}
}
