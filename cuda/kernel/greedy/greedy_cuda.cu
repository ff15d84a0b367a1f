#include "kernel/greedy/greedy.h"
#include "kernel/row_gpu.h"

namespace ced {
namespace {

constexpr uint32_t kThreads = 1024;

// Orders as the logits do, and among equal ones lower ids first; 0 is less than any.
__device__ uint64_t key_of(float v, uint32_t id) {
  const uint32_t u = f32_bits(v + 0.0f);  // -0 is 0
  const uint32_t ordered = (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
  return static_cast<uint64_t>(ordered) << 32 | (0xFFFFFFFFu - id);
}

// A block for a row.
__global__ void __launch_bounds__(kThreads) greedy_kernel(ced_greedy_args a) {
  SHARED(uint64_t, best, kThreads / 32);
  const int32_t count = row_count(a.rows);
  for (int32_t r = static_cast<int32_t>(blockIdx.x); r < count; r += static_cast<int32_t>(gridDim.x)) {
    const float *row = at<const float>(a.logits) + static_cast<size_t>(r) * a.vocab;
    uint64_t key = 0;
    int bad = 0;
    for (uint32_t i = threadIdx.x; i < a.vocab; i += kThreads) {
      const float v = row[i];
      if (!(v < INFINITY)) bad = 1;
      const uint64_t k = v > -INFINITY ? key_of(v, i) : 0;
      key = k > key ? k : key;
    }
    for (int m = 16; m > 0; m /= 2) {
      const uint64_t other = __shfl_xor_sync(kAllLanes, key, m);
      key = other > key ? other : key;
    }
    if (lane_id() == 0) best[warp_id()] = key;
    bad = __syncthreads_or(bad);
    if (threadIdx.x == 0) {
      for (uint32_t w = 1; w < kThreads / 32; w++) key = best[w] > key ? best[w] : key;
      at<int32_t>(a.ids)[r] =
          bad != 0 || key == 0 ? -1 : static_cast<int32_t>(0xFFFFFFFFu - static_cast<uint32_t>(key));
    }
    __syncthreads();  // best may be used again
  }
}

}  // namespace

int greedy_cuda(ced_stream *s, const ced_greedy_args &a, ced_err *err) {
  return launch(s, err, "greedy", {row_blocks(a.max_rows), kThreads}, greedy_kernel, a);
}

}  // namespace ced
