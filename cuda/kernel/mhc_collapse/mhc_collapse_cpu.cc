#include "kernel/mhc_collapse/mhc_collapse.h"
#include "kernel/row_lanes.h"

namespace ced {

namespace {

struct Collapse {
  template <int W>
  static CED_INLINE void run(const uint16_t *h, const float *pre, int64_t n, int64_t dim, uint16_t *x) {
    for (int64_t d = 0; d < dim; d += kBlock) {
      auto total = load_pairs<W>(h + d) * pre[0];
      for (int64_t j = 1; j < n; j++) total += load_pairs<W>(h + j * dim + d) * pre[j];
      store_pairs(x + d, total);
    }
  }
};

}  // namespace

void mhc_collapse_cpu(ced_stream *s, const ced_mhc_collapse_args &a) {
  const int64_t n = a.streams, dim = a.dim;
  parallel_for(s, row_count(a.rows), grain_of(n * dim / 12), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; r++)
      vectorised<Collapse>(at<const uint16_t>(a.h) + r * n * dim, at<const float>(a.pre) + r * n, n, dim,
                           at<uint16_t>(a.x) + r * dim);
  });
}

}  // namespace ced
