#include "kernel/row_gpu.h"
#include "kernel/window_pack/window_pack.h"
#include "num/func.h"
#include "num/quant.h"

namespace ced {
namespace {

constexpr int kThreads = 128;

// A block for a row, which stays in shared memory. Sum of squares: a thread's channels t, t + kThreads, ... in ascending
// order, then block_sum. A warp quantises 32 channels at a time.
__global__ void __launch_bounds__(kThreads) window_pack_kernel(ced_window_pack_args a) {
  DYN_SMEM(float, x);
  SHARED(float, part, kThreads / 32);
  const auto &rows = *at<const ced_rows>(a.rows);
  const Weights weight(a.weight, a.weight_format);
  for (int32_t r = static_cast<int32_t>(blockIdx.x); r < rows.count; r += static_cast<int32_t>(gridDim.x)) {
    const auto row = static_cast<size_t>(r);
    float squares = 0;
    for (uint32_t i = threadIdx.x; i < a.dim; i += kThreads) {
      x[i] = bf16_to_f32(at<const uint16_t>(a.x)[row * a.dim + i]);
      squares += x[i] * x[i];
    }
    const float scale = f32_rsqrt(block_sum<kThreads>(squares, part) / static_cast<float>(a.dim) + a.eps);
    for (uint32_t i = threadIdx.x; i < a.dim; i += kThreads) x[i] = bf16_round(weight[i] * (x[i] * scale));
    __syncthreads();
    float *rotary = x + (a.dim - a.rope_dim);
    for (uint32_t i = threadIdx.x; i < a.rope_dim / 2; i += kThreads) {
      float cosine, sine;
      rope_angle(at<const float>(a.freqs)[i], at<const int32_t>(rows.pos)[r], cosine, sine);
      rotate_pair(rotary[2 * i], rotary[2 * i + 1], cosine, sine);
    }
    __syncthreads();
    uint8_t *codes = at<uint8_t>(a.packed) + row * (a.dim + a.dim / 32), *scales = codes + a.dim;
    for (uint32_t i = threadIdx.x; i < a.dim; i += kThreads) {  // dim is a multiple of 32: whole warps
      const float s = act_scale(f32_of(warp_max(f32_bits(x[i]) & 0x7FFFFFFFu)));
      codes[i] = f32_to_e4m3(x[i] * (1.0f / s));
      if (lane_id() == 0) scales[i / 32] = f32_to_e8m0(s);
    }
    __syncthreads();  // before the next row
  }
}

}  // namespace

int window_pack_cuda(ced_stream *s, const ced_window_pack_args &a, ced_err *err) {
  return launch(s, err, "window_pack", {row_blocks(a.max_rows), kThreads, a.dim * sizeof(float)},
                window_pack_kernel, a);
}

}  // namespace ced
