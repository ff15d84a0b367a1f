// engram_gate: the Engram gate and the update of the streams (spec 4.12 steps 3-5), per row and stream j.
//   kv [rows, (streams+1)*dim] BF16: a key per stream, then the value;  h [rows, streams, dim] BF16, in place
//   d = (sum h w key) * rsqrt(mean h^2 + eps) * rsqrt(mean key^2 + eps) * dim^-1/2,  w = q_weight * k_weight
//   h += sigmoid(copysign(sqrt(max(|d|, 1e-6)), d)) * value; image rows have gate 0
#pragma once
#include "kernel/row.h"

namespace ced {

void engram_gate_ref(ced_stream *s, const ced_engram_gate_args &a);
// The three sums in f32, in the lanes of row_lanes.h.
void engram_gate_cpu(ced_stream *s, const ced_engram_gate_args &a);

// The gate of a stream from its three sums, each already rounded to f32: sum of h w key, mean h^2, mean key^2.
inline float engram_gate_of(const ced_engram_gate_args &a, float dot, float h_square, float key_square) {
  const float scale = f32_rsqrt(h_square + a.eps) * f32_rsqrt(key_square + a.eps);
  const float d = dot * scale * static_cast<float>(std::pow(static_cast<double>(a.dim), -0.5));
  return f32_sigmoid(std::copysign(std::sqrt(f32_max(f32_abs(d), 1e-6f)), d));
}

inline bool engram_image_row(const ced_engram_gate_args &a, int64_t r) {
  const uint64_t flags = at<const ced_rows>(a.rows)->flags;
  return flags != 0 && (at<const uint32_t>(flags)[r] & CED_ROW_IMAGE) != 0;
}
int engram_gate_cuda(ced_stream *s, const ced_engram_gate_args &a, ced_err *err);

}  // namespace ced
