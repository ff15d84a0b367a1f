package main

// edit replaces old, which must occur exactly once in the file, by new.
type edit struct{ file, old, new string }

// fault is a plausible mistake and the test that has to notice it.
type fault struct {
	name  string
	edits []edit
	test  test
}

const (
	attendRef  = "cuda/kernel/csa2_attend/csa2_attend_ref.cc"
	attendCPU  = "cuda/kernel/csa2_attend/csa2_attend_cpu.cc"
	compress   = "cuda/kernel/csa2_compress/csa2_compress.h"
	expandRef  = "cuda/kernel/mhc_expand/mhc_expand_ref.cc"
	expandCPU  = "cuda/kernel/mhc_expand/mhc_expand_cpu.cc"
	expertRef  = "cuda/kernel/expert_gemm/expert_gemm_ref.cc"
	expertCPU  = "cuda/kernel/expert_gemm/expert_gemm_cpu.cc"
	expertHead = "cuda/kernel/expert_gemm/expert_gemm.h"
	indexRef   = "cuda/kernel/csa2_index/csa2_index_ref.cc"
	indexCPU   = "cuda/kernel/csa2_index/csa2_index_cpu.cc"
	selection  = "cuda/kernel/csa2_index/select.cc"
	kvAppend   = "cuda/kernel/kv_append/kv_append.h"
	mixRef     = "cuda/kernel/mhc_mix/mhc_mix_ref.cc"
	quant      = "cuda/num/quant.h"
	routeRef   = "cuda/kernel/route/route_ref.cc"
	routeCPU   = "cuda/kernel/route/route_cpu.cc"
	windowPack = "cuda/kernel/window_pack/window_pack_ref.cc"
	attention  = "runtime/model/attention.go"
	forward    = "runtime/model/forward.go"
	mhc        = "runtime/model/mhc.go"
	moe        = "runtime/model/moe.go"
	plan       = "runtime/model/plan.go"
)

// faults of spec model.md 8.4 and conformance README 7 first, then others that ports have had. Rows are stored packed, so
// that "not quantised" cannot be written for the caches: they are quantised at a wrong place or with a wrong scale instead.
var faults = []fault{
	{"window rows quantised before the rotation too", []edit{
		{windowPack, "    rotate(x, dim, static_cast<int>(a.rope_dim)", `    for (int b = 0; b < dim / 32; b++) {
      uint8_t code[32], e;
      act_quant32(x + 32 * b, code, &e);
      for (int i = 0; i < 32; i++) x[32 * b + i] = e4m3_to_f32(code[i]) * e8m0_to_f32(e);
    }
    rotate(x, dim, static_cast<int>(a.rope_dim)`},
	}, conform("base")},
	{"main KV quantised before the rotation too", []edit{
		{kvAppend, "    rotate_pairs(x + head_dim - 2 * pairs, pairs, cosine, sine);", `    for (int b = 0; b < head_dim / 16; b++) {
      uint8_t e;
      fp4_quant_e4m3(x + 16 * b, codes, &e);
      for (int i = 0; i < 16; i++) x[16 * b + i] = e2m1_to_f32(codes[i]) * e4m3_to_f32(e);
    }
    rotate_pairs(x + head_dim - 2 * pairs, pairs, cosine, sine);`},
	}, conform("base")},
	{"main KV with power-of-two scales (MXFP4)", []edit{
		{quant, "f32_to_e4m3(f32_max(abs_max(x, 16), 6 * 0x1p-9f) / 6.0f)", "f32_to_e4m3(pow2_ceil(f32_max(abs_max(x, 16), 6 * 0x1p-9f) / 6.0f))"},
	}, conform("base")},
	{"index queries not quantised", []edit{
		{indexRef, "out[b + i] = bf16_round(e2m1_to_f32(codes[i]) * e8m0_to_f32(scale))", "out[b + i] = bf16_round(out[b + i])"},
	}, conform("base")},
	{"index queries not rotated", []edit{
		{indexRef, "  rotate(out, dim, static_cast<int>(a.rope_dim), at<const float>(a.freqs), pos);\n", "  (void)pos;\n"},
		{indexCPU, "rotate_pairs(x + dim - 2 * pairs, pairs, cosine, sine);", "(void)pairs, (void)cosine, (void)sine;"},
	}, conform("base")},
	{"one RoPE table for all layers", []edit{
		{attention, "if m.schedule[l].CompressedRope() {", "if false {"},
	}, conform("base")},
	{"each sub-layer reads its own pre (V4)", []edit{
		{forward, "p.collapse(p.ws.aPre, w.ffnNorm, true)", "p.collapse(p.ws.pre, w.ffnNorm, true)"},
	}, conform("base")},
	{"transposed mHC comb", []edit{
		{expandRef, "comb[j * n + k] * old[j]", "comb[k * n + j] * old[j]"},
		{expandCPU, "old[0] * comb[k]", "old[0] * comb[k * n]"},
		{expandCPU, "old[j] * comb[j * n + k]", "old[j] * comb[k * n + j]"},
	}, conform("base")},
	{"a border that leaves out the sub-layer before", []edit{
		{mhc, "a.Y = p.ws.y", "a.Y = 0"},
	}, conform("base")},
	{"19 instead of 20 Sinkhorn steps", []edit{
		{mixRef, "for (uint32_t step = 1; step < a.iters; step++)", "for (uint32_t step = 2; step < a.iters; step++)"},
	}, conform("base")},
	{"wrong route scale", []edit{
		{moe, "RouteScale: c.RouteScale", "RouteScale: 1"},
	}, conform("base")},
	{"top-k off by one", []edit{
		{indexRef, "top_k(scores, seen, static_cast<int>(a.top_k), sel)", "top_k(scores, seen, static_cast<int>(a.top_k) - 1, sel)"},
		{indexCPU, "best(std::min(a.top_k, a.max_groups))", "best(std::min(a.top_k, a.max_groups) - 1)"},
	}, conform("base")},
	{"ties to the highest index", []edit{
		{selection, "(scores[i] == threshold) & (ties > 0)",
			"(scores[i] == threshold) & (static_cast<uint32_t>(std::count(scores + i + 1, scores + n, threshold)) < ties)"},
	}, conform("base")},
	{"candidate blocks off by one", []edit{
		{selection, "top_k(maxima, blocks, max_blocks, out)", "top_k(maxima, blocks, max_blocks - 1, out)"},
		{indexCPU, "std::min(a.max_blocks, a.max_groups / a.block + 1)", "std::min(a.max_blocks - 1, a.max_groups / a.block + 1)"},
	}, conform("base")},
	{"candidates ignored", []edit{
		{attention, "flag(s.CandidateSource), flag(s.Restricted)", "flag(s.CandidateSource), 0"},
	}, conform("base")},
	{"newest candidate block not pinned", []edit{
		{selection, "  if (blocks > 0) maxima[blocks - 1] = kForced;  // the newest group is the last one seen\n", ""},
		{indexCPU, "add(kForced, newest)", "add(kMasked, newest)"},
	}, conform("base")},
	{"window off by one", []edit{
		{attention, "a.Window, a.RingRows, a.TopK = uint32(c.Window), ", "a.Window, a.RingRows, a.TopK = uint32(c.Window-1), "},
	}, conform("base")},
	{"norm epsilon 1e-6", []edit{
		{forward, "N: uint32(n), Eps: p.cfg.NormEps,", "N: uint32(n), Eps: 1e-6,"},
	}, conform("base")},
	{"Engram off", []edit{
		{forward, "if s.Engram >= 0 {", "if s.Engram >= 1<<20 {"},
	}, conform("base")},
	{"attention zeroed", []edit{
		{attention, "return p.linear(p.in.rowCount, &w.woB, 0, p.ws.y, ced.BF16)", "return p.s.Fill(p.ws.y, 0, 2*p.in.count*c.HiddenSize)"},
	}, conform("base")},
	{"stale index keys in decode (upstream)", []edit{
		{attention, "if p.opt.StaleIndexKeys {", "if p.spans[0].Seq.published > 0 {"},
	}, conform("base")},
	{"SwiGLU not clamped", []edit{
		{expertHead, "  if (limit > 0) {", "  if (limit < 0) {"},
		{expertCPU, "limit > 0 && g > limit ? limit : g;", "g;"},
	}, native("expert_gemm")},

	{"compressed rows rotated at their row number", []edit{
		{kvAppend, "pairs, j * ratio, cosine, sine);", "pairs, j * ratio / ratio, cosine, sine);"},
	}, conform("base")},
	{"no inverse rotation of the attention output", []edit{
		{attention, "if err := p.rope(l, p.ws.o, true); err != nil {", "if err := error(nil); err != nil {"},
	}, conform("base")},
	{"attention sinks left out", []edit{
		{attendRef, "w.total[h] + f32_exp(sink - w.top[h])", "w.total[h] + 0 * sink"},
		{attendCPU, "w.total[h] + f32_exp(sink - w.top[h])", "w.total[h] + 0 * sink"},
	}, conform("base")},
	{"open groups lost between chunks", []edit{
		{compress, "  memcpy(open + dim, at<const float>(a.g)", "  memcpy(open, at<const float>(a.g)"},
	}, conform("base")},
	{"activation scales rounded down", []edit{
		{quant, "return pow2_ceil(f32_max(m, 1e-4f) * 0x1.24924Ap-9f);", "return pow2_ceil(f32_max(m, 1e-4f) * 0x1.24924Ap-9f) * 0.5f;"},
	}, conform("base")},
	{"a reciprocal instead of a division in FP4", []edit{
		{quant, "f32_to_e2m1(x[i] / s)", "f32_to_e2m1(x[i] * (1.0f / s))"},
	}, native("kv_append", "num")},
	{"routing weights from the biased scores", []edit{
		{routeRef, "const float weight = score[idx[k]];", "const float weight = best[k].biased;"},
	}, conform("base")},
	{"router without the square root", []edit{
		{routeRef, "std::sqrt(f32_softplus(logits[e] / a.temperature))", "f32_softplus(logits[e] / a.temperature)"},
		{routeCPU, "score[e] = std::sqrt(score[e]);", "score[e] *= 1.0f;"},
	}, conform("base")},
	{"experts added in the order of choice", []edit{
		{expertRef, `      for (int32_t e = 0; e < static_cast<int32_t>(a.experts_count); e++)
        for (int64_t j = 0; j < top_k; j++)
          if (idx[j] == e && has_expert(a, e)) sum`, `      for (int64_t j = 0; j < top_k; j++)
        if (has_expert(a, idx[j])) sum`},
		{expertCPU, "idx[sorted[i - 1]] > idx[j]", "idx[sorted[i - 1]] < 0"},
	}, native("expert_gemm")},
	{"the routing weight left out", []edit{
		{expertHead, "bf16_round(weight * (f32_silu(gate) * up))", "bf16_round((weight > 0 ? 1 : 0) * (f32_silu(gate) * up))"},
		{expertCPU, "load<f32<W>>(u + l) * weight", "load<f32<W>>(u + l) * (weight > 0 ? 1.0f : 0.0f)"},
	}, conform("base")},
	{"cone one row too short", []edit{
		{plan, "max(0, next), max(0, next-w+1)", "max(0, next), max(0, next-w+2)"},
	}, conform("base")},
	{"replay windows not clipped", []edit{
		{plan, "if mode == Replay && l > src {", "if mode == Replay && l > src+n {"},
	}, conform("base")},
	{"Engram hash adds instead of xor", []edit{
		{"runtime/engram/hasher.go", "mix ^= term(s)", "mix += term(s)"},
	}, goTest("./runtime/engram", "TestHashKnownAnswers")},
	{"Engram multipliers through float64", []edit{
		{"runtime/engram/hasher.go", "return int64(t) * l.Multipliers[s]", "return int64(t) * int64(float64(l.Multipliers[s]))"},
	}, conform("base")}, // the release's are below 2^53
	{"effort high is 50 (pre-release)", []edit{
		{"runtime/prompt/effort.go", "EffortHigh    = 75", "EffortHigh    = 50"},
	}, goTest("./runtime/prompt", "TestKnownPrompts|TestEffort")},
}
