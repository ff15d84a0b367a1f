package conform

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
	"cedrun/runtime/config"
	"cedrun/runtime/kv"
	"cedrun/runtime/model"
)

// Subject is what is being judged.
type Subject struct {
	Stream     *ced.Stream
	Checkpoint *checkpoint.Checkpoint
	Config     *config.Config
	Rows       model.RowSource // nil without Engram
	// Experts of a device, as in model.Options.
	ExpertBytes int
	HostExperts bool
}

// Run compares the subject with golden files (conformance README 2; one of them must hold input_ids), until ctx ends.
func Run(ctx context.Context, sub Subject, goldens ...*checkpoint.Checkpoint) (*Report, error) {
	g, err := load(goldens)
	if err != nil {
		return nil, err
	}
	return judge(ctx, sub, g)
}

func judge(ctx context.Context, sub Subject, g *golden) (*Report, error) {
	r, err := newRun(ctx, sub, g)
	if err != nil {
		return nil, err
	}
	for _, section := range []func() error{
		r.subLayers, r.endToEnd, r.chunks, r.stale, r.greedy, r.lengths, r.modes, r.encoderReplay,
	} {
		if err := section(); err != nil {
			return nil, err
		}
	}
	r.rest()
	return r.Report, nil
}

func newRun(ctx context.Context, sub Subject, g *golden) (*run, error) {
	r := &run{ctx: ctx, Subject: sub, g: g, canonical: sub.Stream.Kind() == ced.Ref, Report: &Report{NotBuilt: map[string]int{}}}
	r.Backend = sub.Stream.Kind().String()
	r.ids = g.ints("input_ids")
	if len(r.ids) == 0 {
		return nil, fmt.Errorf("the golden has no input_ids: not in the conformance format")
	}
	return r, nil
}

type golden struct {
	vals  map[string][]float32
	shape map[string][]int64
	read  map[string]bool
}

func load(files []*checkpoint.Checkpoint) (*golden, error) {
	g := &golden{vals: map[string][]float32{}, shape: map[string][]int64{}, read: map[string]bool{}}
	for _, f := range files {
		if err := g.load(f); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func (g *golden) load(f *checkpoint.Checkpoint) error {
	for _, t := range f.Tensors() {
		var v []float32
		var err error
		if t.DType == checkpoint.BF16 || t.DType == checkpoint.F32 {
			v, err = f.Floats(t.Name)
		} else {
			var ints []int64
			ints, err = f.Ints(t.Name)
			for _, x := range ints {
				v = append(v, float32(x)) // token ids and row numbers of goldens are below 2^24
				if int64(float32(x)) != x {
					return fmt.Errorf("golden %s holds %d, too large for this comparison", t.Name, x)
				}
			}
		}
		if err != nil {
			return fmt.Errorf("golden %s: %w", t.Name, err)
		}
		if len(t.Shape) == 0 || slices.Contains(t.Shape, 0) {
			return fmt.Errorf("golden %s has shape %v: not in the conformance format", t.Name, t.Shape)
		}
		g.vals[t.Name], g.shape[t.Name] = v, t.Shape
	}
	return nil
}

func (g *golden) get(name string) ([]float32, bool) {
	v, ok := g.vals[name]
	if ok {
		g.read[name] = true
	}
	return v, ok
}

func (g *golden) ints(name string) []int32 {
	v, _ := g.get(name)
	out := make([]int32, len(v))
	for i, x := range v {
		out[i] = int32(x)
	}
	return out
}

// width is the product of all dimensions but the first; rows is that one. Of a tensor that is there.
func (g *golden) width(name string) int { return len(g.vals[name]) / max(g.rows(name), 1) }

func (g *golden) rows(name string) int {
	if s := g.shape[name]; len(s) > 0 {
		return int(s[0])
	}
	return 0
}

// series lists the stems of tensors called prefix*suffix, in order.
func (g *golden) series(prefix, suffix string) []string {
	var stems []string
	for n := range g.vals {
		if strings.HasPrefix(n, prefix) && strings.HasSuffix(n, suffix) {
			stems = append(stems, strings.TrimSuffix(n, suffix))
		}
	}
	slices.Sort(stems)
	return stems
}

// longest is the number of tokens of the longest sequence that the goldens hold.
func (g *golden) longest() int {
	n := g.rows("input_ids")
	for _, s := range g.series("greedy", ".tokens") {
		n = max(n, g.rows(s+".prompt")+g.rows(s+".tokens"))
	}
	for _, s := range g.series("len", ".ids") {
		n = max(n, g.rows(s+".ids")+g.rows(s+".next"))
	}
	return n
}

type run struct {
	Subject
	*Report
	g         *golden
	ids       []int32
	canonical bool
	ctx       context.Context // ends it between two steps
	own       []float32       // logits of every prompt row, one shot, exact
	ownKV     map[int][]byte
}

const extra = 8 // decode steps after the longest sequence

// Sizes are what the model of a run over golden files has room for.
func Sizes(c *config.Config, goldens ...*checkpoint.Checkpoint) (model.Options, error) {
	g, err := load(goldens)
	if err != nil {
		return model.Options{}, err
	}
	return g.sizes(c), nil
}

func (g *golden) sizes(c *config.Config) model.Options {
	longest := g.longest()
	return model.Options{
		Slots: 3, Context: kv.PagesFor(longest+extra) * kv.PageTokens, StepRows: max(2*g.rows("input_ids")+8, longest), DraftRows: c.Draft.BlockSize,
		Graphs: true, // of a device: what conforms is what runs
	}
}

func (r *run) model(stale bool) (*model.Model, error) {
	o := r.g.sizes(r.Config)
	o.StaleIndexKeys, o.ExpertBytes, o.HostExperts = stale, r.ExpertBytes, r.HostExperts
	return model.New(r.Stream, r.Checkpoint, r.Config, r.Rows, o)
}

// with runs f on a fresh model and sequence.
func (r *run) with(mode model.Prefill, prompt int, stale bool, f func(*session) error) error {
	m, err := r.model(stale)
	if err != nil {
		return err
	}
	defer m.Close()
	s, err := r.session(m, mode, prompt)
	if err != nil {
		return err
	}
	return f(s)
}

// session is one sequence of a model.
type session struct {
	r *run
	m *model.Model
	q *model.Sequence
}

func (r *run) session(m *model.Model, mode model.Prefill, prompt int) (*session, error) {
	q, err := m.NewSequence(mode, prompt)
	if err == nil {
		err = m.Reserve(q, m.Options().Context)
	}
	return &session{r, m, q}, err
}

// feed runs ids as one step and returns the logits rows from position `from` on.
func (s *session) feed(ids []int32, from int, probe model.Probe) ([]float32, error) {
	if err := s.r.ctx.Err(); err != nil {
		return nil, err
	}
	addr, n, err := s.m.Forward([]model.Span{{Seq: s.q, Tokens: ids, Logits: max(from, s.q.FirstLogits(), s.q.Pos())}}, probe)
	if err != nil {
		return nil, err
	}
	return s.r.download(addr, n*s.r.Config.VocabSize)
}

func (r *run) download(addr ced.Addr, n int) ([]float32, error) {
	b := make([]byte, 4*n)
	err := r.Stream.Download(b, addr)
	return f32s(b), err
}

// chunked feeds ids in chunks (the last size repeats) and returns all logits.
func (s *session) chunked(ids []int32, chunks []int) ([]float32, error) {
	var out []float32
	for k := 0; len(ids) > 0; k++ {
		n := min(len(ids), chunks[min(k, len(chunks)-1)])
		l, err := s.feed(ids[:n], 0, nil)
		if err != nil {
			return nil, err
		}
		out, ids = append(out, l...), ids[n:]
	}
	return out, nil
}

// decode feeds n greedy tokens after logits row last and returns them and the last row.
func (s *session) greedy(row []float32, n int) (tokens []int32, last []float32, err error) {
	for last = row; len(tokens) < n; {
		t := argmax(last)
		tokens = append(tokens, t)
		if last, err = s.feed([]int32{t}, 0, nil); err != nil {
			return nil, nil, err
		}
	}
	return tokens, last, nil
}

func argmax(v []float32) int32 {
	best := 0
	for i, x := range v {
		if x > v[best] {
			best = i
		}
	}
	return int32(best)
}

func (r *run) lastRow(logits []float32) []float32 { return logits[len(logits)-r.Config.VocabSize:] }

// rest counts the goldens of parts that are not built and names those that nothing knows.
func (r *run) rest() {
	for name := range r.g.vals {
		switch {
		case strings.HasPrefix(name, "spec.") || strings.HasPrefix(name, "speculate."):
			r.NotBuilt["drafts"]++
		case strings.HasPrefix(name, "vl."):
			r.NotBuilt["vision"]++
		case !r.g.read[name]:
			r.Unread = append(r.Unread, name)
		}
	}
	sort.Strings(r.Unread)
}

// end-to-end goldens: R1 for the canonical back end; for others R3 where the goldens have no sub-layers.
func (r *run) compare(section, name string, got []float32) {
	want, ok := r.g.get(name)
	if !ok {
		return
	}
	width := r.g.width(name)
	switch {
	case r.canonical:
		r.add(section, name, "R1", bitEqual, got, want, width)
	case r.robust():
		r.add(section, name, "R3", smoke, got, want, width)
	}
}

func (r *run) compareInts(section, name string, got []int32) {
	want, ok := r.g.get(name)
	if !ok || !r.canonical && !r.robust() {
		return
	}
	level := "R1"
	if !r.canonical {
		level = "R3"
	}
	r.add(section, name, level, bitEqual, floats(got), want, 1)
}

func (r *run) robust() bool { return r.g.vals["L0.h_out"] == nil }

var smoke = rule{"equal argmax per row, relative error <= 0.35", func(got, want []float32, width int) string {
	var d, n float64
	for i := range want {
		d += float64(got[i]-want[i]) * float64(got[i]-want[i])
		n += float64(want[i]) * float64(want[i])
	}
	if !(d <= 0.35*0.35*n) {
		return fmt.Sprintf("squared error %.3g of %.3g", d, n)
	}
	for i := 0; i+width <= len(want); i += width {
		if a, b := argmax(got[i:i+width]), argmax(want[i:i+width]); a != b {
			return fmt.Sprintf("row %d: argmax %d, want %d", i/width, a, b)
		}
	}
	return ""
}}

func floats[T int32 | int64](v []T) []float32 {
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(x)
	}
	return out
}

// self is an R4 comparison with the back end's own one-shot exact result.
func (r *run) self(section, name string, got, want []float32) {
	r.add(section, name, "R4", bitEqual, got, want, r.Config.VocabSize)
}

func (r *run) kvBytes(s *session) (map[int][]byte, error) {
	out := map[int][]byte{}
	for _, l := range r.Config.KVSources {
		n := s.q.Pos() / r.Config.CompressRatios[l]
		for _, read := range []func(*model.Sequence, int, int) ([]byte, []byte, error){s.m.MainKVRows, s.m.IndexKeyRows} {
			codes, scales, err := read(s.q, l, n)
			if err != nil {
				return nil, err
			}
			out[l] = slices.Concat(out[l], codes, scales)
		}
	}
	return out, nil
}
