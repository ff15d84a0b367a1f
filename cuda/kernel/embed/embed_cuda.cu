#include "kernel/embed/embed.h"
#include "kernel/row_gpu.h"

namespace ced {
namespace {

constexpr int kThreads = 128;

// A block for a row. The row is read once for every stream: all but the first time out of L1.
__global__ void __launch_bounds__(kThreads) embed_kernel(ced_embed_args a) {
  const auto &rows = *at<const ced_rows>(a.rows);
  const int32_t *tokens = at<const int32_t>(rows.token);
  const int32_t *overrides = rows.embed_row != 0 ? at<const int32_t>(rows.embed_row) : nullptr;
  for (int32_t r = static_cast<int32_t>(blockIdx.x); r < rows.count; r += static_cast<int32_t>(gridDim.x)) {
    const int64_t instead = overrides != nullptr ? overrides[r] : -1;
    const uint64_t bytes = 2ull * a.dim, first = static_cast<uint64_t>(r) * a.streams;
    auto *h = at<unsigned char>(a.h);
    const bool rounded = instead < 0 && a.table_format == CED_F32;
    const unsigned char *row =
        instead >= 0 ? at<const unsigned char>(a.overrides) + static_cast<uint64_t>(instead) * bytes
                     : at<const unsigned char>(a.table) + static_cast<uint64_t>(tokens[r]) * bytes;
    for (uint32_t j = 0; j < a.streams; j++) {
      unsigned char *to = h + (first + j) * bytes;
      if (rounded) {
        const Weights table(a.table, CED_F32);
        for (uint32_t i = threadIdx.x; i < a.dim; i += kThreads)
          reinterpret_cast<uint16_t *>(to)[i] =
              f32_to_bf16(table[static_cast<size_t>(tokens[r]) * a.dim + i]);
      } else {
        copy_bytes(to, row, bytes);
      }
    }
    if (threadIdx.x < a.streams) at<float>(a.pre)[first + threadIdx.x] = threadIdx.x == 0 ? 1.0f : 0.0f;
  }
}

}  // namespace

int embed_cuda(ced_stream *s, const ced_embed_args &a, ced_err *err) {
  return launch(s, err, "embed", {row_blocks(a.max_rows), kThreads}, embed_kernel, a);
}

}  // namespace ced
