#include "kernel/rope/rope.h"
#include "kernel/row_gpu.h"

namespace ced {
namespace {

constexpr int kThreads = 256;

// A block for a row: the angles once, then all heads.
__global__ void __launch_bounds__(kThreads) rope_kernel(ced_rope_args a) {
  DYN_SMEM(float, cosine);
  const uint32_t pairs = a.rope_dim / 2;
  float *sine = cosine + pairs;
  const auto &rows = *at<const ced_rows>(a.rows);
  for (int32_t r = static_cast<int32_t>(blockIdx.x); r < rows.count; r += static_cast<int32_t>(gridDim.x)) {
    for (uint32_t i = threadIdx.x; i < pairs; i += kThreads) {
      rope_angle(at<const float>(a.freqs)[i], at<const int32_t>(rows.pos)[r], cosine[i], sine[i]);
      if (a.inverse) sine[i] = -sine[i];
    }
    __syncthreads();
    for (uint32_t e = threadIdx.x; e < pairs * a.heads; e += kThreads) {
      const uint32_t i = e % pairs, head = e / pairs;
      uint16_t *x =
          at<uint16_t>(a.x) + (static_cast<size_t>(r) * a.heads + head + 1) * a.dim - a.rope_dim + 2 * i;
      float even = bf16_to_f32(x[0]), odd = bf16_to_f32(x[1]);
      rotate_pair(even, odd, cosine[i], sine[i]);
      x[0] = f32_to_bf16(even), x[1] = f32_to_bf16(odd);
    }
    __syncthreads();  // before the next row's angles
  }
}

}  // namespace

int rope_cuda(ced_stream *s, const ced_rope_args &a, ced_err *err) {
  return launch(s, err, "rope", {row_blocks(a.max_rows), kThreads, a.rope_dim * sizeof(float)}, rope_kernel,
                a);
}

}  // namespace ced
