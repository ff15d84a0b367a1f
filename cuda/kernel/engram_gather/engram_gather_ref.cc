#include <algorithm>

#include "kernel/engram_gather/engram_gather.h"

namespace ced {

void engram_gather_ref(ced_stream *, const ced_engram_gather_args &a) {
  const size_t dim = a.dim, count = static_cast<size_t>(row_count(a.rows)) * a.cols;
  for (size_t i = 0; i < count; i++) {
    uint16_t *e = at<uint16_t>(a.e) + i * dim;
    const auto id = static_cast<uint64_t>(at<const int64_t>(a.ids)[i]);
    if (id >= a.table_rows) {
      std::fill_n(e, dim, uint16_t{0});
      continue;
    }
    const uint8_t *codes = at<const uint8_t>(a.table) + id * dim;
    const uint8_t *scales = at<const uint8_t>(a.table_scales) + id * (dim / 32);
    for (size_t d = 0; d < dim; d += 32) engram_dequantise(codes + d, scales[d / 32], e + d);
  }
}

}  // namespace ced
