// expert_gemm: the experts of a layer (spec 6).
//   x [rows, dim] e4m3 with scales, idx/weights [rows, top_k] -> y [rows, dim] BF16
//   expert: gate = bf16(x w1^T), up = bf16(x w3^T); a = bf16(weight * (silu(min(gate, limit)) * clamp(up, +-limit)));
//           bf16(quantised(a) w2^T)
//   y = bf16(routed experts added in f32 in ascending expert id, then the addend, then the shared expert, which has no
//   weight); with y_format F32 that sum itself. CED_EXPERTS_PART leaves out experts without w1.
#pragma once
#include "internal.h"
#include "num/bf16.h"
#include "num/func.h"

namespace ced {

void expert_gemm_ref(ced_stream *s, const ced_expert_gemm_args &a);
// Rows grouped by expert, so that each expert's weights are read once; sums in the order of tile.h, e^x in f32.
void expert_gemm_cpu(ced_stream *s, const ced_expert_gemm_args &a);

// Whether an expert of the table is computed here.
CED_HD inline bool has_expert(const ced_expert_gemm_args &a, int32_t e) {
  return (a.flags & CED_EXPERTS_PART) == 0 || at<const ced_expert>(a.experts)[e].w1 != 0;
}

// Workspace. An assignment is a row's use of an expert: row * top_k + j for the routed ones, then rows * top_k + row
// for the shared one. The reference keeps one assignment at a time.
struct ExpertWorkspace {
  uint64_t codes;   // e4m3 [assignments, inter]
  uint64_t scales;  // UE8M0 [assignments, inter/32]
  uint64_t out;     // BF16 [assignments, dim]
  uint64_t order;   // i32 [rows * top_k] assignments grouped by expert
  uint64_t first;   // i32 [experts + 1] of each expert in order
  uint64_t active;  // i32 [experts] experts that have rows
  // The rest is a device's.
  uint64_t tiles;  // i32: of the list
  uint64_t list;   // i32 [tiles, 4] expert, the first of its assignments in order, how many
  // u32 [2 + tiles]: items that blocks have taken; groups of 32 activations of the shared expert; those of each tile.
  uint64_t progress;
  // With packed experts, for steps of up to few_rows, in the order of operands, and zeros up to a multiple of 64.
  uint64_t x_words;     // BF16 [rows, dim]
  uint64_t activation;  // BF16 [assignments, inter]
  uint64_t bytes;
};

// Steps of more rows have more than 16 for an expert on average: then a device takes the form for many.
inline uint32_t few_rows(const ced_expert_gemm_args &a) {
  const uint32_t rows = a.top_k > 0 ? (17 * a.experts_count - 1) / a.top_k : 0;
  return rows > 16 ? rows : 16;
}

inline ExpertWorkspace expert_workspace(const ced_expert_gemm_args &a) {
  ExpertWorkspace w{};
  const uint64_t routed = static_cast<uint64_t>(a.max_rows) * a.top_k, all = routed + a.max_rows;
  const auto take = [&](uint64_t bytes) {
    const uint64_t at = a.workspace + w.bytes;
    w.bytes += (bytes + 63) / 64 * 64;
    return at;
  };
  w.codes = take(all * a.inter);
  w.scales = take(all * (a.inter / 32));
  w.out = take(all * a.dim * 2);
  w.order = take(routed * 4);
  w.first = take((a.experts_count + 1ull) * 4);
  w.active = take(a.experts_count * 4ull);
  w.tiles = take(4);
  const uint64_t tiles = (routed < a.experts_count ? routed : a.experts_count) + routed / 8;
  w.list = take(tiles * 16);
  w.progress = take((2 + tiles) * 4);
  if (a.layout == CED_EXPERTS_PACKED) {
    const uint64_t rows = a.max_rows < few_rows(a) ? a.max_rows : few_rows(a);
    w.x_words = take(rows * ((a.dim + 63) / 64) * 128);
    w.activation = take(rows * (a.top_k + 1) * ((a.inter + 63) / 64) * 128);
  }
  return w;
}

// The activation between the two halves of an expert: gate and up are rounded to BF16, the result too.
CED_HD inline float swiglu(float gate, float up, float limit, float weight) {
  if (limit > 0) {
    gate = gate > limit ? limit : gate;
    up = up > limit ? limit : up < -limit ? -limit : up;
  }
  return bf16_round(weight * (f32_silu(gate) * up));
}
int expert_gemm_cuda(ced_stream *s, const ced_expert_gemm_args &a, ced_err *err);

}  // namespace ced
