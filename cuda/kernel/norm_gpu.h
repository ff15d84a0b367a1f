// norm_gpu.h: RMSNorm and FP8 quantisation of a row by kThreads threads (spec 3.1, 3.2). Thread t has the channels
// 8t..8t+7, 8(t + kThreads).. and so on: 16 bytes, a quarter of a quantisation group. A row whose length is no multiple of
// 8 is read by single channels. Sum of squares: a thread's channels in ascending order, then warp_sum, then the warps in
// ascending order.
#pragma once
#include "kernel/row_gpu.h"
#include "num/func.h"
#include "num/quant.h"

namespace ced {

// By the row's length only: the threads decide the order of the sum.
constexpr uint32_t kShortNorm = 512;  // channels at most
constexpr int kShortThreads = 64, kLongThreads = 256;

// Row `row` of a; sync is a barrier of the threads 0..kThreads-1, which are here, part has a float for each warp.
template <int kThreads, class Sync>
__device__ void norm_quant_row(const ced_norm_quant_args &a, size_t row, float *part, const Sync &sync) {
  const uint32_t n = a.n, pieces = ceil_div(n, 8);
  const bool whole = n % 8 == 0;
  const uint16_t *x = at<const uint16_t>(a.x) + row * n;
  const auto load = [&](uint32_t piece, float v[8]) {
    const uint32_t k = 8 * piece;
    if (whole) {
      unpack8(load16(x + k), v);
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
    squares = warp_sum(squares);
    if (lane_id() == 0) part[warp_id()] = squares;
    sync();
    float sum = 0;
    for (int i = 0; i < kThreads / 32; i++) sum += part[i];
    sync();  // part may be used again
    scale = f32_rsqrt(sum / static_cast<float>(n) + a.eps);
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
        store16(y, pack8(v));
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

}  // namespace ced
