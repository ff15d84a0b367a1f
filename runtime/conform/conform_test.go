package conform

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
	"cedrun/runtime/config"
	"cedrun/runtime/engram"
	"cedrun/runtime/model"
)

const minis = "../../testdata/mini"

// subject opens a mini checkpoint on a stream.
func subject(t *testing.T, name string, kind ced.Kind, threads int, noMap bool) (Subject, []*checkpoint.Checkpoint) {
	t.Helper()
	dir := filepath.Join(minis, name)
	c, err := config.Load(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	ck, err := checkpoint.Open(dir, checkpoint.Options{NoMap: noMap})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	var rows model.RowSource
	if e := c.Engram; len(e.Layers) > 0 {
		if rows, err = engram.Load(os.DirFS(dir), engram.Params{
			Layers: e.Layers, MaxNgram: e.MaxNgram, Bucket: e.VocabSize, Heads: e.Heads, Classes: e.Classes, PadToken: e.PadToken,
		}, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	s, err := ced.Open(kind, 0, threads)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	var goldens []*checkpoint.Checkpoint
	for _, f := range []string{"golden.safetensors", "golden_numpy.safetensors"} {
		g, err := checkpoint.OpenFile(filepath.Join(dir, f), checkpoint.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { g.Close() })
		goldens = append(goldens, g)
	}
	return Subject{Stream: s, Checkpoint: ck, Config: c, Rows: rows}, goldens
}

func mustLoad(t *testing.T, files ...*checkpoint.Checkpoint) *golden {
	t.Helper()
	g, err := load(files)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func mustPass(t *testing.T, r *Report, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK() {
		var b bytes.Buffer
		r.Print(&b)
		t.Fatalf("%.4000s", b.String())
	}
}

// edge: one stream, one head, one expert, a window of one, a dense cache before a sparse one, no candidates, bigrams.
// plain: no Engram and no global KV.
func TestBackendsConformOnEveryMiniCheckpoint(t *testing.T) {
	for _, mini := range []string{"base", "wide", "vl", "sched40", "calm", "edge", "plain"} {
		for _, kind := range []ced.Kind{ced.Ref, ced.CPU} {
			t.Run(fmt.Sprintf("%s/%s", mini, kind), func(t *testing.T) {
				t.Parallel()
				s, g := subject(t, mini, kind, 2, false)
				r, err := Run(t.Context(), s, g...)
				mustPass(t, r, err)
			})
		}
	}
}

func TestConformanceHoldsWithMappingRefused(t *testing.T) {
	s, g := subject(t, "sched40", ced.CPU, 1, true)
	if s.Checkpoint.Mapped() {
		t.Fatal("the checkpoint is mapped")
	}
	r, err := Run(t.Context(), s, g...)
	mustPass(t, r, err)
}

func TestThreadCountDoesNotChangeBits(t *testing.T) {
	var logits [][]float32
	for _, threads := range []int{1, 2, 3} {
		s, g := subject(t, "wide", ced.CPU, threads, false)
		r := &run{ctx: t.Context(), Subject: s, g: mustLoad(t, g[0]), Report: &Report{}}
		r.ids = r.g.ints("input_ids")
		if err := r.endToEnd(); err != nil {
			t.Fatal(err)
		}
		logits = append(logits, r.own)
	}
	for i := 1; i < len(logits); i++ {
		if n := different(logits[i], logits[0]); n > 0 {
			t.Errorf("%d threads: %d logits differ from one thread's", i+1, n)
		}
	}
}

// A check that cannot fail is none: a fault put into any golden must break its own line.
func TestAWrongGoldenIsNoticed(t *testing.T) {
	s, g := subject(t, "base", ced.Ref, 1, false)
	r := &run{ctx: t.Context(), Subject: s, canonical: true, Report: &Report{NotBuilt: map[string]int{}}, g: mustLoad(t, g...)}
	r.ids = r.g.ints("input_ids")
	faults := []string{
		"L0.engram_hash", "L3.attn_out", "L5.sel", "L5.index_score", "candidates", "L1.window_ring", "L3.compress_kv", "L3.index_k",
		"L4.route_idx", "L4.route_w", "L7.hc_ffn_comb", "logits", "greedy.tokens", "tail.logits", "cone.decode_logits",
	}
	for _, name := range faults {
		v := r.g.vals[name]
		v[len(v)/2]++
	}
	for _, section := range []func() error{r.subLayers, r.endToEnd, r.greedy, r.modes} {
		if err := section(); err != nil {
			t.Fatal(err)
		}
	}
	broken := map[string]bool{}
	for _, l := range r.Lines {
		broken[l.Tensor] = broken[l.Tensor] || !l.OK
	}
	for _, name := range faults {
		if !broken[name] {
			t.Errorf("a wrong %s goes unnoticed", name)
		}
	}
}

// Somebody stops it: no step more than the one that runs.
func TestAnInterruptedComparisonEnds(t *testing.T) {
	s, g := subject(t, "edge", ced.Ref, 1, false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := Run(ctx, s, g...); !errors.Is(err, context.Canceled) || r != nil {
		t.Errorf("%v, %v", r, err)
	}
}
