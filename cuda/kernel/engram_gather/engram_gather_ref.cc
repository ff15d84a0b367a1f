#include "kernel/engram_gather/engram_gather.h"

#include "kernel/row.h"
#include "num/e8m0.h"
#include "num/fp8.h"

namespace ced {

void engram_gather_ref(ced_stream *s, const ced_engram_gather_args &a) {
  const size_t dim = a.dim;
  parallel_for(s, static_cast<int64_t>(row_count(a.rows)) * a.cols, 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; i++) {
      uint16_t *e = at<uint16_t>(a.e) + static_cast<size_t>(i) * dim;
      const auto id = static_cast<uint64_t>(at<const int64_t>(a.ids)[i]);
      if (id >= a.table_rows) {
        std::fill_n(e, dim, uint16_t{0});
        continue;
      }
      const uint8_t *codes = at<const uint8_t>(a.table) + id * dim;
      const uint8_t *scales = at<const uint8_t>(a.table_scales) + id * (dim / 32);
      for (size_t d = 0; d < dim; d++)
        e[d] = f32_to_bf16(e4m3_to_f32(codes[d]) * e8m0_to_f32(scales[d / 32]));
    }
  });
}

}  // namespace ced
