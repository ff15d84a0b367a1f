package selftest

import (
	ced "cedrun/cuda"
)

// promptCases are the forms that devices have for more rows than a decode step has, on matrix units of their own, and their
// layout of experts. Between 17 and 64 rows, and above, the forms of matrices differ.
var promptCases = []kernelCase{
	gemm("FP8 by FP8, 12 rows", ced.FP8, ced.FP8, ced.BF16, 1, 12),
	gemm("FP8 by FP8, 40 rows", ced.FP8, ced.FP8, ced.BF16, 1, 40),
	gemm("FP8 by FP8, 72 rows", ced.FP8, ced.FP8, ced.BF16, 1, 72),
	gemm("FP8 by FP4, 72 rows", ced.FP8, ced.FP4, ced.BF16, 1, 72),
	gemm("BF16 by FP8, two groups, 72 rows", ced.BF16, ced.FP8, ced.BF16, 2, 72),
	gemm("BF16 by BF16, 72 rows", ced.BF16, ced.BF16, ced.F32, 1, 72),
	border("24 rows", 24),
	attend("17 rows of 17 heads", 17, 17, 128),
	attend("17 rows of 17 heads, 512 channels", 17, 17, 512),
	routedExperts("packed", rows, 3, true),
	routedExperts("packed, 40 rows", 40, 3, true),
	routedExperts("packed, 72 rows", 72, 2, true),
	elsewhere(),
}

// attend is a row set whose rows see each other through the window, and three global rows.
func attend(what string, n, heads, headDim int) kernelCase {
	return kernelCase{"csa2_attend", what, func(r *rig) func() error {
		const topK = 3
		set := r.rowsOf(n)
		sel := []int32{0, 2, 4, 1, 3, -1, 0, 1, 5}
		for i := rows; i < n; i++ {
			sel = append(sel, int32(i%4), 4, -1)
		}
		a := ced.CSA2AttendArgs{
			Rows: set, KeyRows: set, Q: r.bf16s(n * heads * headDim), Packed: r.windowRows(n, headDim), Ring: r.windowRows(slots*window, headDim),
			WindowStart: put[int32](r, 0, 0), Sel: put(r, sel...), Sink: r.f32s(heads),
			O: r.poison("o", bf16, n*heads*headDim, headDim), KV: r.kv(headDim, false),
			MaxRows: uint32(n), Heads: uint32(heads), HeadDim: uint32(headDim), Window: window, RingRows: window, TopK: topK,
		}
		a.Workspace = r.take(r.s.CSA2AttendWorkspace(&a))
		return func() error { return r.s.CSA2Attend(&a) }
	}}
}

// routedExperts are n rows over so many experts, of which each row has two, and a shared one. packed experts are packed on
// a device only.
func routedExperts(what string, n, experts int, packed bool) kernelCase {
	return kernelCase{"expert_gemm", what, func(r *rig) func() error {
		a := r.experts(n, experts, packed)
		return func() error { return r.s.ExpertGEMM(&a) }
	}}
}

// elsewhere is a layer whose second expert is computed by somebody else, whose sum comes between two calls of a device.
func elsewhere() kernelCase {
	return kernelCase{"expert_gemm", "a part, in two calls", func(r *rig) func() error {
		const n = 20
		a := r.experts(n, 3, true, 1)
		a.Flags = ced.ExpertsPart
		products, sum := a, a
		products.Flags |= ced.ExpertsProducts
		sum.Flags |= ced.ExpertsSum
		a.Addend = r.f32s(n * dim)
		sum.Addend = a.Addend
		return func() error {
			if r.s.Host() {
				return r.s.ExpertGEMM(&a)
			}
			if err := r.s.ExpertGEMM(&products); err != nil {
				return err
			}
			return r.s.ExpertGEMM(&sum)
		}
	}}
}

func (r *rig) experts(n, experts int, packed bool, absent ...int) ced.ExpertGEMMArgs {
	const topK, inter = 2, 64
	table := make([]ced.Expert, experts)
	for e := range table {
		if packed {
			table[e] = r.packedExpert(inter)
		} else {
			table[e] = r.expert(ced.FP4, inter)
		}
	}
	for _, e := range absent {
		table[e] = ced.Expert{}
	}
	var idx []int32
	for i := range n {
		idx = append(idx, int32((i+experts-1)%experts), int32(i%experts))
	}
	a := ced.ExpertGEMMArgs{
		Rows: r.rowsOf(n), X: r.fp8s(n * dim), XScales: r.scales(n * dim / 32), Idx: put(r, idx...), Weights: r.positive(n * topK),
		Experts: put(r, table...), Shared: r.expert(ced.FP8, inter), Y: r.poison("y", bf16, n*dim, dim),
		MaxRows: uint32(n), ExpertsCount: uint32(experts), TopK: topK, Dim: dim, Inter: inter, Limit: 10,
	}
	if packed && !r.s.Host() {
		a.Layout = ced.ExpertsPacked
	}
	a.Workspace = r.take(r.s.ExpertGEMMWorkspace(&a))
	return a
}

// packedExpert makes one expert, in the layout of the stream.
func (r *rig) packedExpert(inter int) ced.Expert {
	const codes, scales = dim / 2, dim / 32
	var parts [6][]byte
	for i := range parts {
		parts[i] = make([]byte, inter*codes)
		if i%2 != 0 {
			parts[i] = make([]byte, inter*scales)
		}
		for j := range parts[i] {
			if i%2 == 0 {
				parts[i][j] = byte(r.next() >> 56)
			} else {
				parts[i][j] = r.scale()
			}
		}
	}
	of := func(at func([]byte) ced.Addr) ced.Expert {
		return ced.Expert{W1: at(parts[0]), W1Scales: at(parts[1]), W3: at(parts[2]), W3Scales: at(parts[3]), W2: at(parts[4]), W2Scales: at(parts[5])}
	}
	if r.s.Host() {
		return of(func(b []byte) ced.Addr { return put(r, b...) })
	}
	bytes, w2 := ced.PackedExpertBytes(dim, inter)
	room := make([]byte, bytes+31)
	to := room[-ced.HostAddr(room)&31:][:bytes]
	if err := ced.PackExpert(ced.HostAddr(to), of(ced.HostAddr), dim, inter); err != nil && r.err == nil {
		r.err = err
	}
	at := put(r, to...)
	return ced.Expert{W1: at, W2: at + ced.Addr(w2)}
}
