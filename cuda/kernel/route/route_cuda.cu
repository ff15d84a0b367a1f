#include "kernel/route/route.h"
#include "kernel/row_gpu.h"
#include "num/func.h"

namespace ced {
namespace {

constexpr int kThreads = 128;

// Bits that order as the floats do; -0 is 0, NaN is -inf.
__device__ uint32_t ordered(float v) {
  if (v != v) v = -INFINITY;
  if (v == 0) v = 0;
  const uint32_t u = f32_bits(v);
  return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}

// A block for a row: scores in shared memory, then top_k times the best that is left. An expert that was taken has key 0,
// which none has before.
__global__ void __launch_bounds__(kThreads) route_kernel(ced_route_args a) {
  DYN_SMEM(float, score);
  uint32_t *key = reinterpret_cast<uint32_t *>(score + a.experts);
  SHARED(uint32_t, best, kThreads / 32);
  SHARED(uint32_t, who, kThreads / 32);
  const auto &rows = *at<const ced_rows>(a.rows);
  for (int32_t r = static_cast<int32_t>(blockIdx.x); r < rows.count; r += static_cast<int32_t>(gridDim.x)) {
    const auto row = static_cast<size_t>(r);
    const bool image =
        a.bias_vl != 0 && rows.flags != 0 && (at<const uint32_t>(rows.flags)[r] & CED_ROW_IMAGE) != 0;
    const Weights bias(image ? a.bias_vl : a.bias, a.bias_format);
    for (uint32_t e = threadIdx.x; e < a.experts; e += kThreads) {
      score[e] = sqrtf(f32_softplus(at<const float>(a.logits)[row * a.experts + e] / a.temperature));
      key[e] = ordered(score[e] + bias[e]);
    }
    int32_t *idx = at<int32_t>(a.idx) + row * a.top_k;
    for (uint32_t k = 0; k < a.top_k; k++) {
      __syncthreads();  // keys are written, best and who have been read
      uint32_t top = 0, expert = 0;
      for (uint32_t e = threadIdx.x; e < a.experts; e += kThreads)
        if (key[e] > top) top = key[e], expert = e;
      const uint32_t most = warp_max(top);
      const uint32_t lowest = ~warp_max(top == most ? ~expert : 0);
      if (lane_id() == 0) best[warp_id()] = most, who[warp_id()] = lowest;
      __syncthreads();
      if (threadIdx.x != 0) continue;
      int w = 0;
      for (int i = 1; i < kThreads / 32; i++)
        if (best[i] > best[w] || (best[i] == best[w] && who[i] < who[w])) w = i;
      idx[k] = static_cast<int32_t>(who[w]);
      key[who[w]] = 0;
    }
    if (threadIdx.x == 0) {
      double sum = 0;
      for (uint32_t k = 0; k < a.top_k; k++) sum += static_cast<double>(score[idx[k]]);
      const float total = static_cast<float>(sum) + 1e-20f;
      for (uint32_t k = 0; k < a.top_k; k++) {
        const float weight = score[idx[k]];
        at<float>(a.weights)[row * a.top_k + k] = (a.normalise ? weight / total : weight) * a.route_scale;
      }
    }
    __syncthreads();  // before the next row's scores
  }
}

}  // namespace

int route_cuda(ced_stream *s, const ced_route_args &a, ced_err *err) {
  return launch(s, err, "route", {row_blocks(a.max_rows), kThreads, 2ull * a.experts * sizeof(float)},
                route_kernel, a);
}

}  // namespace ced
