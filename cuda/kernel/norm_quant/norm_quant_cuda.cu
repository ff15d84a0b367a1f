#include "kernel/norm_quant/norm_quant.h"
#include "kernel/row_gpu.h"
#include "num/func.h"
#include "num/quant.h"

namespace ced {
namespace {

// A block for a row. Thread t has the channels 8t..8t+7, 8(t + kThreads).. and so on: 16 bytes, a quarter of a
// quantisation group. A row whose length is no multiple of 8 is read by single channels.
// Sum of squares: a thread's channels in ascending order, then warp_sum, then the warps in ascending order.
template <int kThreads>
__global__ void __launch_bounds__(kThreads) norm_quant_kernel(ced_norm_quant_args a) {
  SHARED(float, part, kThreads / 32);
  const uint32_t n = a.n, pieces = ceil_div(n, 8);
  const bool whole = n % 8 == 0;
  const int32_t count = row_count(a.rows);
  for (int32_t r = static_cast<int32_t>(blockIdx.x); r < count; r += static_cast<int32_t>(gridDim.x)) {
    const auto row = static_cast<size_t>(r);
    const uint16_t *x = at<const uint16_t>(a.x) + row * n;
    const auto load = [&](uint32_t piece, float v[8]) {
      const uint32_t k = 8 * piece;
      if (whole) {
        const uint4 w = load16(x + k);
        v[0] = low_bf16(w.x), v[1] = high_bf16(w.x), v[2] = low_bf16(w.y), v[3] = high_bf16(w.y);
        v[4] = low_bf16(w.z), v[5] = high_bf16(w.z), v[6] = low_bf16(w.w), v[7] = high_bf16(w.w);
      } else {
        for (uint32_t i = 0; i < 8; i++) v[i] = k + i < n ? bf16_to_f32(x[k + i]) : 0.0f;
      }
    };
    float v[8], scale = 1;
    if (a.weight != 0) {
      float squares = 0;
      for (uint32_t p = threadIdx.x; p < pieces; p += kThreads) {
        load(p, v);
        for (const float f : v) squares += f * f;
      }
      scale = f32_rsqrt(block_sum<kThreads>(squares, part) / static_cast<float>(n) + a.eps);
    }
    // All lanes of a warp stay together: quarters of a group meet in shuffles.
    for (uint32_t first = threadIdx.x & ~31u; first < pieces; first += kThreads) {
      const uint32_t p = first + (threadIdx.x & 31u), k = 8 * p;
      const bool mine = p < pieces;
      if (mine) {
        load(p, v);
      } else {
        for (float &f : v) f = 0;
      }
      if (a.weight != 0 && mine) {
        const Weights weight(a.weight, a.weight_format);
        for (uint32_t i = 0; i < 8; i++)
          if (k + i < n) v[i] = bf16_round(weight[k + i] * (v[i] * scale));
      }
      if (a.y != 0 && mine) {
        uint16_t *y = at<uint16_t>(a.y) + row * n + k;
        if (whole) {
          store16(y, make_uint4(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]),
                                pack_bf16(v[6], v[7])));
        } else {
          for (uint32_t i = 0; i < 8 && k + i < n; i++) y[i] = f32_to_bf16(v[i]);
        }
      }
      if (a.codes == 0) continue;
      uint32_t largest = f32_bits(abs_max(v, 8));
      for (int m = 1; m <= 2; m *= 2) {
        const uint32_t other = __shfl_xor_sync(kAllLanes, largest, m);
        largest = other > largest ? other : largest;
      }
      if (!mine) continue;
      const float s = act_scale(f32_of(largest)), inverse = 1.0f / s;
      uint32_t words[2] = {0, 0};
      for (uint32_t i = 0; i < 8; i++)
        words[i / 4] |= static_cast<uint32_t>(f32_to_e4m3(v[i] * inverse)) << (8 * (i % 4));
      uint32_t *codes = reinterpret_cast<uint32_t *>(at<uint8_t>(a.codes) + row * n + k);
      codes[0] = words[0], codes[1] = words[1];
      if (p % 4 == 0) at<uint8_t>(a.scales)[(row * n + k) / 32] = f32_to_e8m0(s);
    }
  }
}

}  // namespace

int norm_quant_cuda(ced_stream *s, const ced_norm_quant_args &a, ced_err *err) {
  const dim3 blocks = row_blocks(a.max_rows);
  // By the row's length only: it decides the order of the sum.
  if (a.n <= 512) return launch(s, err, "norm_quant", {blocks, 64}, norm_quant_kernel<64>, a);
  return launch(s, err, "norm_quant", {blocks, 256}, norm_quant_kernel<256>, a);
}

}  // namespace ced
