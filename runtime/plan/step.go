package plan

import (
	"math"

	"cedrun/runtime/config"
)

// Kernel is a kind of work that a step consists of.
type Kernel uint8

const (
	Product  Kernel = iota // dense_gemm: Groups x [N, K] weights
	Experts                // expert_gemm, routed: Groups experts per row, [N, K] twice and [K, N] each
	Shared                 // expert_gemm, the shared expert
	Mix                    // mhc_mix: N streams of K channels, Groups iterations
	Collapse               // mhc_collapse
	Expand                 // mhc_expand
	Border                 // mhc_border: the same three and the norm; without Weights, no new mixes; Activations FP8: quantised
	Norm                   // norm_quant of K channels
	Rotate                 // rope: N heads of K channels, Groups of them rotary
	Route                  // route: N experts, Groups chosen
	Index                  // csa2_index: N heads of K channels, Groups selected
	Attend                 // csa2_attend: N heads of K channels
	Move                   // the small rest: packing, gathering, appending K channels per row
	Sample                 // choosing a token among N, on the host
	Layer                  // what the host does for a layer between kernels
)

var kernelNames = [...]string{
	"dense_gemm", "expert_gemm", "expert_gemm (shared)", "mhc_mix", "mhc_collapse", "mhc_expand", "mhc_border", "norm_quant",
	"rope", "route", "csa2_index", "csa2_attend", "data movement", "sample", "host",
}

func (k Kernel) String() string { return kernelNames[k] }

// Format is how weights or activations are stored.
type Format uint8

const (
	None Format = iota
	FP8         // E4M3 with a scale per 32 x 32
	FP4         // E2M1 with a scale per row and 32
	BF16
	F32
)

var formatNames = [...]string{"", "FP8", "FP4", "BF16", "F32"}

func (f Format) String() string { return formatNames[f] }

// bytes is the size of n elements with their scales.
func (f Format) bytes(n float64) float64 {
	switch f {
	case FP8:
		return n * (1 + 1./1024)
	case FP4:
		return n * (0.5 + 1./32)
	case BF16:
		return n * 2
	case F32:
		return n * 4
	}
	return 0
}

// Shape is what a kernel's cost depends on beside rows and depth.
type Shape struct {
	Kernel       Kernel
	Weights      Format
	Activations  Format // of Product and Border: FP8 or BF16
	N, K, Groups int
}

// Call is a kernel call. Depth is the number of distinct experts (Experts), of scored groups (Index) or of keys
// (Attend) per row.
type Call struct {
	Shape
	Layer       int // -1: outside layers
	Part        Part
	Rows, Depth float64
	Lookup      float64 // bytes of cache and table rows that the call reads, those that its rows share once
}

// Bytes is the size of the weights that a call reads.
func (c *Call) Bytes() float64 {
	n, k, g := float64(c.N), float64(c.K), float64(c.Groups)
	switch c.Kernel {
	case Product:
		return c.Weights.bytes(n * k * g)
	case Experts:
		return c.Weights.bytes(3 * n * k * c.Depth)
	case Shared:
		return c.Weights.bytes(3 * n * k)
	case Mix, Border:
		return c.Weights.bytes((2 + n) * n * n * k)
	}
	return 0
}

// FLOPs are the multiplications and additions of products: of weights, of queries with keys, of probabilities with
// values. What is done once per activation (norms, rotation, softmax) is not counted.
func (c *Call) FLOPs() float64 {
	n, k, g := float64(c.N), float64(c.K), float64(c.Groups)
	switch c.Kernel {
	case Product:
		return 2 * c.Rows * n * k * g
	case Experts:
		return 6 * c.Rows * n * k * g
	case Shared:
		return 6 * c.Rows * n * k
	case Mix, Border:
		if c.Weights == None {
			return 0
		}
		return 2 * c.Rows * (2 + n) * n * n * k
	case Index:
		return 2 * c.Rows * c.Depth * n * (k + 1) // heads are summed by their weights
	case Attend:
		return 4 * c.Rows * c.Depth * n * k
	}
	return 0
}

// Visit receives the calls of a step, and how often each happens; less than once for calls that not every step makes.
type Visit func(c Call, times float64)

// rows counts the rows of a step that take part in a layer: that enter it, leave window rows, attend. Windows begin at
// position start.
type rows struct {
	enter, window, query float64
	start                int
}

// walker lists the calls of a step.
type walker struct {
	c        *config.Config
	schedule []config.Layer
	visit    Visit
	at       int // layer
	part     Part
	end      int  // position after the last row's
	apart    bool // every row is of its own sequence, at the same position, and shares no keys
}

func (w *walker) emit(s Shape, rows, depth, lookup, times float64) {
	w.visit(Call{Shape: s, Layer: w.at, Part: w.part, Rows: rows, Depth: depth, Lookup: lookup}, times)
}

// mean averages f over the positions of the last rows of the step.
func (w *walker) mean(rows float64, f func(pos int) int) float64 {
	n := int(rows)
	if w.apart {
		n = 1
	}
	sum := 0
	for p := w.end - n; p < w.end; p++ {
		sum += f(p)
	}
	return float64(sum) / float64(max(n, 1))
}

func (w *walker) call(k Kernel, f Format, rows float64, n, kk, groups int) {
	if rows > 0 {
		w.emit(Shape{Kernel: k, Weights: f, N: n, K: kk, Groups: groups}, rows, 0, 0, 1)
	}
}

// keys visits a call whose rows read depth keys, lookup bytes. Rows of different sequences count as calls of their own.
func (w *walker) keys(k Kernel, rows, depth, lookup float64, groups, n, kk int) {
	times := 1.
	if w.apart {
		rows, times = 1, rows
	}
	w.emit(Shape{Kernel: k, N: n, K: kk, Groups: groups}, rows, depth, lookup, times)
}

func (w *walker) product(f, x Format, rows float64, n, k, groups int) {
	if rows > 0 {
		w.emit(Shape{Product, f, x, n, k, groups}, rows, 0, 0, 1)
	}
}

func (w *walker) norm(rows float64, n int) { w.call(Norm, None, rows, 0, n, 0) }
func (w *walker) move(rows float64, n int) { w.call(Move, None, rows, 0, n, 0) }

// step walks a step of rows, whose layers take part in it as of says, and outputs rows of logits.
func (w *walker) step(all float64, of func(layer int) rows, outputs float64) {
	c := w.c
	w.at, w.part = -1, PartEmbedding
	w.emit(Shape{Kernel: Move, K: c.HCMult * c.HiddenSize}, all, 0, all*float64(2*c.HiddenSize), 1)
	for i := range w.schedule {
		r := of(i)
		if r.enter == 0 {
			return
		}
		if i == len(w.schedule)-1 {
			r.query = min(r.query, outputs) // what leaves the last layer is read by the head alone
		}
		w.at = i
		w.layer(&w.schedule[i], r)
	}
	w.at = -1
	if outputs == 0 {
		return
	}
	w.part = PartHead
	w.border(outputs, false, false)
	w.move(outputs, c.HiddenSize)
	w.product(BF16, BF16, outputs, c.VocabSize, c.HiddenSize, 1)
}

// border visits what lies between two sub-layers. That it adds no output to the streams at the start and behind an Engram is
// not told apart.
func (w *walker) border(rows float64, quantised, mixed bool) {
	s := Shape{Kernel: Border, Activations: BF16, N: w.c.HCMult, K: w.c.HiddenSize}
	if quantised {
		s.Activations = FP8
	}
	if mixed {
		s.Weights, s.Groups = F32, w.c.HCSinkhornIters
	}
	w.emit(s, rows, 0, 0, 1)
}

// layer follows model.pass.layer, kernel by kernel.
func (w *walker) layer(l *config.Layer, r rows) {
	c, d := w.c, w.c.HiddenSize
	w.part = PartScheduler
	w.call(Layer, None, 1, 0, 0, 0)
	if l.Engram >= 0 {
		if w.at > 0 {
			w.part = PartMixing
			w.call(Expand, None, r.enter, c.HCMult, d, 0)
		}
		w.part = PartEngram
		wide := c.Engram.Columns() * c.Engram.HeadDim
		w.emit(Shape{Kernel: Move, K: wide}, r.enter, 0, r.enter*float64(wide+wide/32), 1)
		w.norm(r.enter, wide)
		w.product(FP8, FP8, r.enter, (c.HCMult+1)*d, wide, 1)
		w.move(r.enter, 2*c.HCMult*d)
	}
	w.part = PartMixing
	quantised, mixed := r.window == r.enter, r.query == r.enter
	w.border(r.enter, quantised, mixed)
	if l.OwnsKV {
		w.part = PartCompressor
		w.compress(l, r.enter)
	}
	w.part = PartProjections
	if r.window > 0 {
		if !quantised {
			w.move(r.window, d)
			w.norm(r.window, d)
		}
		w.product(FP8, FP8, r.window, c.HeadDim, d, 1)
		w.move(r.window, c.HeadDim)
		w.move(r.window, c.HeadDim)
	}
	if r.query == 0 {
		return
	}
	if r.query != r.enter {
		w.move(r.query, (c.HCMult+1)*d)
	}
	if !mixed {
		w.part = PartMixing
		w.call(Mix, F32, r.query, c.HCMult, d, c.HCSinkhornIters)
	}
	w.attention(l, r)
	w.part = PartMixing
	w.border(r.query, true, true)
	w.part = PartRouter
	w.product(BF16, BF16, r.query, c.Experts, d, 1)
	w.call(Route, None, r.query, c.Experts, 0, c.ExpertsPerToken)
	w.part = PartExperts
	w.emit(Shape{Kernel: Experts, Weights: FP4, N: c.MoEIntermediate, K: d, Groups: c.ExpertsPerToken}, r.query, distinct(c, r.query), 0, 1)
	if c.SharedExperts > 0 {
		w.part = PartShared
		w.call(Shared, FP8, r.query, c.MoEIntermediate, d, 0)
	}
}

// compress makes the global rows of groups; with fewer rows than a group has, only some steps close one.
func (w *walker) compress(l *config.Layer, rows float64) {
	c := w.c
	if l.Ratio > 1 {
		w.product(BF16, BF16, rows, c.HeadDim, c.HiddenSize, 1)
	}
	w.product(BF16, BF16, rows, c.HeadDim, c.HiddenSize, 1)
	w.move(rows, c.HeadDim)
	groups, times := rows/float64(l.Ratio), 1.
	if groups < 1 {
		groups, times = 1, groups
	}
	w.emit(Shape{Product, BF16, BF16, c.IndexHeadDim, c.HeadDim, 1}, groups, 0, 0, times)
	w.emit(Shape{Kernel: Move, K: c.HeadDim + c.IndexHeadDim}, groups, 0, 0, times)
}

func (w *walker) attention(l *config.Layer, r rows) {
	c, d, q := w.c, w.c.HiddenSize, r.query
	w.part = PartProjections
	if r.query != r.window || r.window != r.enter {
		w.norm(q, d)
	}
	w.product(FP8, FP8, q, c.QLoraRank, d, 1)
	w.norm(q, c.QLoraRank)
	w.product(FP8, FP8, q, c.Heads*c.HeadDim, c.QLoraRank, 1)
	w.call(Rotate, None, q, c.Heads, c.HeadDim, c.RopeDim)
	if l.OwnsIndex {
		w.index(l, q)
	}
	w.part = PartAttention
	w.core(l, q, r.start)
	w.call(Rotate, None, q, c.Heads, c.HeadDim, c.RopeDim)
	w.part = PartProjections
	w.product(FP8, BF16, q, c.OLoraRank, c.Heads*c.HeadDim/c.OGroups, c.OGroups)
	w.norm(q, c.OGroups*c.OLoraRank)
	w.product(FP8, FP8, q, d, c.OGroups*c.OLoraRank, 1)
}

// seen is the number of global rows that the query at a position may see.
func seen(l *config.Layer, pos int) int {
	if l.Ratio == 0 {
		return 0
	}
	return (pos + 1) / l.Ratio
}

// index visits the indexer of q query rows. Where all rows are taken, none is scored.
func (w *walker) index(l *config.Layer, q float64) {
	c := w.c
	w.part = PartIndexer
	w.product(FP8, FP8, q, c.IndexHeads*c.IndexHeadDim, c.QLoraRank, 1)
	w.product(BF16, BF16, q, c.IndexHeads, c.HiddenSize, 1)
	scored := func(pos int) int {
		n := seen(l, pos)
		if n <= c.IndexTopK {
			return 0
		}
		if l.Restricted {
			n = min(n, c.CandidateTopKBlocks*c.CandidateBlock)
		}
		return n
	}
	keys := seen(l, w.end-1) // of which rows of one sequence share what they read
	if scored(w.end-1) == 0 {
		keys = 0
	} else if l.Restricted {
		keys = min(keys, int(q)*c.CandidateTopKBlocks*c.CandidateBlock)
	}
	if w.apart {
		keys = scored(w.end - 1)
	}
	w.keys(Index, q, w.mean(q, scored), float64(keys*c.IndexRowBytes()), c.IndexTopK, c.IndexHeads, c.IndexHeadDim)
}

// core visits the attention core of q query rows: a window, which begins at position start at the earliest, and selected
// global rows each.
func (w *walker) core(l *config.Layer, q float64, start int) {
	c := w.c
	window := func(pos int) int { return min(pos+1-start, c.Window) }
	selected := func(pos int) int { return min(seen(l, pos), c.IndexTopK) }
	n := int(q)
	if w.apart {
		n = 1
	}
	ring, global := min(w.end-start, n-1+c.Window), min(seen(l, w.end-1), n*c.IndexTopK) // distinct rows
	w.keys(Attend, q, w.mean(q, window)+w.mean(q, selected), float64(ring*c.WindowRowBytes()+global*c.MainRowBytes()), 0, c.Heads, c.HeadDim)
}

// distinct is the expected number of experts that rows use together, each row choosing uniformly.
func distinct(c *config.Config, rows float64) float64 {
	if c.Experts == 0 {
		return 0
	}
	n := float64(c.Experts)
	return n * (1 - math.Pow(1-float64(c.ExpertsPerToken)/n, rows))
}

// Decode visits the calls of a decode step of batch sequences that stand at a position.
func Decode(c *config.Config, batch, position int, visit Visit) {
	w := &walker{c: c, schedule: c.Schedule(), visit: visit, end: position + 1, apart: true}
	b := float64(batch)
	w.step(b, func(int) rows { return rows{enter: b, window: b, query: b} }, b)
	w.part = PartSampling
	w.call(Sample, None, b, c.VocabSize, 0, 0)
}

// Thresholds are the positions from which on a sequence's rows enter each layer, leave window rows there and attend
// there: model.Plan of a prefill mode and a prompt.
type Thresholds struct{ Enter, Window, Query []int }

const (
	exactChunks = 32 // the last chunks of a prompt are walked one by one
	someChunks  = 32 // of those before, this many stand for all
)

// Prompt visits the calls of the steps that process a prompt in chunks and compute the logits of its last row.
func Prompt(c *config.Config, t Thresholds, prompt, chunk int, visit Visit) {
	chunks := (prompt + chunk - 1) / chunk
	early := max(0, chunks-exactChunks)
	w := &walker{c: c, schedule: c.Schedule()}
	one := func(i int, times float64) {
		begin, end := i*chunk, min((i+1)*chunk, prompt)
		from := func(at int) float64 { return float64(end - min(max(at, begin), end)) }
		outputs := 0.
		if end == prompt {
			outputs = 1
		}
		w.end = end
		w.visit = func(c Call, n float64) { visit(c, n*times) }
		w.step(float64(end-begin), func(l int) rows {
			return rows{from(t.Enter[l]), from(t.Window[l]), from(t.Query[l]), t.Window[l]}
		}, outputs)
	}
	parts := min(early, someChunks)
	for p := range parts {
		begin, end := p*early/parts, (p+1)*early/parts
		one((begin+end-1)/2, float64(end-begin))
	}
	for i := early; i < chunks; i++ {
		one(i, 1)
	}
	visit(Call{Shape: Shape{Kernel: Sample, N: c.VocabSize}, Layer: -1, Part: PartSampling, Rows: 1}, 1)
}
