// tile_gpu.h: which rows a block of the experts' products works on, and where what it makes goes.
#pragma once
#include "kernel/expert_gemm/expert_gemm.h"
#include "kernel/row_gpu.h"
#include "num/quant.h"

namespace ced {

// The rows that a block works on: assignments of one expert, or rows for the shared one.
struct ExpertTile {
  const ced_expert *expert;
  const int32_t *order;  // null: assignments first, first + 1, ...
  int32_t first, n;

  // False if there is no such tile. shared: its expert.
  __device__ bool find(const ced_expert_gemm_args &a, const ExpertWorkspace &work, int32_t tile, int32_t rows,
                       const ced_expert *shared) {
    const int32_t count = row_count(a.rows);
    expert = shared, order = nullptr;
    if (shared != nullptr) {
      first = tile * rows, n = count - first < rows ? count - first : rows;
      return n > 0;
    }
    if (tile >= *at<const int32_t>(work.tiles)) return false;
    const uint4 t = load16(at<const unsigned char>(work.list) + 16 * tile);
    expert = at<const ced_expert>(a.experts) + t.x;
    order = at<const int32_t>(work.order) + t.y, first = 0, n = static_cast<int32_t>(t.z);
    return true;
  }
  __device__ int32_t assignment(uint32_t i) const {
    const auto k = static_cast<int32_t>(i);
    return order != nullptr ? order[k] : first + k;
  }
};

// An assignment's place in the workspace: those of the shared expert come after the routed ones.
__device__ inline size_t expert_place(const ced_expert_gemm_args &a, int32_t assignment, bool shared) {
  return static_cast<size_t>(assignment) + (shared ? static_cast<size_t>(a.max_rows) * a.top_k : 0);
}

// Quantises a group of 32 channels from i0 on, a lane for a channel, between the two halves of an expert.
__device__ inline void store_activation(const ced_expert_gemm_args &a, const ExpertWorkspace &work,
                                        size_t place, uint32_t i0, float v) {
  const float s = act_scale(f32_of(warp_max(f32_bits(v) & 0x7FFFFFFFu)));
  const uint32_t lane = threadIdx.x % 32;
  at<uint8_t>(work.codes)[place * a.inter + i0 + lane] = f32_to_e4m3(v * (1.0f / s));
  if (lane == 0) at<uint8_t>(work.scales)[place * (a.inter / 32) + i0 / 32] = f32_to_e8m0(s);
}

// The form for tiles of more than 16 rows, without what comes before and after: both halves of the routed experts (w
// CED_FP4: they are packed) or the shared one (CED_FP8).
int expert_gemm_prefill(ced_stream *s, const ced_expert_gemm_args &a, const ExpertWorkspace &work,
                        ced_format w, uint32_t tile_rows, uint32_t tiles, ced_err *err);

}  // namespace ced
