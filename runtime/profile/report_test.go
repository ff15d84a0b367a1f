package profile

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ced "cedrun/cuda"
	"cedrun/runtime/golden"
	"cedrun/runtime/plan"
)

const us = time.Microsecond

// made is a recording of two prompt steps and three of decode, of a model of two layers.
func made() (*Recording, Works) {
	rec := &Recording{Used: Used{Wall: 28 * time.Millisecond, CPU: 52 * time.Millisecond, Faults: 3}}
	at := 5 * us
	step := func(prefill, decode int, slow time.Duration) {
		s := Step{Prefill: prefill, Decode: decode, Began: at}
		section := func(part plan.Part, layer int, host time.Duration, kernels ...string) {
			begin := at
			for _, k := range kernels {
				at += host
				s.Events = append(s.Events, ced.Event{Kernel: k, Part: part.String(), Layer: layer, Start: at, Took: slow})
				at += slow
			}
			at += host
			s.Events = append(s.Events, ced.Event{Part: part.String(), Layer: layer, Start: begin, Took: at - begin})
		}
		at += 3 // before the first section
		section(plan.PartScheduler, -1, us, "upload")
		section(plan.PartEmbedding, -1, us, "embed")
		for l := range 2 {
			if l == 0 {
				section(plan.PartEngram, l, us, "engram_gather", "dense_gemm")
			}
			section(plan.PartProjections, l, us, "dense_gemm", "dense_gemm")
			section(plan.PartAttention, l, us, "csa2_attend")
			section(plan.PartProjections, l, us, "dense_gemm")
			section(plan.PartExperts, l, us, "expert_gemm")
		}
		section(plan.PartHead, -1, us, "dense_gemm")
		section(plan.PartSampling, -1, 10*us, "download")
		at += 5
		s.Took = at - s.Began
		rec.Steps = append(rec.Steps, s)
		at += 2 * us // the observer
	}
	step(64, 0, 900*us)
	step(32, 0, 500*us)
	for range 3 {
		step(0, 1, 100*us)
	}
	works := Works{}
	for name, rows := range map[string]float64{Prefill: 96, Decode: 3} {
		s := plan.Sites{}
		for l := range 2 {
			s[plan.Site{Layer: l, Part: plan.PartProjections, Kernel: "dense_gemm"}] = plan.Work{Bytes: 2e6, FLOPs: 4e6 * rows}
			s[plan.Site{Layer: l, Part: plan.PartAttention, Kernel: "csa2_attend"}] = plan.Work{Bytes: 1e5, FLOPs: 1e6 * rows}
			s[plan.Site{Layer: l, Part: plan.PartExperts, Kernel: "expert_gemm"}] = plan.Work{Bytes: 3e6, FLOPs: 9e6 * rows}
		}
		s[plan.Site{Layer: 0, Part: plan.PartEngram, Kernel: "dense_gemm"}] = plan.Work{Bytes: 1e6, FLOPs: 2e6 * rows}
		s[plan.Site{Layer: 0, Part: plan.PartEngram, Kernel: "engram_gather"}] = plan.Work{Bytes: 1e3 * rows}
		s[plan.Site{Layer: -1, Part: plan.PartHead, Kernel: "dense_gemm"}] = plan.Work{Bytes: 5e6, FLOPs: 5e6}
		works[name] = s
	}
	return rec, works
}

func subject() Subject {
	return Subject{Model: "models/small & <odd>", Backend: "cpu", ISA: "avx512", Threads: 2, Chunk: 64, Mode: "replay"}
}

func limited() (*Report, *Recording) {
	rec, works := made()
	return New(subject(), rec, works, &Limits{Read: 31.5, BF16: 171, F32: 344, Spread: 0.41}), rec
}

func TestTablesForPeople(t *testing.T) {
	rec, _ := made()
	rec.Dropped, rec.LeftOut = 3, 1
	narrow := New(subject(), rec, nil, nil)
	sums(t, narrow)
	wide, _ := limited()
	sums(t, wide)
	for name, x := range map[string]struct {
		r   *Report
		all bool
	}{"narrow.txt": {narrow, false}, "wide.txt": {wide, true}, "empty.txt": {New(Subject{Model: "idle", PID: 7}, &Recording{}, nil, nil), false}} {
		var b bytes.Buffer
		if err := x.r.Print(&b, x.all); err != nil {
			t.Fatal(err)
		}
		golden.Check(t, name, b.String())
		for _, l := range strings.Split(b.String(), "\n") {
			if name == "narrow.txt" && len(l) > 80 {
				t.Errorf("%d columns: %s", len(l), l)
			}
		}
	}
}

func TestARefusedWriteIsReported(t *testing.T) {
	r, rec := limited()
	for name, write := range map[string]func(io.Writer) error{
		"table":    func(w io.Writer) error { return r.Print(w, true) },
		"trace":    func(w io.Writer) error { return r.WriteTrace(w, rec) },
		"roofline": r.WriteRoofline,
	} {
		if err := write(full{}); !errors.Is(err, errFull) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

var errFull = errors.New("full")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestJSONHoldsWholeNanoseconds(t *testing.T) {
	r, _ := limited()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Phases []struct {
			Took        int64 `json:"took_ns"`
			Unaccounted int64 `json:"unaccounted_ns"`
			Rows        []struct {
				Took  int64   `json:"took_ns"`
				Bytes float64 `json:"bytes"`
				Of    float64 `json:"fraction_of_limit"`
			} `json:"rows"`
		} `json:"phases"`
	}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for _, p := range got.Phases {
		sum := p.Unaccounted
		for _, x := range p.Rows {
			sum += x.Took
			if (x.Bytes > 0) != (x.Of > 0) {
				t.Errorf("%+v", x)
			}
		}
		if sum != p.Took || p.Took == 0 {
			t.Errorf("rows and the rest sum to %d ns of %d", sum, p.Took)
		}
	}
}

// The Trace Event Format: an object with traceEvents, each with ph, pid and tid; M names processes and threads, X has ts
// and dur, C numbers; slices of a thread lie within each other or apart.
func TestATraceIsInTheTraceEventFormat(t *testing.T) {
	r, rec := limited()
	var b bytes.Buffer
	if err := r.WriteTrace(&b, rec); err != nil {
		t.Fatal(err)
	}
	type event struct {
		Name     string
		Ph       string
		Cat      string
		TS, Dur  *float64
		PID, TID *int
		Args     map[string]any
	}
	var file struct {
		DisplayTimeUnit string
		OtherData       map[string]string
		TraceEvents     []event
	}
	d := json.NewDecoder(&b)
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		t.Fatal(err)
	}
	if file.DisplayTimeUnit != "ms" || file.OtherData["model"] != r.Model {
		t.Errorf("unit %q, %v", file.DisplayTimeUnit, file.OtherData)
	}
	type track struct{ pid, tid int }
	slices_, named, kinds := map[track][]event{}, map[track]string{}, map[string]int{}
	for _, e := range file.TraceEvents {
		if e.Name == "" || e.PID == nil || e.TID == nil {
			t.Fatalf("%+v has no name, process or thread", e)
		}
		at := track{*e.PID, *e.TID}
		switch e.Ph {
		case "M":
			if len(slices_) > 0 {
				t.Errorf("%s stands after slices", e.Name)
			}
			if name, ok := e.Args["name"].(string); ok && e.Name == "thread_name" {
				named[at] = name
			}
			if len(e.Args) != 1 || !slices.Contains([]string{"process_name", "thread_name", "process_sort_index", "thread_sort_index"}, e.Name) {
				t.Errorf("metadata %+v", e)
			}
		case "X":
			if e.TS == nil || e.Dur == nil || *e.TS < 0 || *e.Dur < 0 || e.Cat == "" {
				t.Fatalf("slice %+v", e)
			}
			slices_[at] = append(slices_[at], e)
			kinds[e.Cat]++
		case "C":
			for _, v := range e.Args {
				if _, ok := v.(float64); !ok || e.TS == nil {
					t.Errorf("counter %+v", e)
				}
			}
			kinds["counter"]++
		default:
			t.Errorf("%q is no kind of event that is written", e.Ph)
		}
	}
	want := map[string]int{"step": 5, "counter": 5, "layer": 10, "part": 2 * 5 * 13, "kernel": 5 * 16}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Error(diff)
	}
	if named[track{1, 1}] != "engine" || named[track{2, 2}] != "layer 0" || named[track{2, 3}] != "layer 1" || named[track{2, 1}] != "outside layers" {
		t.Errorf("threads %v", named)
	}
	for at, list := range slices_ {
		if named[at] == "" {
			t.Errorf("track %v has no name", at)
		}
		slices.SortStableFunc(list, func(x, y event) int {
			if *x.TS != *y.TS {
				return int(math.Copysign(1, *x.TS-*y.TS))
			}
			return int(math.Copysign(1, *y.Dur-*x.Dur))
		})
		var open []float64 // ends
		for _, e := range list {
			end := *e.TS + *e.Dur
			for len(open) > 0 && open[len(open)-1] <= *e.TS+1e-6 {
				open = open[:len(open)-1]
			}
			if len(open) > 0 && end > open[len(open)-1]+1e-6 {
				t.Errorf("%v: %s of %v us at %v ends after what it lies in", at, e.Name, *e.Dur, *e.TS)
			}
			open = append(open, end)
		}
	}
}

// mark is an element of a plot that has a place.
type mark struct {
	XMLName   xml.Name
	X         float64 `xml:"x,attr"`
	Y         float64 `xml:"y,attr"`
	Anchor    string  `xml:"text-anchor,attr"`
	Transform string  `xml:"transform,attr"`
	Text      string  `xml:",chardata"`
}

// texts reads a plot, which must be well-formed.
func texts(t *testing.T, svg []byte) (out []mark) {
	t.Helper()
	var doc struct {
		XMLName xml.Name `xml:"http://www.w3.org/2000/svg svg"`
		Marks   []mark   `xml:",any"`
	}
	if err := xml.Unmarshal(svg, &doc); err != nil {
		t.Fatal(err)
	}
	for _, m := range doc.Marks {
		if m.XMLName.Local == "text" {
			out = append(out, m)
		}
	}
	return out
}

// boxOf is about where a text stands, in a narrow font.
func boxOf(m mark) box {
	long := 5.5 * float64(len(m.Text))
	x := map[string]float64{"start": m.X, "middle": m.X - long/2, "end": m.X - long}[m.Anchor]
	return box{x, m.Y - 9, x + long, m.Y + 1}
}

func TestARooflineIsReadable(t *testing.T) {
	crowded, _ := limited()
	for i := range crowded.Phases { // kernels that do nearly the same stand on one another
		for j := range crowded.Phases[i].Rows {
			if x := &crowded.Phases[i].Rows[j]; x.By != "" && x.FLOPs > 0 {
				x.FLOPs = 2.1 * x.Bytes
				x.Took = time.Duration(x.FLOPs / 20)
			}
		}
	}
	plain, _ := limited()
	same, _ := limited()
	same.Limits.BF16 = same.Limits.F32
	for name, r := range map[string]*Report{"as made": plain, "crowded": crowded, "one rate": same} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := r.WriteRoofline(&b); err != nil {
				t.Fatal(err)
			}
			all := texts(t, b.Bytes())
			have := map[string]bool{}
			for i, m := range all {
				have[m.Text] = true
				if m.Transform != "" {
					continue
				}
				at := boxOf(m)
				if at.x0 < 0 || at.y0 < 0 || at.x1 > width || at.y1 > height {
					t.Errorf("%q leaves the page: %+v", m.Text, at)
				}
				for _, n := range all[:i] {
					if n.Transform == "" && at.hits(boxOf(n)) {
						t.Errorf("%q stands on %q", m.Text, n.Text)
					}
				}
			}
			for _, want := range []string{
				"Roofline: models/small & <odd>", "GFLOP/s", "FLOPs per byte of weights, cache and table rows", "read 31.5 GB/s", "F32 344 GFLOP/s",
				"prefill", "decode", "experts, expert_gemm", "Engram, dense_gemm", "of limit", "1", "10", "100",
			} {
				if !have[want] {
					t.Errorf("no %q in the plot", want)
				}
			}
			for i := range r.points() {
				if !have[strconv.Itoa(i+1)] {
					t.Errorf("kernel %d has no number", i+1)
				}
			}
			if have["Engram, engram_gather"] {
				t.Error("a kernel without FLOPs is drawn")
			}
		})
	}
}

func TestARooflineNeedsRatesAndSteps(t *testing.T) {
	rec, works := made()
	if err := New(subject(), rec, works, nil).WriteRoofline(io.Discard); err == nil || !strings.Contains(err.Error(), "not measured") {
		t.Error(err)
	}
	if err := New(subject(), &Recording{}, works, &Limits{Read: 1, BF16: 1, F32: 1}).WriteRoofline(io.Discard); err == nil || !strings.Contains(err.Error(), "no step") {
		t.Error(err)
	}
}
