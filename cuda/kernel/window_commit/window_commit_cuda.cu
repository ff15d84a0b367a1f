#include "kernel/row_gpu.h"
#include "kernel/window_commit/window_commit.h"

namespace ced {
namespace {

constexpr int kThreads = 64;

__global__ void __launch_bounds__(kThreads) window_commit_kernel(ced_window_commit_args a) {
  const auto &rows = *at<const ced_rows>(a.rows);
  const int32_t *pos = at<const int32_t>(rows.pos), *slot = at<const int32_t>(rows.slot);
  const int64_t n = a.ring_rows;
  for (int32_t r = static_cast<int32_t>(blockIdx.x); r < rows.count; r += static_cast<int32_t>(gridDim.x)) {
    if (r + n < rows.count && slot[r + n] == slot[r]) continue;  // a later row takes this place
    const auto place =
        static_cast<uint64_t>(slot[r]) * a.ring_rows + static_cast<uint32_t>(pos[r]) % a.ring_rows;
    copy_bytes(at<unsigned char>(a.ring) + place * a.row_bytes,
               at<const unsigned char>(a.packed) + static_cast<uint64_t>(r) * a.row_bytes, a.row_bytes);
  }
}

}  // namespace

int window_commit_cuda(ced_stream *s, const ced_window_commit_args &a, ced_err *err) {
  return launch(s, err, "window_commit", {row_blocks(a.max_rows), kThreads}, window_commit_kernel, a);
}

}  // namespace ced
