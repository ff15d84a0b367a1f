#include "kernel/mhc_expand/mhc_expand.h"
#include "kernel/mhc_mix/mhc_mix.h"
#include "num/bf16.h"

namespace ced {

void mhc_expand_ref(ced_stream *, const ced_mhc_expand_args &a) {
  const int64_t n = a.streams, dim = a.dim;
  for (int64_t r = 0; r < row_count(a.rows); r++) {
    const uint16_t *y = at<const uint16_t>(a.y) + r * dim;
    const float *post = at<const float>(a.post) + r * n, *comb = at<const float>(a.comb) + r * n * n;
    uint16_t *h = at<uint16_t>(a.h) + r * n * dim;
    for (int64_t d = 0; d < dim; d++) {
      float old[kMaxStreams];
      for (int64_t j = 0; j < n; j++) old[j] = bf16_to_f32(h[j * dim + d]);
      for (int64_t k = 0; k < n; k++) {
        double sum = 0;
        for (int64_t j = 0; j < n; j++) sum += static_cast<double>(comb[j * n + k] * old[j]);
        h[k * dim + d] = f32_to_bf16(post[k] * bf16_to_f32(y[d]) + static_cast<float>(sum));
      }
    }
  }
}

}  // namespace ced
