package main

import (
	"fmt"
	"math"

	ced "cedrun/cuda"
	"cedrun/runtime/plan"
)

// index is the indexer over groups of a ratio-1 cache; all rows at the end of their sequences.
func index(groups int) prepare {
	return func(r *rig, rows int) (call, bool) {
		c := r.c
		cache, ok := r.kv(1, rows, groups)
		if !ok || groups > 1<<14 && rows > 1 || c.IndexHeads == 0 {
			return call{}, false
		}
		a := ced.CSA2IndexArgs{
			Rows: r.rows(rows, groups-1), Q: r.bf16s(rows * c.IndexHeads * c.IndexHeadDim), W: r.bf16s(rows * c.IndexHeads), Freqs: r.freqs(), KV: cache,
			Sel: r.space(4 * rows * c.IndexTopK), MaxRows: uint32(rows), Heads: uint32(c.IndexHeads), RoPEDim: uint32(c.RopeDim), TopK: uint32(c.IndexTopK),
			MaxGroups: cache.MaxPages * cache.PageRows, Scale: float32(1 / math.Sqrt(float64(c.IndexHeads*c.IndexHeadDim))),
		}
		what := fmt.Sprintf("%d keys", groups)
		if c.CandidateSource >= 0 {
			a.Candidates, a.Block, a.MaxBlocks, a.Publish = r.space(4*rows*c.CandidateTopKBlocks), uint32(c.CandidateBlock), uint32(c.CandidateTopKBlocks), 1
			what += ", candidates"
		}
		a.Workspace = r.space(r.s.CSA2IndexWorkspace(&a))
		return call{
			kernel: "csa2_index", what: what, rows: rows, activations: rows * (2*c.IndexHeads*(c.IndexHeadDim+1) + 4*c.IndexTopK),
			work: work(plan.Shape{Kernel: plan.Index, N: c.IndexHeads, K: c.IndexHeadDim}, rows, groups, slots(rows)*groups*c.IndexRowBytes()),
			run:  func() error { return r.s.CSA2Index(&a) },
		}, true
	}
}

// attend is the attention core over a full window, with a full selection or without.
func attend(selected bool) prepare {
	return func(r *rig, rows int) (call, bool) {
		c := r.c
		set := r.rows(rows, attendPos)
		a := ced.CSA2AttendArgs{
			Rows: set, KeyRows: set, Q: r.bf16s(rows * c.Heads * c.HeadDim), Packed: r.ring(rows), Ring: r.ring(slots(rows) * ringRows),
			WindowStart: r.bytes(4*slots(rows), 0), Sink: r.f32s(c.Heads, -1, 1), O: r.space(2 * rows * c.Heads * c.HeadDim), MaxRows: uint32(rows),
			Heads: uint32(c.Heads), HeadDim: uint32(c.HeadDim), Window: uint32(c.Window), RingRows: ringRows, TopK: uint32(c.IndexTopK),
		}
		what, keys, lookup := "window", c.Window, (rows-slots(rows)+c.Window*slots(rows))*c.WindowRowBytes()
		if selected {
			cache, ok := r.kv(2, rows, attendPos+1)
			if !ok {
				if cache, ok = r.kv(1, rows, attendPos+1); !ok {
					return call{}, false
				}
			}
			seen := (attendPos - rows) / int(cache.Ratio)
			sel, distinct := make([]int32, 0, rows*c.IndexTopK), map[int32]bool{}
			for range rows {
				at := 0
				for i := range c.IndexTopK { // ascending, one of each part
					at = max(at+1, seen*i/c.IndexTopK+r.random.IntN(max(seen/c.IndexTopK, 1)))
					sel, distinct[int32(at-1)] = append(sel, int32(at-1)), true
				}
			}
			if a.Sel, a.KV = put(r, sel), cache; slots(rows) > 1 {
				lookup += len(sel) * c.MainRowBytes()
			} else {
				lookup += len(distinct) * c.MainRowBytes()
			}
			what, keys = fmt.Sprintf("window and %d selected", c.IndexTopK), keys+c.IndexTopK
		}
		a.Workspace = r.space(r.s.CSA2AttendWorkspace(&a))
		return call{
			kernel: "csa2_attend", what: what, rows: rows, activations: 4 * rows * c.Heads * c.HeadDim,
			work: work(plan.Shape{Kernel: plan.Attend, N: c.Heads, K: c.HeadDim}, rows, keys, lookup),
			run:  func() error { return r.s.CSA2Attend(&a) },
		}, true
	}
}

func windowPack(r *rig, rows int) (call, bool) {
	c := r.c
	a := ced.WindowPackArgs{
		Rows: r.rows(rows, attendPos), X: r.bf16s(rows * c.HeadDim), Weight: r.bf16s(c.HeadDim), WeightFormat: ced.BF16, Freqs: r.freqs(),
		Packed: r.space(rows * c.WindowRowBytes()), MaxRows: uint32(rows), Dim: uint32(c.HeadDim), RoPEDim: uint32(c.RopeDim), Eps: c.NormEps,
	}
	return move("window_pack", "", rows, rows*(2*c.HeadDim+c.WindowRowBytes()), func() error { return r.s.WindowPack(&a) })
}

func windowCommit(r *rig, rows int) (call, bool) {
	size := r.c.WindowRowBytes()
	a := ced.WindowCommitArgs{
		Rows: r.rows(rows, attendPos), Packed: r.ring(rows), Ring: r.ring(slots(rows) * ringRows), MaxRows: uint32(rows), RowBytes: uint32(size), RingRows: ringRows,
	}
	return move("window_commit", "", rows, 2*min(rows, slots(rows)*ringRows)*size, func() error { return r.s.WindowCommit(&a) })
}

func compress(r *rig, rows int) (call, bool) {
	c := r.c
	groups, n := r.groups(rows, 2)
	const openRows = 7
	a := ced.CSA2CompressArgs{
		Rows: r.rows(rows, attendPos), Groups: groups, A: r.f32s(rows*c.HeadDim, -1, 1), G: r.f32s(rows*c.HeadDim, -1, 1),
		Open: r.f32s(slots(rows)*openRows*2*c.HeadDim, -1, 1), Weight: r.bf16s(c.HeadDim), WeightFormat: ced.BF16, Latent: r.space(2 * n * c.HeadDim),
		MaxRows: uint32(rows), Dim: uint32(c.HeadDim), Ratio: 2, OpenRows: openRows, Eps: c.NormEps,
	}
	return move("csa2_compress", "ratio 2", rows, (8*rows+2*n)*c.HeadDim, func() error { return r.s.CSA2Compress(&a) })
}

func kvAppend(r *rig, rows int) (call, bool) {
	c := r.c
	cache, ok := r.kv(2, rows, attendPos+1)
	if !ok {
		return call{}, false
	}
	groups, n := r.groups(rows, 2)
	a := ced.KVAppendArgs{
		Rows: r.rows(rows, attendPos), Groups: groups, Latent: r.bf16s(n * c.HeadDim), K: r.bf16s(n * c.IndexHeadDim), KWeight: r.bf16s(c.IndexHeadDim),
		WeightFormat: ced.BF16, Freqs: r.freqs(), KV: cache, MaxGroups: uint32(rows), RoPEDim: uint32(c.RopeDim), Eps: c.NormEps,
	}
	return move("kv_append", "ratio 2", rows, n*(2*(c.HeadDim+c.IndexHeadDim)+c.MainRowBytes()+c.IndexRowBytes()), func() error { return r.s.KVAppend(&a) })
}

// gather looks up rows of a table that no cache holds, other ones each time.
func gather(r *rig, rows int) (call, bool) {
	e := &r.c.Engram
	if len(e.Layers) == 0 {
		return call{}, false
	}
	cols, table := e.Columns(), r.size/e.HeadDim
	const sets = 16
	var ids [sets]ced.Addr
	for i := range ids {
		v := make([]int64, rows*cols)
		for j := range v {
			v[j] = int64(r.random.IntN(table))
		}
		ids[i] = put(r, v)
	}
	a := ced.EngramGatherArgs{
		Rows: r.rows(rows, attendPos), Table: r.arena, TableScales: r.scales, TableRows: uint64(table), E: r.space(2 * rows * cols * e.HeadDim), MaxRows: uint32(rows),
		Cols: uint32(cols), Dim: uint32(e.HeadDim),
	}
	next := 0
	return call{
		kernel: "engram_gather", what: fmt.Sprintf("%d table rows", rows*cols), rows: rows, activations: rows * cols * (8 + 2*e.HeadDim),
		work: work(plan.Shape{Kernel: plan.Move}, rows, 0, rows*cols*(e.HeadDim+e.HeadDim/32)),
		run: func() error {
			next = (next + 1) % sets
			a.IDs = ids[next]
			return r.s.EngramGather(&a)
		},
	}, true
}

func gate(r *rig, rows int) (call, bool) {
	n, d := r.c.HCMult, r.c.HiddenSize
	if len(r.c.Engram.Layers) == 0 {
		return call{}, false
	}
	a := ced.EngramGateArgs{
		Rows: r.rows(rows, attendPos), KV: r.bf16s(rows * (n + 1) * d), QWeight: r.bf16s(n * d), KWeight: r.bf16s(n * d), H: r.bf16s(rows * n * d),
		MaxRows: uint32(rows), Dim: uint32(d), Streams: uint32(n), WeightFormat: ced.BF16, Eps: r.c.NormEps,
	}
	return move("engram_gate", "", rows, 2*rows*(3*n+1)*d, func() error { return r.s.EngramGate(&a) })
}

func embed(r *rig, rows int) (call, bool) {
	n, d := r.c.HCMult, r.c.HiddenSize
	a := ced.EmbedArgs{
		Rows: r.rows(rows, attendPos), Table: r.arena, TableFormat: ced.BF16, H: r.space(2 * rows * n * d), Pre: r.space(4 * rows * n), MaxRows: uint32(rows),
		Vocab: uint32(min(r.c.VocabSize, r.size/2/d)), Dim: uint32(d), Streams: uint32(n),
	}
	return move("embed", "", rows, 2*rows*(n+1)*d, func() error { return r.s.Embed(&a) })
}

// take finds the largest logit of each row.
func take(r *rig, rows int) (call, bool) {
	n := r.c.VocabSize
	a := ced.GreedyArgs{Rows: r.rows(rows, attendPos), Logits: r.f32s(rows*n, -1, 1), IDs: r.space(4 * rows), MaxRows: uint32(rows), Vocab: uint32(n)}
	return move("greedy", "", rows, 4*rows*n, func() error { return r.s.Greedy(&a) })
}

// compact moves the rows that go on, of the streams.
func compact(r *rig, rows int) (call, bool) {
	size := 2 * r.c.HCMult * r.c.HiddenSize
	index := make([]int32, rows)
	for i := range index {
		index[i] = int32(i + 1)
	}
	a := ced.RowGatherArgs{
		Rows: r.rows(rows, attendPos), Index: put(r, index), Src: r.bf16s((rows + 1) * size / 2), Dst: r.space(rows * size), RowBytes: uint64(size), MaxRows: uint32(rows),
	}
	return move("row_gather", "streams", rows, 2*rows*size, func() error { return r.s.RowGather(&a) })
}
