#include "kernel/engram_gather/engram_gather.h"
#include "kernel/row_gpu.h"

namespace ced {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;

// A warp for a table row, eight codes a lane. The table may start at any byte and lie in the host's memory.
__global__ void __launch_bounds__(kThreads) engram_gather_kernel(ced_engram_gather_args a) {
  const uint64_t count = static_cast<uint64_t>(row_count(a.rows)) * a.cols, dim = a.dim;
  const auto *table = at<const uint8_t>(a.table), *scales = at<const uint8_t>(a.table_scales);
  const bool whole = aligned(a.table, 8) && dim % 8 == 0;
  for (uint64_t i = blockIdx.x * kWarps + static_cast<uint32_t>(warp_id()); i < count;
       i += uint64_t{gridDim.x} * kWarps) {
    const auto id = static_cast<uint64_t>(at<const int64_t>(a.ids)[i]);
    const bool there = id < a.table_rows;
    uint16_t *e = at<uint16_t>(a.e) + i * dim;
    for (uint64_t d = 8 * static_cast<uint64_t>(lane_id()); d < dim; d += 256) {
      float v[8] = {};
      if (there) {
        const uint8_t *p = table + id * dim + d;
        uint8_t code[8];
        if (whole) {
          const uint2 w = *reinterpret_cast<const uint2 *>(p);
          for (int k = 0; k < 8; k++) code[k] = static_cast<uint8_t>((k < 4 ? w.x : w.y) >> (8 * (k % 4)));
        } else {
          for (int k = 0; k < 8; k++) code[k] = p[k];
        }
        const float scale = e8m0_to_f32(scales[(id * dim + d) / 32]);
        for (int k = 0; k < 8; k++) v[k] = e4m3_to_f32(code[k]) * scale;
      }
      store16(e + d, pack8(v));
    }
  }
}

}  // namespace

int engram_gather_cuda(ced_stream *s, const ced_engram_gather_args &a, ced_err *err) {
  const uint64_t pieces = (uint64_t{a.max_rows} * a.cols + kWarps - 1) / kWarps;
  const dim3 blocks(static_cast<uint32_t>(pieces < 65535 ? pieces : 65535));
  return launch(s, err, "engram_gather", {blocks, kThreads}, engram_gather_kernel, a);
}

}  // namespace ced
