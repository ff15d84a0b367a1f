//go:build sim || cuda

package model

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
	"cedrun/runtime/kv"
)

// batch feeds sequences to models that ought to agree.
type batch struct {
	t      *testing.T
	models []*Model
	seqs   [][]*Sequence // per sequence: one in every model, nil when it is gone
	fed    int
}

func newBatch(t *testing.T, dir string, opts ...Options) *batch {
	b := &batch{t: t}
	for _, o := range opts {
		b.models = append(b.models, openModelOn(t, ced.CUDA, "../../testdata/mini/"+dir, checkpoint.Options{}, o))
	}
	return b
}

// add makes a sequence.
func (b *batch) add(mode Prefill, prompt int) (seq int) {
	b.t.Helper()
	var all []*Sequence
	for _, m := range b.models {
		all = append(all, sequence(b.t, m, mode, prompt, prompt))
	}
	b.seqs = append(b.seqs, all)
	return len(b.seqs) - 1
}

// start makes a sequence and feeds its prompt.
func (b *batch) start(mode Prefill, prompt int) (seq int) {
	b.t.Helper()
	seq = b.add(mode, prompt)
	b.step(map[int]int{seq: prompt})
	return seq
}

// fill makes a sequence that stands at a position.
func (b *batch) fill(pos int) (seq int) {
	b.t.Helper()
	seq = b.add(Exact, pos)
	for i, q := range b.seqs[seq] {
		if err := b.models[i].Fill(q, ids(pos), uint64(seq)); err != nil {
			b.t.Fatal(err)
		}
	}
	return seq
}

func (b *batch) release(seq int) {
	for i, q := range b.seqs[seq] {
		if err := b.models[i].Release(q); err != nil {
			b.t.Fatal(err)
		}
	}
	b.seqs[seq] = nil
}

// decode feeds steps of a token for every sequence there is.
func (b *batch) decode(steps int) {
	b.t.Helper()
	for range steps {
		rows := map[int]int{}
		for i, q := range b.seqs {
			if q != nil {
				rows[i] = 1
			}
		}
		b.step(rows)
	}
}

// step feeds some tokens to some sequences and compares the logits after the last of each.
func (b *batch) step(rows map[int]int) {
	b.t.Helper()
	if at := b.diverges(rows); at != "" {
		b.t.Fatal(at)
	}
}

// diverges is where the logits of the models differ first, "" if they do not.
func (b *batch) diverges(rows map[int]int) string {
	b.t.Helper()
	tokens := map[int][]int32{}
	for i := range b.seqs {
		for range rows[i] {
			b.fed++
			tokens[i] = append(tokens[i], int32(3+b.fed*29%50))
		}
	}
	var want []byte
	for j, m := range b.models {
		var spans []Span
		for i, q := range b.seqs {
			if n := rows[i]; n > 0 {
				if err := m.Reserve(q[j], q[j].Pos()+n); err != nil {
					b.t.Fatal(err)
				}
				spans = append(spans, Span{Seq: q[j], Tokens: tokens[i], Logits: q[j].Pos() + n - 1})
			}
		}
		got := make([]byte, len(spans)*m.cfg.VocabSize*4)
		if err := m.s.Download(got, feed(b.t, m, nil, spans...)); err != nil {
			b.t.Fatal(err)
		}
		if want == nil {
			want = got
		} else if !bytes.Equal(got, want) {
			return fmt.Sprintf("model %d differs in a step of %v rows", j, rows)
		}
	}
	return ""
}

// Sequences come and go, at positions that cross windows, groups, pages and the indexer's top-k.
func TestCapturedStepsChangeNoBit(t *testing.T) {
	needDevice(t)
	for _, dir := range []string{"base", "calm"} {
		t.Run(dir, func(t *testing.T) {
			o := Options{Slots: 6, Context: 2 * kv.PageTokens, StepRows: kv.PageTokens, Outputs: 6, Tails: true}
			captured := o
			captured.Graphs = true
			b := newBatch(t, dir, o, captured)
			first := b.fill(kv.PageTokens - 2)
			b.decode(3)
			second := b.start(Exact, 2)
			b.decode(3)
			b.fill(8)
			b.decode(2)
			b.fill(30)
			b.start(Replay, 12)
			b.decode(2)
			b.release(first)
			b.release(second)
			b.decode(2)
			b.fill(20)
			b.decode(2)
			plain, graphs := b.models[0].Use().Graphs, b.models[1].Use().Graphs
			if plain != (GraphUse{}) {
				t.Errorf("without graphs: %+v", plain)
			}
			if want := (GraphUse{Captured: 5, Replayed: 9, Plain: 5}); graphs != want {
				t.Errorf("with graphs: %+v, want %+v", graphs, want)
			}
		})
	}
}

// A graph replays the arguments of its capture. Here one depended on the position, as if the indexer selected no more rows
// than there were: the comparison of this file sees it.
func TestAStaleArgumentIsFound(t *testing.T) {
	needDevice(t)
	o := Options{Slots: 1, Context: kv.PageTokens, StepRows: 1}
	captured := o
	captured.Graphs = true
	b := newBatch(t, "base", o, captured)
	b.fill(1)
	c := b.models[1].cfg
	most := c.IndexTopK
	c.IndexTopK = 2 // no layer has more rows at position 1
	b.decode(1)
	c.IndexTopK = most
	if b.diverges(map[int]int{0: 1}) == "" {
		t.Errorf("position 2 has the same logits with the rows that position 1 had: %+v", b.models[1].Graphs())
	}
}

// Where experts lie is data: the table that a graph reads changes between its launches.
func TestCapturedStepsFollowExperts(t *testing.T) {
	needDevice(t)
	o := Options{Slots: 2, Context: kv.PageTokens, StepRows: 8}
	m := openModelOn(t, ced.CUDA, "../../testdata/mini/calm", checkpoint.Options{}, o)
	captured := o
	captured.Graphs, captured.ExpertBytes = true, slotBytes(m)*(m.cfg.Layers*m.cfg.ExpertsPerToken+1)
	b := newBatch(t, "calm", o, captured)
	b.start(Exact, 3)
	b.decode(4)
	b.fill(20)
	b.decode(3)
	u, moved := b.models[1].Use(), uint64(0)
	for _, l := range u.Experts {
		moved += l.Moved
	}
	if want := (GraphUse{Captured: 2, Replayed: 5, Plain: 2}); u.Graphs != want || moved == 0 {
		t.Errorf("%d experts moved, graphs %+v, want %+v", moved, u.Graphs, want)
	}
}

// What a device refuses to capture runs kernel by kernel, and somebody is told once.
func TestStepsGoOnWhenACaptureFails(t *testing.T) {
	needDevice(t)
	var said []string
	o := Options{Slots: 2, Context: kv.PageTokens, StepRows: 8}
	captured := o
	captured.Graphs, captured.Warn = true, func(s string) { said = append(said, s) }
	b := newBatch(t, "base", o, captured)
	m := b.models[1]
	m.w.layers[1].pages = newExpertPages(make([][][]byte, m.cfg.Experts), o.StepRows*m.cfg.ExpertsPerToken, true) // asks what was routed
	b.fill(5)
	b.decode(2)
	b.fill(9)
	b.decode(1)
	if got, want := m.Use().Graphs, (GraphUse{Plain: 3, Failed: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if len(said) != 1 || !strings.Contains(said[0], "capture a decode step of 1 rows: layer 1") {
		t.Errorf("told %q", said)
	}
}

// What is traced runs kernel by kernel, with the same bits; when the trace is paused steps are replayed again.
func TestATraceHasTheKernelsOfCapturedSteps(t *testing.T) {
	needDevice(t)
	o := Options{Slots: 1, Context: kv.PageTokens, StepRows: 1}
	captured := o
	captured.Graphs = true
	b := newBatch(t, "base", o, captured)
	b.fill(5)
	b.decode(1)
	trace, s := ced.NewTrace(1000), b.models[1].s
	s.SetTrace(trace)
	b.decode(1)
	count := map[string]int{}
	for _, e := range trace.Events() {
		count[e.Kernel]++
	}
	if layers := b.models[1].cfg.Layers; count["graph"] != 0 || count["csa2_attend"] != layers || count["mhc_border"] != 2*layers+1 {
		t.Errorf("a step ran %v", count)
	}
	trace.Reset()
	trace.Pause(true)
	b.decode(1)
	for _, e := range trace.Events() {
		if e.Kernel != "" {
			t.Errorf("%+v in a paused trace", e)
		}
	}
	if g := b.models[1].Use().Graphs; g.Replayed != 1 {
		t.Errorf("%+v", g)
	}
}
