#include "kernel/mhc_collapse/mhc_collapse.h"
#include "num/bf16.h"

namespace ced {

void mhc_collapse_ref(ced_stream *, const ced_mhc_collapse_args &a) {
  const int64_t n = a.streams, dim = a.dim;
  for (int64_t r = 0; r < row_count(a.rows); r++) {
    const uint16_t *h = at<const uint16_t>(a.h) + r * n * dim;
    const float *pre = at<const float>(a.pre) + r * n;
    uint16_t *x = at<uint16_t>(a.x) + r * dim;
    for (int64_t d = 0; d < dim; d++) {
      double sum = 0;
      for (int64_t j = 0; j < n; j++) sum += static_cast<double>(pre[j] * bf16_to_f32(h[j * dim + d]));
      x[d] = f32_to_bf16(static_cast<float>(sum));
    }
  }
}

}  // namespace ced
