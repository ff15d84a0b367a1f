#include "kernel/row_gather/row_gather.h"
#include "kernel/row_gpu.h"

namespace ced {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) row_gather_kernel(ced_row_gather_args a) {
  const int32_t count = row_count(a.rows);
  const int32_t *index = at<const int32_t>(a.index);
  for (int32_t r = static_cast<int32_t>(blockIdx.x); r < count; r += static_cast<int32_t>(gridDim.x))
    copy_bytes(at<unsigned char>(a.dst) + static_cast<uint64_t>(r) * a.row_bytes,
               at<const unsigned char>(a.src) + static_cast<uint64_t>(index[r]) * a.row_bytes, a.row_bytes);
}

}  // namespace

int row_gather_cuda(ced_stream *s, const ced_row_gather_args &a, ced_err *err) {
  return launch(s, err, "row_gather", {row_blocks(a.max_rows), kThreads}, row_gather_kernel, a);
}

}  // namespace ced
