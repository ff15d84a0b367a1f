package model

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
	"cedrun/runtime/config"
	"cedrun/runtime/engram"
)

// openModel puts a checkpoint below testdata on a CPU stream.
func openModel(t testing.TB, dir string, o checkpoint.Options, opt Options) *Model {
	t.Helper()
	return openModelAt(t, "../../testdata/"+dir, o, opt)
}

func openModelAt(t testing.TB, dir string, o checkpoint.Options, opt Options) *Model {
	t.Helper()
	return openModelOn(t, ced.CPU, dir, o, opt)
}

func openModelOn(t testing.TB, kind ced.Kind, dir string, o checkpoint.Options, opt Options) *Model {
	t.Helper()
	c, err := config.Load(dir + "/config.json")
	if err != nil {
		t.Fatal(err)
	}
	ck, err := checkpoint.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	var rows RowSource
	if e := c.Engram; len(e.Layers) > 0 {
		rows, err = engram.Load(os.DirFS(dir), engram.Params{
			Layers: e.Layers, MaxNgram: e.MaxNgram, Bucket: e.VocabSize, Heads: e.Heads, Classes: e.Classes, PadToken: e.PadToken,
		}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := ced.Open(kind, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	m, err := New(s, ck, c, rows, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func sequence(t testing.TB, m *Model, mode Prefill, prompt, reserve int) *Sequence {
	t.Helper()
	q, err := m.NewSequence(mode, prompt)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Reserve(q, reserve); err != nil {
		t.Fatal(err)
	}
	return q
}

func ids(n int) []int32 {
	v := make([]int32, n)
	for i := range v {
		v[i] = int32(3 + i*7%50)
	}
	return v
}

func feed(t testing.TB, m *Model, probe Probe, spans ...Span) ced.Addr {
	t.Helper()
	a, _, err := m.Forward(spans, probe)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A step uses the memory of the one before, whatever the batch.
func TestADecodeStepAllocatesNothing(t *testing.T) {
	for _, dir := range []string{"mini/base", "mini/sched40", "demo"} {
		t.Run(dir, func(t *testing.T) {
			m := openModel(t, dir, checkpoint.Options{}, Options{Slots: 2, Context: 256, StepRows: 64})
			a, b := sequence(t, m, Exact, 20, 200), sequence(t, m, Replay, 20, 200)
			prompt := ids(20)
			feed(t, m, nil, Span{a, prompt, 19}, Span{b, prompt, 19})
			token := []int32{5}
			spans := make([]Span, 2)
			if n := testing.AllocsPerRun(50, func() {
				spans[0], spans[1] = Span{a, token, a.Pos()}, Span{b, token, b.Pos()}
				if _, _, err := m.Forward(spans, nil); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

// counts is a probe that sums up the rows that sub-layers of each layer see.
type counts map[string][]int

func (c counts) Sub(name string, t Tensor) error {
	layer := 0
	if rest, ok := strings.CutPrefix(name, "L"); ok {
		number, what, _ := strings.Cut(rest, ".")
		layer, _ = strconv.Atoi(number)
		name = what
	}
	for len(c[name]) <= layer {
		c[name] = append(c[name], 0)
	}
	c[name][layer] += t.Rows
	return nil
}

func (counts) KV(int) error { return nil }

func (c counts) of(name string, layer int) int {
	if layer < len(c[name]) {
		return c[name][layer]
	}
	return 0
}

// Rows end where nothing later reads them: in the last KV source after its global rows, and in the last layer but for
// the rows whose logits are wanted (spec 7.4, 7.5).
func TestRowsEndWhereNothingReadsThem(t *testing.T) {
	const prompt, window, layers, src = 100, 8, 9, 5 // of mini/base
	tail := func(rows int) int { return min(rows, prompt) }
	for _, tc := range []struct {
		mode  Prefill
		query func(l int) int // rows that go through layer l
	}{
		{Exact, func(l int) int { return prompt }},
		{Cone, func(l int) int {
			if l < src {
				return prompt
			}
			return tail(1 + (layers-1-l)*(window-1))
		}},
		{Replay, func(l int) int {
			if l < src {
				return prompt
			}
			return tail(window)
		}},
	} {
		for _, chunk := range []int{prompt, 33, 7} {
			t.Run(tc.mode.String()+" in chunks of "+strconv.Itoa(chunk), func(t *testing.T) {
				m := openModel(t, "mini/base", checkpoint.Options{}, Options{Slots: 1, Context: 128, StepRows: chunk})
				q, c, all := sequence(t, m, tc.mode, prompt, prompt), counts{}, ids(prompt)
				for at := 0; at < prompt; at += chunk {
					feed(t, m, c, Span{q, all[at:min(at+chunk, prompt)], prompt - 1})
				}
				for l := range m.schedule {
					enter, query := prompt, tc.query(l)
					if l > src {
						enter = tc.query(l - 1)
					}
					if l == layers-1 {
						query = 1 // the row that wants logits
					}
					want := map[string]int{
						"attn_in": enter, "hc_attn_pre": query, "qr": query, "attn_out": query, "ffn_in": query, "route_idx": query, "h_out": query,
					}
					if s := m.schedule[l]; s.OwnsIndex {
						want["sel"] = query
					}
					if s := m.schedule[l]; s.OwnsKV {
						want["latent"] = prompt / s.Ratio
					}
					for name, n := range want {
						if got := c.of(name, l); got != n {
							t.Errorf("layer %d: %s of %d rows, want %d", l, name, got, n)
						}
					}
				}
				if got := c.of("logits", 0); got != 1 {
					t.Errorf("%d rows of logits", got)
				}
			})
		}
	}
}

// A chunk before the tail runs no kernel after the last KV source, and there only those of its global rows; a chunk
// whose logits nobody wants runs no query in the last layer.
func TestKernelsThatNothingNeedsAreNotCalled(t *testing.T) {
	const prompt, chunk, layers, src = 96, 32, 9, 5 // of mini/base
	kernels := func(events []ced.Event, layer int) string {
		var names []string
		for _, e := range events {
			if e.Kernel != "" && e.Kernel != "upload" && e.Layer == layer {
				names = append(names, e.Kernel)
			}
		}
		return strings.Join(names, " ")
	}
	const global = "mhc_border dense_gemm csa2_compress dense_gemm kv_append" // ratio 1
	for _, mode := range []Prefill{Replay, Cone} {
		t.Run(mode.String(), func(t *testing.T) {
			m := openModel(t, "mini/base", checkpoint.Options{}, Options{Slots: 1, Context: 128, StepRows: chunk})
			trace := ced.NewTrace(4096)
			m.s.SetTrace(trace)
			defer m.s.SetTrace(nil)
			q := sequence(t, m, mode, prompt, prompt)
			feed(t, m, nil, Span{q, ids(chunk), prompt - 1})
			if got := kernels(trace.Events(), src); got != global {
				t.Errorf("layer %d ran %q, want %q", src, got, global)
			}
			for l := src + 1; l < layers; l++ {
				if got := kernels(trace.Events(), l); got != "" {
					t.Errorf("layer %d ran %q", l, got)
				}
			}
		})
	}
	t.Run(Exact.String(), func(t *testing.T) {
		m := openModel(t, "mini/base", checkpoint.Options{}, Options{Slots: 1, Context: 128, StepRows: chunk})
		trace := ced.NewTrace(4096)
		m.s.SetTrace(trace)
		defer m.s.SetTrace(nil)
		q := sequence(t, m, Exact, prompt, prompt)
		feed(t, m, nil, Span{q, ids(chunk), prompt - 1})
		if got, want := kernels(trace.Events(), layers-1), "mhc_border dense_gemm window_pack window_commit"; got != want {
			t.Errorf("the last layer ran %q, want %q", got, want)
		}
	})
}

// Reports what a decode step costs beside its kernels.
func BenchmarkDecodeStep(b *testing.B) {
	for _, dir := range []string{"demo", "mini/sched40"} {
		b.Run(dir, func(b *testing.B) {
			const context = 1024
			m := openModel(b, dir, checkpoint.Options{}, Options{Slots: 1, Context: context, StepRows: 64})
			trace := ced.NewTrace(4096)
			m.s.SetTrace(trace)
			defer m.s.SetTrace(nil)
			token, spans := []int32{5}, make([]Span, 1)
			q := sequence(b, m, Exact, 1, context)
			var kernels time.Duration
			calls := 0
			for b.Loop() {
				if q.Pos() == context {
					b.StopTimer()
					if err := m.Release(q); err != nil {
						b.Fatal(err)
					}
					q = sequence(b, m, Exact, 1, context)
					b.StartTimer()
				}
				trace.Reset()
				spans[0] = Span{q, token, q.Pos()}
				if _, _, err := m.Forward(spans, nil); err != nil {
					b.Fatal(err)
				}
				for _, e := range trace.Events() {
					if e.Kernel != "" {
						kernels += e.Took
						calls++
					}
				}
			}
			b.ReportMetric(float64(kernels.Nanoseconds())/float64(b.N), "kernel-ns/step")
			b.ReportMetric(float64(calls)/float64(b.N), "calls/step")
		})
	}
}
