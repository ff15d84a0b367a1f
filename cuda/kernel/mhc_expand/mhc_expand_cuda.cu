#include "kernel/mhc_expand/mhc_expand.h"
#include "kernel/row_gpu.h"

namespace ced {
namespace {

constexpr int kThreads = 128;

// Eight channels of all N streams a thread, read once and written once; the streams in ascending order.
template <int N>
__global__ void __launch_bounds__(kThreads) mhc_expand_kernel(ced_mhc_expand_args a) {
  const uint32_t piece = blockIdx.y * kThreads + threadIdx.x;
  if (8 * piece >= a.dim) return;
  const int32_t count = row_count(a.rows);
  for (int32_t r = static_cast<int32_t>(blockIdx.x); r < count; r += static_cast<int32_t>(gridDim.x)) {
    const auto row = static_cast<size_t>(r);
    uint16_t *h = at<uint16_t>(a.h) + row * N * a.dim + 8 * piece;
    float old[N][8], y[8];
    for (int j = 0; j < N; j++) unpack8(load16(h + static_cast<size_t>(j) * a.dim), old[j]);
    unpack8(load16(at<const uint16_t>(a.y) + row * a.dim + 8 * piece), y);
    for (int k = 0; k < N; k++) {
      const float post = at<const float>(a.post)[row * N + static_cast<size_t>(k)];
      float sum[8] = {};
      for (int j = 0; j < N; j++) {
        const float comb =
            at<const float>(a.comb)[(row * N + static_cast<size_t>(j)) * N + static_cast<size_t>(k)];
        for (int i = 0; i < 8; i++) sum[i] += comb * old[j][i];
      }
      for (int i = 0; i < 8; i++) sum[i] += post * y[i];
      store16(h + static_cast<size_t>(k) * a.dim, pack8(sum));
    }
  }
}

// The body of the first N that is a.streams.
template <int N = 1>
int launch_streams(ced_stream *s, const ced_mhc_expand_args &a, ced_err *err) {
  if constexpr (N < 8) {
    if (a.streams != N) return launch_streams<N + 1>(s, a, err);
  }
  const dim3 blocks(row_blocks(a.max_rows).x, ceil_div(a.dim, 8 * kThreads));
  return launch(s, err, "mhc_expand", {blocks, kThreads}, mhc_expand_kernel<N>, a);
}

}  // namespace

int mhc_expand_cuda(ced_stream *s, const ced_mhc_expand_args &a, ced_err *err) {
  return launch_streams(s, a, err);
}

}  // namespace ced
