#include "kernel/rotary.h"
#include "kernel/window_pack/window_pack.h"

namespace ced {
namespace {

struct PackRow {
  template <int W>
  static CED_INLINE void run(const ced_window_pack_args *a, int64_t r, float position) {
    const int64_t n = a->dim, pairs = a->rope_dim / 2;
    const uint16_t *x = at<const uint16_t>(a->x) + r * n;
    uint16_t row[kMaxRow];
    Rotation by;
    scale_row<W>(x, n, at<const char>(a->weight), a->weight_format == CED_BF16, rms_scale<W>(x, n, a->eps),
                 row);
    Angles::run<W>(at<const float>(a->freqs), pairs, position, false, &by);
    rotate_pairs<W>(row + n - 2 * pairs, pairs, by);
    uint8_t *codes = at<uint8_t>(a->packed) + r * (n + n / 32);
    quantise_row<W>(row, n, codes, codes + n);
  }
};

}  // namespace

void window_pack_cpu(ced_stream *s, const ced_window_pack_args &a) {
  const auto *pos = at<const int32_t>(at<const ced_rows>(a.rows)->pos);
  parallel_for(s, row_count(a.rows), grain_of(200 + a.dim / 2), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; r++) vectorised<PackRow>(&a, r, static_cast<float>(pos[r]));
  });
}

}  // namespace ced
