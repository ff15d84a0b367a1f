package plan

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"cedrun/runtime/checkpoint"
	"cedrun/runtime/config"
)

// recount counts the work of a step anew, tensor by tensor of the census and token by token, with none of the walk's code.
// A step runs rows[l] rows of layer l: entering, leaving window rows, attending.
type recount struct {
	*census
	budget Budget
}

// census holds the matrices of each layer by their names in it, -1: of none.
type census struct {
	c       *config.Config
	tensors map[int][]checkpoint.Spec
}

func newCensus(c *config.Config) *census {
	out := &census{c: c, tensors: map[int][]checkpoint.Spec{}}
	for _, s := range checkpoint.Expected(c) {
		layer := -1
		if rest, ok := strings.CutPrefix(s.Name, "layers."); ok {
			number, name, _ := strings.Cut(rest, ".")
			layer, _ = strconv.Atoi(number)
			s.Name = name
		}
		vector := len(s.Shape) < 2 || strings.HasSuffix(s.Name, "q_weight") || strings.HasSuffix(s.Name, "k_weight") // gates
		if !vector && (s.Role == checkpoint.Backbone || s.Role == checkpoint.Engram) {
			out.tensors[layer] = append(out.tensors[layer], s)
		}
	}
	return out
}

// layer adds the matrices of a layer, multiplied by rows of their kind.
func (r *recount) layer(l int, rows func(name string) float64) {
	c := r.c
	for _, s := range r.tensors[l] {
		name := s.Name
		n := rows(name)
		elements := float64(parametersOf(s))
		part, bytes, flops := PartProjections, float64(s.Size()), 2*elements*n
		switch {
		case strings.HasPrefix(name, "embed."):
			part, bytes, flops = PartEmbedding, n*float64(2*c.HiddenSize), 0
		case strings.HasPrefix(name, "head."):
			part = PartHead
		case strings.HasPrefix(name, "engram.embed."):
			part, bytes, flops = PartEngram, n*float64(c.Engram.Columns())*float64(s.Size())/float64(s.Shape[0]), 0
		case strings.HasPrefix(name, "engram."):
			part = PartEngram
		case strings.HasPrefix(name, "attn.compressor."), name == "attn.indexer.wk.weight":
			part = PartCompressor
		case strings.HasPrefix(name, "attn.indexer."):
			part = PartIndexer
		case strings.HasPrefix(name, "hc_"):
			part = PartMixing
		case strings.HasPrefix(name, "ffn.gate."):
			part = PartRouter
		case strings.HasPrefix(name, "ffn.experts."):
			part = PartExperts
			bytes *= 1 - math.Pow(1-float64(c.ExpertsPerToken)/float64(c.Experts), n)
			flops *= float64(c.ExpertsPerToken) / float64(c.Experts)
		case strings.HasPrefix(name, "ffn.shared_experts."):
			part = PartShared
		}
		if n > 0 {
			r.budget[part].Bytes += bytes
			r.budget[part].FLOPs += flops
		}
	}
}

func parametersOf(s checkpoint.Spec) int64 {
	if s.Stored == checkpoint.F8E8M0 {
		return 0
	}
	n := s.Shape[0] * s.Shape[1]
	if s.Stored == checkpoint.I8 {
		n *= 2
	}
	return n
}

// query adds what the query at a position reads and multiplies in a layer; shared is what queries of its sequence in the
// same step read together, and is added by the caller.
func (r *recount) query(l config.Layer, pos, start int) (window, selected, scored int) {
	c := r.c
	for p := start; p <= pos; p++ {
		if pos-p < c.Window {
			window++
		}
	}
	seen := 0
	if l.Ratio > 0 {
		seen = (pos + 1) / l.Ratio
	}
	selected = min(seen, c.IndexTopK)
	if l.OwnsIndex && seen > c.IndexTopK {
		scored = seen
		if l.Restricted {
			scored = min(scored, c.CandidateBlock*c.CandidateTopKBlocks)
		}
	}
	r.budget[PartAttention].FLOPs += float64(window+selected) * float64(4*c.Heads*c.HeadDim)
	r.budget[PartIndexer].FLOPs += float64(scored) * float64(2*c.IndexHeads*(c.IndexHeadDim+1))
	return window, selected, scored
}

func (r *recount) cache(window, selected, scored int) {
	r.budget[PartAttention].Bytes += float64(window*528*r.c.HeadDim/512 + selected*288*r.c.HeadDim/512)
	r.budget[PartIndexer].Bytes += float64(scored * 68 * r.c.IndexHeadDim / 128)
}

func geometries(t *testing.T) map[string]*config.Config {
	out := map[string]*config.Config{}
	for _, name := range []string{"release", "mini/base", "mini/wide", "mini/sched40", "mini/edge"} {
		c, err := config.Load("../../testdata/" + name + "/config.json")
		if err != nil {
			t.Fatal(err)
		}
		out[name] = c
	}
	return out
}

func equal(t *testing.T, got, want *Budget) {
	t.Helper()
	for p := range NumParts {
		for _, x := range []struct {
			what      string
			got, want float64
		}{{"bytes", got[p].Bytes, want[p].Bytes}, {"FLOPs", got[p].FLOPs, want[p].FLOPs}} {
			if math.Abs(x.got-x.want) > 1e-9*math.Abs(x.want) {
				t.Errorf("%s: %.1f %s, recounted %.1f", p, x.got, x.what, x.want)
			}
		}
	}
}

func TestWorkOfADecodeStepIsThatOfItsTensorsAndRows(t *testing.T) {
	for name, c := range geometries(t) {
		all := newCensus(c)
		for _, batch := range []int{1, 2, 8} {
			for _, pos := range []int{0, 5, 130, 2999, 40_001} {
				t.Run(fmt.Sprint(name, " ", batch, " ", pos), func(t *testing.T) {
					r := recount{census: all}
					b := float64(batch)
					r.layer(-1, func(string) float64 { return b })
					for _, l := range c.Schedule() {
						closes := b / float64(max(l.Ratio, 1)) // groups a step, on average
						r.layer(l.Index, func(tensor string) float64 {
							if tensor == "attn.indexer.wk.weight" {
								return closes
							}
							return b
						})
						for range batch {
							r.cache(r.query(l, pos, 0))
						}
						if l.OwnsKV && closes < 1 { // weights of a group are read when one closes
							r.budget[PartCompressor].Bytes -= (1 - closes) * float64(2*c.IndexHeadDim*c.HeadDim)
						}
					}
					equal(t, DecodeBudget(c, batch, pos), &r.budget)
				})
			}
		}
	}
}

// What a prompt costs is what its tokens are let through, layer by layer and chunk by chunk, in every prefill mode.
func TestWorkOfAPromptIsThatOfTheRowsOfEachLayer(t *testing.T) {
	for name, c := range geometries(t) {
		all := newCensus(c)
		n, src := c.Layers, c.KVSources[len(c.KVSources)-1]
		const prompt, chunk = 600, 64
		modes := map[string]Thresholds{"exact": {make([]int, n), make([]int, n), make([]int, n)}}
		tail := Thresholds{make([]int, n), make([]int, n), make([]int, n)}
		for l := src; l < n; l++ {
			tail.Enter[l], tail.Window[l], tail.Query[l] = prompt-c.Window, prompt-c.Window, prompt-c.Window
		}
		tail.Enter[src], tail.Window[src] = 0, prompt-2*c.Window+1
		modes["replay"] = tail
		for mode, th := range modes {
			t.Run(name+" "+mode, func(t *testing.T) {
				r := recount{census: all}
				for begin := 0; begin < prompt; begin += chunk {
					end := min(begin+chunk, prompt)
					r.layer(-1, func(tensor string) float64 {
						if tensor == "head.weight" {
							return float64(end / prompt)
						}
						return float64(end - begin)
					})
					for _, l := range c.Schedule() {
						var enter, window, query, groups, lastWindow, lastSelected, scored int
						for p := begin; p < end; p++ {
							if p < th.Enter[l.Index] {
								continue
							}
							enter++
							if l.Ratio > 0 && (p+1)%l.Ratio == 0 {
								groups++
							}
							if p >= th.Window[l.Index] {
								window++
							}
							if p >= th.Query[l.Index] && (l.Index < n-1 || p == prompt-1) {
								query++
								w, s, x := r.query(l, p, th.Window[l.Index])
								lastWindow, lastSelected, scored = w, lastSelected+s, max(scored, x)
								if l.Restricted {
									scored = min((p+1)/l.Ratio, query*c.CandidateBlock*c.CandidateTopKBlocks)
								}
							}
						}
						if query > 0 { // rows that queries share are read once
							if l.Ratio > 0 {
								lastSelected = min(end/l.Ratio, query*c.IndexTopK)
							}
							if l.OwnsIndex && end/l.Ratio <= c.IndexTopK {
								scored = 0
							}
							reach := end - th.Window[l.Index]
							if l.Index == n-1 {
								reach = min(reach, lastWindow)
							}
							r.cache(min(reach, query-1+c.Window), lastSelected, scored)
						}
						r.layer(l.Index, func(tensor string) float64 {
							switch {
							case strings.HasPrefix(tensor, "engram."), strings.HasPrefix(tensor, "attn.compressor."):
								return float64(enter)
							case tensor == "attn.indexer.wk.weight":
								return float64(groups)
							case strings.HasPrefix(tensor, "attn.wkv."):
								return float64(window)
							}
							return float64(query)
						})
					}
				}
				equal(t, PromptBudget(c, th, prompt, chunk), &r.budget)
			})
		}
	}
}

func TestWorkOfTheReleaseIsItsActiveParameters(t *testing.T) {
	c := released(t)
	got := DecodeBudget(c, 1, 0).Total()
	if want := 2 * 16.13e9; math.Abs(got.FLOPs/want-1) > 0.01 { // spec 1.4: 15.47 B and a head of 0.66 B
		t.Errorf("%.4g FLOPs for a token without context", got.FLOPs)
	}
	deep := DecodeBudget(c, 1, 1<<20-1).Total()
	if grown := deep.Bytes - got.Bytes; grown < 68*(1.5+1)*(1<<20) || grown > 1.2*68*2.5*(1<<20) {
		t.Errorf("%.4g bytes more at a depth of a million tokens", grown)
	}
}

func TestLimitIsTheLargerOfBothTimes(t *testing.T) {
	l := Limits{Read: 10, Multiply: 100, F32: 50}
	for _, tc := range []struct {
		part  Part
		work  Work
		least float64
		bound string
	}{
		{PartHead, Work{100, 100}, 10, BoundMemory},
		{PartHead, Work{10, 1000}, 10, BoundMultiply},
		{PartMixing, Work{10, 1000}, 20, BoundMultiply},
		{PartScheduler, Work{}, 0, BoundLatency},
	} {
		if s, bound := l.Least(tc.part, tc.work); s != tc.least || bound != tc.bound {
			t.Errorf("%s, %+v: %v s by %s, want %v by %s", tc.part, tc.work, s, bound, tc.least, tc.bound)
		}
	}
	b := Budget{PartHead: {100, 100}, PartMixing: {10, 1000}}
	if s := b.Least(l); s != 30 {
		t.Errorf("all parts take %v s, want 30", s)
	}
}
