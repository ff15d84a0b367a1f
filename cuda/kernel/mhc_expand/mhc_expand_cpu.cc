#include "kernel/mhc_expand/mhc_expand.h"
#include "kernel/mhc_mix/mhc_mix.h"
#include "kernel/row_lanes.h"

namespace ced {

namespace {

struct Expand {
  template <int W>
  static CED_INLINE void run(const uint16_t *y, const float *post, const float *comb, int64_t n, int64_t dim,
                             uint16_t *h) {
    if (n == 4) return rows<W>(y, post, comb, 4, dim, h);  // the release's, unrolled
    rows<W>(y, post, comb, n, dim, h);
  }

  template <int W>
  static CED_INLINE void rows(const uint16_t *y, const float *post, const float *comb, int64_t n, int64_t dim,
                              uint16_t *h) {
    for (int64_t d = 0; d < dim; d += kBlock) {
      const auto in = load_pairs<W>(y + d);
      Pairs<W> old[kMaxStreams];
      for (int64_t j = 0; j < n; j++) old[j] = load_pairs<W>(h + j * dim + d);
      for (int64_t k = 0; k < n; k++) {
        auto total = old[0] * comb[k];
        for (int64_t j = 1; j < n; j++) total += old[j] * comb[j * n + k];
        store_pairs(h + k * dim + d, in * post[k] + total);
      }
    }
  }
};

}  // namespace

void mhc_expand_cpu(ced_stream *s, const ced_mhc_expand_args &a) {
  const int64_t n = a.streams, dim = a.dim;
  parallel_for(s, row_count(a.rows), grain_of(n * dim / 6), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; r++)
      vectorised<Expand>(at<const uint16_t>(a.y) + r * dim, at<const float>(a.post) + r * n,
                         at<const float>(a.comb) + r * n * n, n, dim, at<uint16_t>(a.h) + r * n * dim);
  });
}

}  // namespace ced
