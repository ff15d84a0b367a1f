#include <cmath>

#include "kernel/engram_gate/engram_gate.h"
#include "kernel/row_gpu.h"

namespace ced {
namespace {

constexpr int kThreads = 256;

// A block for a stream of a row. The three sums: a thread's pieces of eight channels in ascending order, then block_sum.
// rsqrt_dim is dim^-1/2.
__global__ void __launch_bounds__(kThreads) engram_gate_kernel(ced_engram_gate_args a, float rsqrt_dim) {
  SHARED(float, part, kThreads / 32);
  const auto &rows = *at<const ced_rows>(a.rows);
  const Weights q_weight(a.q_weight, a.weight_format), k_weight(a.k_weight, a.weight_format);
  const size_t dim = a.dim, n = a.streams, j = blockIdx.y;
  for (int32_t r = static_cast<int32_t>(blockIdx.x); r < rows.count; r += static_cast<int32_t>(gridDim.x)) {
    const bool image = rows.flags != 0 && (at<const uint32_t>(rows.flags)[r] & CED_ROW_IMAGE) != 0;
    const auto row = static_cast<size_t>(r);
    const uint16_t *keys = at<const uint16_t>(a.kv) + row * (n + 1) * dim, *value = keys + n * dim,
                   *key = keys + j * dim;
    uint16_t *h = at<uint16_t>(a.h) + (row * n + j) * dim;
    float dot = 0, h_squares = 0, key_squares = 0, x[8], k[8], v[8];
    for (size_t d = 8 * threadIdx.x; d < dim; d += 8 * kThreads) {
      unpack8(load16(h + d), x), unpack8(load16(key + d), k);
      for (size_t i = 0; i < 8; i++) {
        dot += x[i] * (q_weight[j * dim + d + i] * k_weight[j * dim + d + i]) * k[i];
        h_squares += x[i] * x[i];
        key_squares += k[i] * k[i];
      }
    }
    dot = block_sum<kThreads>(dot, part);
    h_squares = block_sum<kThreads>(h_squares, part);
    key_squares = block_sum<kThreads>(key_squares, part);
    const auto width = static_cast<float>(dim);
    const float scale = f32_rsqrt(h_squares / width + a.eps) * f32_rsqrt(key_squares / width + a.eps);
    const float d0 = dot * scale * rsqrt_dim;
    const float gate = image ? 0.0f : f32_sigmoid(copysignf(sqrtf(f32_max(f32_abs(d0), 1e-6f)), d0));
    for (size_t d = 8 * threadIdx.x; d < dim; d += 8 * kThreads) {
      unpack8(load16(h + d), x), unpack8(load16(value + d), v);
      for (int i = 0; i < 8; i++) x[i] += gate * v[i];
      store16(h + d, pack8(x));
    }
  }
}

}  // namespace

int engram_gate_cuda(ced_stream *s, const ced_engram_gate_args &a, ced_err *err) {
  const auto rsqrt_dim = static_cast<float>(std::pow(static_cast<double>(a.dim), -0.5));
  const dim3 blocks(row_blocks(a.max_rows).x, a.streams);
  return launch(s, err, "engram_gate", {blocks, kThreads}, engram_gate_kernel, a, rsqrt_dim);
}

}  // namespace ced
