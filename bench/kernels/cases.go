package main

import (
	"fmt"

	ced "cedrun/cuda"
	"cedrun/runtime/plan"
)

// call is a kernel call to be timed: what it reads and multiplies, and how it is made ready. run is called again and
// again, each time on other weights.
type call struct {
	kernel, what string
	rows         int
	work         []plan.Call // weights, lookups, FLOPs
	activations  int         // bytes read and written
	run          func() error
}

// prepare lays out a case for rows; ok is false when the geometry has no such call.
type prepare func(r *rig, rows int) (c call, ok bool)

const (
	attendPos = 8191 // positions of queries, deep enough for a full selection
	ringRows  = 133  // a window and drafts
)

// cases lists every kernel, those of matrices once per matrix of a layer.
func cases() []prepare {
	dense := func(what string, x, w plan.Format, most int, shape func(*rig) (n, k, groups int)) prepare {
		return func(r *rig, rows int) (call, bool) {
			n, k, groups := shape(r)
			if n*k == 0 || rows > most {
				return call{}, false
			}
			return denseGEMM(r, what, x, w, rows, n, k, groups), true
		}
	}
	const all = 1 << 30
	return []prepare{
		dense("wq_a", plan.FP8, plan.FP8, all, func(r *rig) (int, int, int) { return r.c.QLoraRank, r.c.HiddenSize, 1 }),
		dense("wq_b", plan.FP8, plan.FP8, all, func(r *rig) (int, int, int) { return r.c.Heads * r.c.HeadDim, r.c.QLoraRank, 1 }),
		dense("wkv", plan.FP8, plan.FP8, all, func(r *rig) (int, int, int) { return r.c.HeadDim, r.c.HiddenSize, 1 }),
		dense("wo_a", plan.BF16, plan.FP8, all, func(r *rig) (int, int, int) {
			return r.c.OLoraRank, r.c.Heads * r.c.HeadDim / r.c.OGroups, r.c.OGroups
		}),
		dense("wo_b", plan.FP8, plan.FP8, all, func(r *rig) (int, int, int) { return r.c.HiddenSize, r.c.OGroups * r.c.OLoraRank, 1 }),
		dense("compressor wkv", plan.BF16, plan.BF16, all, func(r *rig) (int, int, int) { return r.c.HeadDim, r.c.HiddenSize, 1 }),
		dense("indexer wk", plan.BF16, plan.BF16, all, func(r *rig) (int, int, int) { return r.c.IndexHeadDim, r.c.HeadDim, 1 }),
		dense("indexer wq_b", plan.FP8, plan.FP8, all, func(r *rig) (int, int, int) { return r.c.IndexHeads * r.c.IndexHeadDim, r.c.QLoraRank, 1 }),
		dense("indexer weights", plan.BF16, plan.BF16, all, func(r *rig) (int, int, int) { return r.c.IndexHeads, r.c.HiddenSize, 1 }),
		dense("router", plan.BF16, plan.BF16, all, func(r *rig) (int, int, int) { return r.c.Experts, r.c.HiddenSize, 1 }),
		dense("engram wkv", plan.FP8, plan.FP8, all, func(r *rig) (int, int, int) {
			if len(r.c.Engram.Layers) == 0 {
				return 0, 0, 0
			}
			return r.c.HiddenSize * (r.c.HCMult + 1), r.c.Engram.Columns() * r.c.Engram.HeadDim, 1
		}),
		dense("head", plan.BF16, plan.BF16, decodeRows, func(r *rig) (int, int, int) { return r.c.VocabSize, r.c.HiddenSize, 1 }),
		experts, mix, collapse, expand, border,
		norm("hidden", func(r *rig) int { return r.c.HiddenSize }), norm("output", func(r *rig) int { return r.c.OGroups * r.c.OLoraRank }),
		rope, route, index(8192), index(cachePages * 64), attend(false), attend(true), windowPack, windowCommit, compress, kvAppend,
		gather, gate, embed, compact, take,
	}
}

func work(s plan.Shape, rows, depth, lookup int) []plan.Call {
	return []plan.Call{{Shape: s, Rows: float64(rows), Depth: float64(depth), Lookup: float64(lookup)}}
}

var (
	bytesOf32 = [...]int{plan.FP8: 32, plan.FP4: 16, plan.BF16: 64, plan.F32: 128}
	formats   = [...]ced.Format{plan.FP8: ced.FP8, plan.FP4: ced.FP4, plan.BF16: ced.BF16, plan.F32: ced.F32}
)

func denseGEMM(r *rig, what string, x, w plan.Format, rows, n, k, groups int) call {
	size := n * k * groups / 32 * bytesOf32[w]
	a := ced.DenseGEMMArgs{
		Rows: r.rows(rows, attendPos), Y: r.space(4 * rows * n * groups), WScales: r.scales, MaxRows: uint32(rows), N: uint32(n), K: uint32(k),
		Groups: uint32(groups), XFormat: formats[x], WFormat: formats[w], YFormat: ced.BF16,
	}
	if x == plan.FP8 {
		a.X, a.XScales = r.fp8s(rows*k*groups), r.bytes(rows*k*groups/32, 0x79)
	} else {
		a.X = r.bf16s(rows * k * groups)
	}
	return call{
		kernel: "dense_gemm", what: fmt.Sprintf("%s %d x %d", what, n*groups, k), rows: rows, activations: rows * groups * (k*bytesOf32[x]/32 + 2*n),
		work: work(plan.Shape{Kernel: plan.Product, Weights: w, N: n, K: k, Groups: groups}, rows, 0, 0),
		run: func() error {
			a.W = r.weights(size)
			return r.s.DenseGEMM(&a)
		},
	}
}

// experts run as a layer does: routed ones of random choice, and the shared one.
func experts(r *rig, rows int) (call, bool) {
	c := r.c
	one := (c.MoEIntermediate*c.HiddenSize/2 + 63) &^ 63
	chosen := make([]int32, 0, rows*c.ExpertsPerToken)
	distinct := map[int32]bool{}
	for range rows {
		for _, e := range r.random.Perm(c.Experts)[:c.ExpertsPerToken] {
			chosen, distinct[int32(e)] = append(chosen, int32(e)), true
		}
	}
	table := make([]ced.Expert, c.Experts)
	a := ced.ExpertGEMMArgs{
		Rows: r.rows(rows, attendPos), X: r.fp8s(rows * c.HiddenSize), XScales: r.bytes(rows*c.HiddenSize/32, 0x79), Idx: put(r, chosen),
		Weights: r.f32s(len(chosen), 0, 1), Experts: put(r, table), Y: r.space(2 * rows * c.HiddenSize), MaxRows: uint32(rows),
		ExpertsCount: uint32(c.Experts), TopK: uint32(c.ExpertsPerToken), Dim: uint32(c.HiddenSize), Inter: uint32(c.MoEIntermediate), Limit: c.SwiGLULimit,
	}
	a.Workspace = r.space(r.s.ExpertGEMMWorkspace(&a))
	next := func(size int) ced.Expert {
		return ced.Expert{W1: r.weights(size), W1Scales: r.scales, W3: r.weights(size), W3Scales: r.scales, W2: r.weights(size), W2Scales: r.scales}
	}
	out := call{
		kernel: "expert_gemm", rows: rows, activations: rows * c.HiddenSize * 3,
		work: work(plan.Shape{Kernel: plan.Experts, Weights: plan.FP4, N: c.MoEIntermediate, K: c.HiddenSize, Groups: c.ExpertsPerToken}, rows, len(distinct), 0),
	}
	out.what = fmt.Sprintf("%d of %d experts, width %d", len(distinct), c.Experts, c.MoEIntermediate)
	if c.SharedExperts > 0 {
		out.what += ", shared"
		out.work = append(out.work, work(plan.Shape{Kernel: plan.Shared, Weights: plan.FP8, N: c.MoEIntermediate, K: c.HiddenSize}, rows, 0, 0)...)
	}
	ids := make([]int32, 0, len(distinct))
	for e := range distinct {
		ids = append(ids, e)
	}
	out.run = func() error {
		for _, e := range ids {
			table[e] = next(one)
		}
		if c.SharedExperts > 0 {
			a.Shared = next(2 * one)
		}
		if err := r.s.Upload(a.Experts, bytesOf(table)); err != nil {
			return err
		}
		return r.s.ExpertGEMM(&a)
	}
	return out, true
}

func mix(r *rig, rows int) (call, bool) {
	c, n := r.c, r.c.HCMult
	outputs := (2 + n) * n
	a := ced.MHCMixArgs{
		Rows: r.rows(rows, attendPos), H: r.bf16s(rows * n * c.HiddenSize), Base: r.f32s(outputs, -1, 1), Scale: r.f32s(3, 0, 1), Pre: r.space(4 * rows * n),
		Post: r.space(4 * rows * n), Comb: r.space(4 * rows * n * n), MaxRows: uint32(rows), Dim: uint32(c.HiddenSize), Streams: uint32(n),
		Iters: uint32(c.HCSinkhornIters), NormEps: c.NormEps, HcEps: c.HCEps,
	}
	return call{
		kernel: "mhc_mix", rows: rows, activations: 2 * rows * n * c.HiddenSize,
		work: work(plan.Shape{Kernel: plan.Mix, Weights: plan.F32, N: n, K: c.HiddenSize}, rows, 0, 0),
		run: func() error {
			a.Fn = r.weights(4 * outputs * n * c.HiddenSize)
			return r.s.MHCMix(&a)
		},
	}, true
}

// move is a call whose work is its activations.
func move(kernel, what string, rows, bytes int, run func() error) (call, bool) {
	return call{kernel: kernel, what: what, rows: rows, activations: bytes, run: run}, true
}

func collapse(r *rig, rows int) (call, bool) {
	n, d := r.c.HCMult, r.c.HiddenSize
	a := ced.MHCCollapseArgs{
		Rows: r.rows(rows, attendPos), H: r.bf16s(rows * n * d), Pre: r.f32s(rows*n, 0, 1), X: r.space(2 * rows * d), MaxRows: uint32(rows), Dim: uint32(d), Streams: uint32(n),
	}
	return move("mhc_collapse", "", rows, 2*rows*(n+1)*d, func() error { return r.s.MHCCollapse(&a) })
}

func expand(r *rig, rows int) (call, bool) {
	n, d := r.c.HCMult, r.c.HiddenSize
	a := ced.MHCExpandArgs{
		Rows: r.rows(rows, attendPos), Y: r.bf16s(rows * d), Post: r.f32s(rows*n, 0, 1), Comb: r.f32s(rows*n*n, 0, 1/float32(n)), H: r.bf16s(rows * n * d),
		MaxRows: uint32(rows), Dim: uint32(d), Streams: uint32(n),
	}
	return move("mhc_expand", "", rows, 2*rows*(2*n+1)*d, func() error { return r.s.MHCExpand(&a) })
}

func border(r *rig, rows int) (call, bool) {
	c, n, d := r.c, r.c.HCMult, r.c.HiddenSize
	outputs := (2 + n) * n
	a := ced.MHCBorderArgs{
		Rows: r.rows(rows, attendPos), Y: r.bf16s(rows * d), H: r.bf16s(rows * n * d), Post: r.f32s(rows*n, 0, 1), Comb: r.f32s(rows*n*n, 0, 1/float32(n)),
		Pre: r.f32s(rows*n, 0, 1), Next: r.space(4 * rows * n), Base: r.f32s(outputs, -1, 1), Scale: r.f32s(3, 0, 1),
		Weight: r.bf16s(d), WeightFormat: ced.BF16, X: r.space(2 * rows * d), Codes: r.space(rows * d), Scales: r.space(rows * d / 32),
		MaxRows: uint32(rows), Dim: uint32(d), Streams: uint32(n), Iters: uint32(c.HCSinkhornIters), NormEps: c.NormEps, HcEps: c.HCEps,
	}
	return call{
		kernel: "mhc_border", rows: rows, activations: rows * (4*n + 5) * d,
		work: work(plan.Shape{Kernel: plan.Border, Weights: plan.F32, N: n, K: d}, rows, 0, 0),
		run: func() error {
			a.Fn = r.weights(4 * outputs * n * d)
			return r.s.MHCBorder(&a)
		},
	}, true
}

func norm(what string, width func(*rig) int) prepare {
	return func(r *rig, rows int) (call, bool) {
		n := width(r)
		a := ced.NormQuantArgs{
			Rows: r.rows(rows, attendPos), X: r.bf16s(rows * n), Weight: r.bf16s(n), WeightFormat: ced.BF16, Y: r.space(2 * rows * n), Codes: r.space(rows * n),
			Scales: r.space(rows * n / 32), MaxRows: uint32(rows), N: uint32(n), Eps: r.c.NormEps,
		}
		return move("norm_quant", fmt.Sprintf("%s %d", what, n), rows, 5*rows*n, func() error { return r.s.NormQuant(&a) })
	}
}

func rope(r *rig, rows int) (call, bool) {
	c := r.c
	a := ced.RoPEArgs{
		Rows: r.rows(rows, attendPos), X: r.bf16s(rows * c.Heads * c.HeadDim), Freqs: r.freqs(), MaxRows: uint32(rows), Heads: uint32(c.Heads),
		Dim: uint32(c.HeadDim), RoPEDim: uint32(c.RopeDim),
	}
	return move("rope", fmt.Sprintf("%d heads", c.Heads), rows, 4*rows*c.Heads*c.RopeDim, func() error { return r.s.RoPE(&a) })
}

func route(r *rig, rows int) (call, bool) {
	c := r.c
	a := ced.RouteArgs{
		Rows: r.rows(rows, attendPos), Logits: r.f32s(rows*c.Experts, -4, 4), Bias: r.f32s(c.Experts, 0, 0.1), BiasFormat: ced.F32, Idx: r.space(4 * rows * c.ExpertsPerToken),
		Weights: r.space(4 * rows * c.ExpertsPerToken), MaxRows: uint32(rows), Experts: uint32(c.Experts), TopK: uint32(c.ExpertsPerToken), Normalise: 1,
		Temperature: c.GateTemp, RouteScale: c.RouteScale,
	}
	return move("route", fmt.Sprintf("%d of %d", c.ExpertsPerToken, c.Experts), rows, 4*rows*c.Experts, func() error { return r.s.Route(&a) })
}
