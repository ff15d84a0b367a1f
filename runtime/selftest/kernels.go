package selftest

import (
	"fmt"
	"slices"

	ced "cedrun/cuda"
)

// kernelCase is one call of a kernel on a fixed input. prepare lays out its operands and returns the call.
type kernelCase struct {
	kernel, what string // what tells cases of one kernel apart
	prepare      func(r *rig) func() error
}

func (c kernelCase) String() string {
	if c.what == "" {
		return c.kernel
	}
	return c.kernel + " (" + c.what + ")"
}

// Kernels runs every kernel of s on a small fixed input and compares it with the reference body. The error names the
// first kernel that is wrong.
func Kernels(s *ced.Stream) error {
	ref, err := ced.Open(ced.Ref, 0, 1)
	if err != nil {
		return fmt.Errorf("self-test: %w", err)
	}
	defer ref.Close()
	cases := kernelCases
	if !s.Host() {
		cases = slices.Concat(cases, promptCases)
	}
	return compare(s, ref, cases)
}

func compare(s, ref *ced.Stream, cases []kernelCase) error {
	a, err := newRig(s)
	if err != nil {
		return fmt.Errorf("self-test: %w", err)
	}
	defer a.close()
	b, err := newRig(ref)
	if err != nil {
		return fmt.Errorf("self-test: %w", err)
	}
	defer b.close()
	for _, c := range cases {
		want, err := b.run(c)
		if err != nil {
			return fmt.Errorf("self-test: kernel %s on backend %s: %w", c, ref.Kind(), err)
		}
		got, err := a.run(c)
		if err != nil {
			return fmt.Errorf("self-test: kernel %s on backend %s: %w", c, s.Kind(), err)
		}
		for i, o := range a.out {
			if why := o.judge(got[i], want[i]); why != "" {
				return fmt.Errorf("self-test: kernel %s of backend %s computes wrongly on this machine: %s; %s", c, s.Kind(), why, remedy(s.Kind()))
			}
		}
	}
	return nil
}

// remedy is what to do where a back end computes wrongly.
func remedy(k ced.Kind) string {
	if k == ced.CUDA {
		return "use --backend cpu, and scripts/gpu-check.sh to find more"
	}
	return "use another --backend, or rebuild with make clean all"
}

// Shapes of the cases: three rows of the sequence in slot 1 of 2, at positions 9 to 11, behind a window of 8.
const (
	rows    = 3
	slots   = 2
	dim     = 128
	streams = 4
	heads   = 4
	headDim = 64
	keyDim  = 32
	ropeDim = 16
	window  = 8
	ratio   = 2
	pageRow = 32
	eps     = 1e-20
	winRow  = headDim + headDim/32
)

// rows uploads the row set.
func (r *rig) rows() ced.Addr {
	return put(r, ced.Rows{
		Count: rows, Slots: slots, Token: put[int32](r, 5, 0, 14), Pos: put[int32](r, 9, 10, 11), Slot: put[int32](r, 1, 1, 1),
		Flags: put[uint32](r, 0, ced.RowImage, 0), SeqFirst: put[int32](r, -1, 0),
	})
}

// rowsOf uploads a set of n rows, from the same position on.
func (r *rig) rowsOf(n int) ced.Addr {
	if n == rows {
		return r.rows()
	}
	token, pos, slot := make([]int32, n), make([]int32, n), make([]int32, n)
	for i := range n {
		token[i], pos[i], slot[i] = int32(i%16), int32(9+i), 1
	}
	return put(r, ced.Rows{
		Count: int32(n), Slots: slots, Token: put(r, token...), Pos: put(r, pos...), Slot: put(r, slot...), Flags: put(r, make([]uint32, n)...), SeqFirst: put[int32](r, -1, 0),
	})
}

// groups closes the groups of positions 9 and 11.
func (r *rig) groups() ced.Addr { return put(r, ced.Groups{Count: 2, Row: put[int32](r, 0, 2)}) }

// kv makes a pool of two pages with random rows; page 1 belongs to slot 1.
func (r *rig) kv(headDim int, watched bool) ced.KV {
	mainCodes, mainScales := pageRow*headDim/2, pageRow*headDim/16
	const indexCodes, indexScales = pageRow * keyDim / 2, pageRow * keyDim / 32
	size := mainCodes + mainScales + indexCodes + indexScales
	var page []byte
	for range 2 {
		for range mainCodes {
			page = append(page, byte(r.next()>>56))
		}
		for range mainScales {
			page = append(page, r.fp8()&0x7F)
		}
		for range indexCodes {
			page = append(page, byte(r.next()>>56))
		}
		for range indexScales {
			page = append(page, r.scale())
		}
	}
	pages := put(r, page...)
	if watched {
		r.watch("kv", codes, pages, len(page), len(page))
	}
	return ced.KV{
		Pages: pages, Table: put[int32](r, 0, 1), PageBytes: uint64(size), MaxPages: 1, PageRows: pageRow, Ratio: ratio, HeadDim: uint32(headDim), IndexDim: keyDim,
		MainScales: uint32(mainCodes), IndexCodes: uint32(mainCodes + mainScales), IndexScales: uint32(mainCodes + mainScales + indexCodes),
	}
}

// windowRows makes n packed window rows.
func (r *rig) windowRows(n, headDim int) ced.Addr {
	var b []byte
	for range n {
		for range headDim {
			b = append(b, r.fp8())
		}
		for range headDim / 32 {
			b = append(b, r.scale())
		}
	}
	return put(r, b...)
}

// freqs are rotation frequencies.
func (r *rig) freqs() ced.Addr { return r.positive(ropeDim / 2) }

// expert makes one expert's tensors of weight format f.
func (r *rig) expert(f ced.Format, inter int) ced.Expert {
	matrix := func(n, k int) (w, s ced.Addr) {
		if f == ced.FP4 {
			return r.packed(n * k / 2), r.scales(n * k / 32)
		}
		return r.fp8s(n * k), r.scales(n / 32 * k / 32)
	}
	var e ced.Expert
	e.W1, e.W1Scales = matrix(inter, dim)
	e.W3, e.W3Scales = matrix(inter, dim)
	e.W2, e.W2Scales = matrix(dim, inter)
	return e
}

func gemm(what string, x, w, y ced.Format, groups, rows int) kernelCase {
	return kernelCase{"dense_gemm", what, func(r *rig) func() error {
		const n, k = 64, 128
		a := ced.DenseGEMMArgs{Rows: r.rowsOf(rows), MaxRows: uint32(rows), N: n, K: k, Groups: uint32(groups), XFormat: x, WFormat: w, YFormat: y}
		if x == ced.FP8 {
			a.X, a.XScales = r.fp8s(rows*groups*k), r.scales(rows*groups*k/32)
		} else {
			a.X = r.bf16s(rows * groups * k)
		}
		switch w {
		case ced.BF16:
			a.W = r.bf16s(groups * n * k)
		case ced.F32:
			a.W = r.f32s(groups * n * k)
		case ced.FP8:
			a.W, a.WScales = r.fp8s(groups*n*k), r.scales(groups*n/32*k/32)
		case ced.FP4:
			a.W, a.WScales = r.packed(groups*n*k/2), r.scales(groups*n*k/32)
		}
		a.Y = r.poison("y", map[ced.Format]kind{ced.BF16: bf16, ced.F32: f32}[y], rows*groups*n, groups*n)
		return func() error { return r.s.DenseGEMM(&a) }
	}}
}

func border(what string, rows int) kernelCase {
	return kernelCase{"mhc_border", what, func(r *rig) func() error {
		const mixes = (2 + streams) * streams
		a := ced.MHCBorderArgs{
			Rows: r.rowsOf(rows), Y: r.bf16s(rows * dim), H: r.watch("h", bf16, r.bf16s(rows*streams*dim), rows*streams*dim, dim),
			Post: r.watch("post", f32, r.f32s(rows*streams), rows*streams, streams), Comb: r.watch("comb", f32, r.positive(rows*streams*streams), rows*streams*streams, streams),
			Pre: r.positive(rows * streams), Next: r.poison("next", f32, rows*streams, streams),
			Fn: r.f32s(mixes * streams * dim), Base: r.f32s(mixes), Scale: r.positive(3), Weight: r.bf16s(dim), WeightFormat: ced.BF16, X: r.poison("x", bf16, rows*dim, dim),
			Codes: r.poison("codes", codes, rows*dim, dim), Scales: r.poison("scales", codes, rows*dim/32, dim/32),
			MaxRows: uint32(rows), Dim: dim, Streams: streams, Iters: 20, NormEps: eps, HcEps: 1e-6,
		}
		return func() error { return r.s.MHCBorder(&a) }
	}}
}

// kernelCases has every kernel of ced.h, in the order of a layer.
var kernelCases = []kernelCase{
	{"embed", "", func(r *rig) func() error {
		a := ced.EmbedArgs{
			Rows: r.rows(), Table: r.bf16s(16 * dim), TableFormat: ced.BF16, MaxRows: rows, Vocab: 16, Dim: dim, Streams: streams,
			H: r.poison("h", bf16, rows*streams*dim, dim), Pre: r.poison("pre", f32, rows*streams, streams),
		}
		return func() error { return r.s.Embed(&a) }
	}},
	{"engram_gather", "", func(r *rig) func() error {
		const n, cols, width = 16, 2, 64
		a := ced.EngramGatherArgs{
			Rows: r.rows(), IDs: put[int64](r, 0, 15, 3, 3, 8, 1), Table: r.fp8s(n * width), TableScales: r.scales(n * width / 32),
			E: r.poison("e", bf16, rows*cols*width, width), TableRows: n, MaxRows: rows, Cols: cols, Dim: width,
		}
		return func() error { return r.s.EngramGather(&a) }
	}},
	{"engram_gate", "", func(r *rig) func() error {
		a := ced.EngramGateArgs{
			Rows: r.rows(), KV: r.bf16s(rows * (streams + 1) * dim), QWeight: r.bf16s(streams * dim), KWeight: r.bf16s(streams * dim),
			H: r.watch("h", bf16, r.bf16s(rows*streams*dim), rows*streams*dim, dim), MaxRows: rows, Dim: dim, Streams: streams, WeightFormat: ced.BF16, Eps: eps,
		}
		return func() error { return r.s.EngramGate(&a) }
	}},
	{"mhc_mix", "", func(r *rig) func() error {
		const mixes = (2 + streams) * streams
		a := ced.MHCMixArgs{
			Rows: r.rows(), H: r.bf16s(rows * streams * dim), Fn: r.f32s(mixes * streams * dim), Base: r.f32s(mixes), Scale: r.positive(3),
			Pre: r.poison("pre", f32, rows*streams, streams), Post: r.poison("post", f32, rows*streams, streams),
			Comb: r.poison("comb", f32, rows*streams*streams, streams), MaxRows: rows, Dim: dim, Streams: streams, Iters: 20, NormEps: eps, HcEps: 1e-6,
		}
		return func() error { return r.s.MHCMix(&a) }
	}},
	{"mhc_collapse", "", func(r *rig) func() error {
		a := ced.MHCCollapseArgs{
			Rows: r.rows(), H: r.bf16s(rows * streams * dim), Pre: r.positive(rows * streams), X: r.poison("x", bf16, rows*dim, dim),
			MaxRows: rows, Dim: dim, Streams: streams,
		}
		return func() error { return r.s.MHCCollapse(&a) }
	}},
	{"mhc_expand", "", func(r *rig) func() error {
		a := ced.MHCExpandArgs{
			Rows: r.rows(), Y: r.bf16s(rows * dim), Post: r.f32s(rows * streams), Comb: r.positive(rows * streams * streams),
			H: r.watch("h", bf16, r.bf16s(rows*streams*dim), rows*streams*dim, dim), MaxRows: rows, Dim: dim, Streams: streams,
		}
		return func() error { return r.s.MHCExpand(&a) }
	}},
	border("", rows),
	{"norm_quant", "", func(r *rig) func() error {
		a := ced.NormQuantArgs{
			Rows: r.rows(), X: r.bf16s(rows * dim), Weight: r.bf16s(dim), WeightFormat: ced.BF16, Y: r.poison("y", bf16, rows*dim, dim),
			Codes: r.poison("codes", codes, rows*dim, dim), Scales: r.poison("scales", codes, rows*dim/32, dim/32), MaxRows: rows, N: dim, Eps: eps,
		}
		return func() error { return r.s.NormQuant(&a) }
	}},
	gemm("FP8 by FP8", ced.FP8, ced.FP8, ced.BF16, 1, rows),
	gemm("FP8 by FP4", ced.FP8, ced.FP4, ced.BF16, 1, rows),
	gemm("BF16 by FP8, two groups", ced.BF16, ced.FP8, ced.BF16, 2, rows),
	gemm("BF16 by BF16", ced.BF16, ced.BF16, ced.F32, 1, rows),
	gemm("BF16 by F32", ced.BF16, ced.F32, ced.F32, 1, rows),
	{"rope", "", func(r *rig) func() error {
		a := ced.RoPEArgs{
			Rows: r.rows(), X: r.watch("x", bf16, r.bf16s(rows*heads*headDim), rows*heads*headDim, headDim), Freqs: r.freqs(),
			MaxRows: rows, Heads: heads, Dim: headDim, RoPEDim: ropeDim,
		}
		return func() error { return r.s.RoPE(&a) }
	}},
	{"window_pack", "", func(r *rig) func() error {
		a := ced.WindowPackArgs{
			Rows: r.rows(), X: r.bf16s(rows * headDim), Weight: r.bf16s(headDim), WeightFormat: ced.BF16, Freqs: r.freqs(),
			Packed: r.poison("packed", codes, rows*winRow, winRow), MaxRows: rows, Dim: headDim, RoPEDim: ropeDim, Eps: eps,
		}
		return func() error { return r.s.WindowPack(&a) }
	}},
	{"window_commit", "", func(r *rig) func() error {
		a := ced.WindowCommitArgs{
			Rows: r.rows(), Packed: r.windowRows(rows, headDim), Ring: r.watch("ring", codes, r.windowRows(slots*window, headDim), slots*window*winRow, winRow),
			MaxRows: rows, RowBytes: winRow, RingRows: window,
		}
		return func() error { return r.s.WindowCommit(&a) }
	}},
	{"csa2_compress", "", func(r *rig) func() error {
		const open = slots * ratio * 2 * headDim
		a := ced.CSA2CompressArgs{
			Rows: r.rows(), Groups: r.groups(), A: r.f32s(rows * headDim), G: r.f32s(rows * headDim), Open: r.watch("open", f32, r.f32s(open), open, headDim),
			Weight: r.bf16s(headDim), WeightFormat: ced.BF16, Latent: r.poison("latent", bf16, 2*headDim, headDim),
			MaxRows: rows, Dim: headDim, Ratio: ratio, OpenRows: ratio, Eps: eps,
		}
		return func() error { return r.s.CSA2Compress(&a) }
	}},
	{"kv_append", "", func(r *rig) func() error {
		a := ced.KVAppendArgs{
			Rows: r.rows(), Groups: r.groups(), Latent: r.bf16s(2 * headDim), K: r.bf16s(2 * keyDim), KWeight: r.bf16s(keyDim), WeightFormat: ced.BF16,
			Freqs: r.freqs(), KV: r.kv(headDim, true), MaxGroups: rows, RoPEDim: ropeDim, Eps: eps,
		}
		return func() error { return r.s.KVAppend(&a) }
	}},
	{"csa2_index", "", func(r *rig) func() error {
		const topK, blocks = 3, 2
		a := ced.CSA2IndexArgs{
			Rows: r.rows(), Q: r.bf16s(rows * heads * keyDim), W: r.bf16s(rows * heads), Freqs: r.freqs(), KV: r.kv(headDim, false),
			Candidates: r.poison("candidates", i32, rows*blocks, blocks), Sel: r.poison("sel", i32, rows*topK, topK),
			MaxRows: rows, Heads: heads, RoPEDim: ropeDim, TopK: topK, MaxGroups: pageRow, Block: 2, MaxBlocks: blocks, Publish: 1, Scale: 1.0 / 16,
		}
		a.Workspace = r.take(r.s.CSA2IndexWorkspace(&a))
		return func() error { return r.s.CSA2Index(&a) }
	}},
	attend("", rows, heads, headDim),
	{"row_gather", "", func(r *rig) func() error {
		a := ced.RowGatherArgs{
			Rows: r.rows(), Index: put[int32](r, 4, 0, 2), Src: r.bf16s(5 * dim), Dst: r.poison("dst", bf16, rows*dim, dim), RowBytes: 2 * dim, MaxRows: rows,
		}
		return func() error { return r.s.RowGather(&a) }
	}},
	{"route", "", func(r *rig) func() error {
		const experts, topK = 16, 3
		a := ced.RouteArgs{
			Rows: r.rows(), Logits: r.f32s(rows * experts), Bias: r.f32s(experts), BiasVL: r.f32s(experts), BiasFormat: ced.F32,
			Idx: r.poison("idx", i32, rows*topK, topK), Weights: r.poison("weights", f32, rows*topK, topK),
			MaxRows: rows, Experts: experts, TopK: topK, Normalise: 1, Temperature: 1, RouteScale: 1.5,
		}
		return func() error { return r.s.Route(&a) }
	}},
	routedExperts("", rows, 3, false),
	{"greedy", "", func(r *rig) func() error {
		const vocab = 100
		a := ced.GreedyArgs{Rows: r.rows(), Logits: r.f32s(rows * vocab), IDs: r.poison("ids", i32, rows, 1), MaxRows: rows, Vocab: vocab}
		return func() error { return r.s.Greedy(&a) }
	}},
}
