#include "kernel/norm_gpu.h"
#include "kernel/norm_quant/norm_quant.h"

namespace ced {
namespace {

// A block for a row.
template <int kThreads>
__global__ void __launch_bounds__(kThreads) norm_quant_kernel(ced_norm_quant_args a) {
  SHARED(float, part, kThreads / 32);
  const int32_t count = row_count(a.rows);
  for (int32_t r = static_cast<int32_t>(blockIdx.x); r < count; r += static_cast<int32_t>(gridDim.x))
    norm_quant_row<kThreads>(a, static_cast<size_t>(r), part, [] { __syncthreads(); });
}

}  // namespace

int norm_quant_cuda(ced_stream *s, const ced_norm_quant_args &a, ced_err *err) {
  const dim3 blocks = row_blocks(a.max_rows);
  if (a.n <= kShortNorm)
    return launch(s, err, "norm_quant", {blocks, kShortThreads}, norm_quant_kernel<kShortThreads>, a);
  return launch(s, err, "norm_quant", {blocks, kLongThreads}, norm_quant_kernel<kLongThreads>, a);
}

}  // namespace ced
