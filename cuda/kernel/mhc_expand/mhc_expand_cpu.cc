#include "kernel/lanes.h"
#include "kernel/mhc_expand/mhc_expand.h"
#include "kernel/mhc_mix/mhc_mix.h"

namespace ced {

namespace {

struct Expand {
  template <int W>
  static CED_INLINE void run(const uint16_t *y, const float *post, const float *comb, int64_t n, int64_t dim,
                             uint16_t *h) {
    for (int64_t d = 0; d < dim; d += kLanes) {
      const f32<W> in = load_bf16<W>(y + d);
      f32<W> old[kMaxStreams];
      for (int64_t j = 0; j < n; j++) old[j] = load_bf16<W>(h + j * dim + d);
      for (int64_t k = 0; k < n; k++) {
        f32<W> total = old[0] * comb[k];
        for (int64_t j = 1; j < n; j++) total += old[j] * comb[j * n + k];
        store_bf16(h + k * dim + d, in * post[k] + total);
      }
    }
  }
};

}  // namespace

void mhc_expand_cpu(ced_stream *s, const ced_mhc_expand_args &a) {
  const int64_t n = a.streams, dim = a.dim;
  parallel_for(s, row_count(a.rows), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; r++)
      vectorised<Expand>(at<const uint16_t>(a.y) + r * dim, at<const float>(a.post) + r * n,
                         at<const float>(a.comb) + r * n * n, n, dim, at<uint16_t>(a.h) + r * n * dim);
  });
}

}  // namespace ced
