#include "kernel/mhc_collapse/mhc_collapse.h"
#include "kernel/row_gpu.h"

namespace ced {
namespace {

constexpr int kThreads = 128;

// Eight channels a thread; the streams in ascending order.
__global__ void __launch_bounds__(kThreads) mhc_collapse_kernel(ced_mhc_collapse_args a) {
  const uint32_t piece = blockIdx.y * kThreads + threadIdx.x;
  if (8 * piece >= a.dim) return;
  const int32_t count = row_count(a.rows);
  for (int32_t r = static_cast<int32_t>(blockIdx.x); r < count; r += static_cast<int32_t>(gridDim.x)) {
    const size_t first = static_cast<size_t>(r) * a.streams;
    float sum[8] = {}, v[8];
    for (uint32_t j = 0; j < a.streams; j++) {
      const float pre = at<const float>(a.pre)[first + j];
      unpack8(load16(at<const uint16_t>(a.h) + (first + j) * a.dim + 8 * piece), v);
      for (int i = 0; i < 8; i++) sum[i] += pre * v[i];
    }
    store16(at<uint16_t>(a.x) + static_cast<size_t>(r) * a.dim + 8 * piece, pack8(sum));
  }
}

}  // namespace

int mhc_collapse_cuda(ced_stream *s, const ced_mhc_collapse_args &a, ced_err *err) {
  const dim3 blocks(row_blocks(a.max_rows).x, ceil_div(a.dim, 8 * kThreads));
  return launch(s, err, "mhc_collapse", {blocks, kThreads}, mhc_collapse_kernel, a);
}

}  // namespace ced
