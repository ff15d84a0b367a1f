// Package trace judges what keeps experts in device memory: traces of what steps chose, made up or recorded, and how
// many of the choices would have been found there by package experts, by simpler policies and by the optimum.
package trace

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// Trace is what the router chose: [step][layer] expert ids, each once, ascending.
type Trace struct {
	Name            string
	Layers, Experts int
	Steps           [][][]int32
}

// Add appends a step of chosen ids per layer, which may repeat.
func (t *Trace) Add(step [][]int32) {
	own := make([][]int32, len(step))
	for l, ids := range step {
		own[l] = slices.Clone(ids)
		slices.Sort(own[l])
		own[l] = slices.Compact(own[l])
	}
	t.Steps = append(t.Steps, own)
}

// Accesses counts the choices, each once a step.
func (t *Trace) Accesses() int {
	n := 0
	for _, step := range t.Steps {
		for _, ids := range step {
			n += len(ids)
		}
	}
	return n
}

// Shape describes a made-up trace.
type Shape struct {
	Name                          string
	Layers, Experts, TopK         int
	Steps, Rows                   int     // of a step
	Skew                          float64 // exponent of Zipf's law; 0 = all experts alike
	Phase                         int     // steps until other experts are the popular ones; 0 = never
	Seed                          uint64
	Burst, BurstEvery, BurstSteps int // every BurstEvery steps, BurstSteps of Burst rows of uniform choices: prompts
}

// Generate makes a trace up: every layer has its own order of popularity.
func Generate(s Shape) *Trace {
	r := rand.New(rand.NewPCG(s.Seed, 1))
	t := &Trace{Name: s.Name, Layers: s.Layers, Experts: s.Experts}
	sums := make([]float64, s.Experts)
	total := 0.0
	for i := range sums {
		total += math.Pow(float64(i+1), -s.Skew)
		sums[i] = total
	}
	popular := make([][]int, s.Layers)
	for n := range s.Steps {
		if n == 0 || s.Phase > 0 && n%s.Phase == 0 {
			for l := range popular {
				popular[l] = r.Perm(s.Experts)
			}
		}
		rows, burst := s.Rows, s.BurstEvery > 0 && n%s.BurstEvery >= s.BurstEvery-s.BurstSteps
		if burst {
			rows = s.Burst
		}
		step := make([][]int32, s.Layers)
		for l := range step {
			for range rows {
				var chosen []int32
				for len(chosen) < s.TopK {
					e := r.IntN(s.Experts)
					if !burst {
						at, _ := slices.BinarySearch(sums, r.Float64()*total)
						e = popular[l][min(at, s.Experts-1)]
					}
					if !slices.Contains(chosen, int32(e)) {
						chosen = append(chosen, int32(e))
					}
				}
				step[l] = append(step[l], chosen...)
			}
		}
		t.Add(step)
	}
	return t
}

// magic begins a file; sizes follow.
const magic = "cedrun-experts-1"

const maxSize = 1 << 16 // of layers and of experts

// Write writes a trace as text: a line for each step, its layers apart by spaces, their ids by commas.
func (t *Trace) Write(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "%s %d %d\n", magic, t.Layers, t.Experts)
	for _, step := range t.Steps {
		for l, ids := range step {
			if l > 0 {
				b.WriteByte(' ')
			}
			if len(ids) == 0 {
				b.WriteByte('-')
			}
			for i, id := range ids {
				if i > 0 {
					b.WriteByte(',')
				}
				b.WriteString(strconv.Itoa(int(id)))
			}
		}
		b.WriteByte('\n')
	}
	return b.Flush()
}

// Read reads what Write wrote.
func Read(name string, r io.Reader) (*Trace, error) {
	t := &Trace{Name: name}
	in := bufio.NewScanner(r)
	in.Buffer(nil, 16<<20)
	for line := 1; in.Scan(); line++ {
		fields := strings.Fields(in.Text())
		if line == 1 {
			if len(fields) != 3 || fields[0] != magic {
				return nil, fmt.Errorf("%s: not a trace of experts: it does not begin with %q, layers and experts", name, magic)
			}
			var err error
			for i, dst := range []*int{&t.Layers, &t.Experts} {
				if *dst, err = strconv.Atoi(fields[i+1]); err != nil || *dst < 1 || *dst > maxSize {
					return nil, fmt.Errorf("%s: %q is no number of layers or experts", name, fields[i+1])
				}
			}
			continue
		}
		if len(fields) != t.Layers {
			return nil, fmt.Errorf("%s:%d: %d layers where %d are meant", name, line, len(fields), t.Layers)
		}
		step := make([][]int32, t.Layers)
		for l, f := range fields {
			if f == "-" {
				continue
			}
			for id := range strings.SplitSeq(f, ",") {
				e, err := strconv.Atoi(id)
				if err != nil || e < 0 || e >= t.Experts {
					return nil, fmt.Errorf("%s:%d: %q is none of %d experts", name, line, id, t.Experts)
				}
				step[l] = append(step[l], int32(e))
			}
		}
		t.Add(step)
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if t.Layers == 0 {
		return nil, fmt.Errorf("%s: empty, where a trace of experts was meant", name)
	}
	return t, nil
}

// Standard are the made-up traces that policies are judged on, small enough for a test.
func Standard() []*Trace {
	base := Shape{Layers: 6, Experts: 64, TopK: 6, Steps: 1000, Rows: 1}
	var all []*Trace
	for i, s := range []Shape{
		{Name: "Zipf 0.7", Skew: 0.7},
		{Name: "Zipf 1.1", Skew: 1.1},
		{Name: "Zipf 1.0, batch 4", Skew: 1, Rows: 4},
		{Name: "Zipf 1.1, other experts every 300 steps", Skew: 1.1, Phase: 300},
		{Name: "Zipf 1.0 with prompts between", Skew: 1, Burst: 32, BurstEvery: 50, BurstSteps: 2},
		{Name: "uniform", Skew: 0},
	} {
		s.Layers, s.Experts, s.TopK, s.Steps, s.Rows, s.Seed = base.Layers, base.Experts, base.TopK, base.Steps, max(s.Rows, base.Rows), uint64(i)
		all = append(all, Generate(s))
	}
	return all
}
