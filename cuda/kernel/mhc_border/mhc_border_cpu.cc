#include "kernel/mhc_border/mhc_border.h"
#include "kernel/norm_quant/norm_quant_row.h"

namespace ced {
namespace {

// Expands the streams of a row and collapses them, 32 channels of all at a time, then makes the norm of the sum.
struct CrossRow {
  template <int W>
  static CED_INLINE void run(const ced_mhc_border_args *a, const ced_norm_quant_args *norm, int64_t r) {
    if (a->streams == 4) {  // the release's, unrolled
      streams<W>(*a, 4, r);
    } else {
      streams<W>(*a, a->streams, r);
    }
    NormQuantRow::run<W>(norm, r);
  }

 private:
  template <int W>
  static CED_INLINE void streams(const ced_mhc_border_args &a, int64_t n, int64_t r) {
    const int64_t dim = a.dim;
    const bool expand = a.y != 0;
    const uint16_t *y = expand ? at<const uint16_t>(a.y) + r * dim : nullptr;
    const float *pre = at<const float>(a.pre) + r * n;
    const float *post = expand ? at<const float>(a.post) + r * n : nullptr;
    const float *comb = expand ? at<const float>(a.comb) + r * n * n : nullptr;
    uint16_t *h = at<uint16_t>(a.h) + r * n * dim, *x = at<uint16_t>(a.x) + r * dim;
    for (int64_t d = 0; d < dim; d += kBlock) {
      Pairs<W> old[kMaxStreams], all{};
      for (int64_t j = 0; j < n; j++) old[j] = load_pairs<W>(h + j * dim + d);
      const auto in = expand ? load_pairs<W>(y + d) : Pairs<W>{};
      for (int64_t k = 0; k < n; k++) {
        Pairs<W> v = old[k];
        if (expand) {
          auto total = old[0] * comb[k];
          for (int64_t j = 1; j < n; j++) total += old[j] * comb[j * n + k];
          v = in * post[k] + total;
          v = {round_bf16(v.even), round_bf16(v.odd)};
          store_pairs(h + k * dim + d, v);
        }
        all = k == 0 ? v * pre[0] : all + v * pre[k];
      }
      store_pairs(x + d, all);
    }
  }
};

}  // namespace

// Rows are shared out once for all but the mixes, which read fn and share it out themselves.
void mhc_border_cpu(ced_stream *s, const ced_mhc_border_args &a) {
  const ced_norm_quant_args norm = norm_of(a);
  parallel_for(s, row_count(a.rows), grain_of(50 + int64_t{a.dim} * (a.streams + 4) / 8),
               [&](int64_t begin, int64_t end, int) {
                 for (int64_t r = begin; r < end; r++) vectorised<CrossRow>(&a, &norm, r);
               });
  if (a.fn != 0) mhc_mix_cpu(s, mix_of(a));
}

}  // namespace ced
