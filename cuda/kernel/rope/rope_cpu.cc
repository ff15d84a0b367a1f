#include "kernel/rope/rope.h"
#include "kernel/rotary.h"

namespace ced {
namespace {

struct RotateRow {
  template <int W>
  static CED_INLINE void run(const ced_rope_args *a, int64_t r) {
    const int64_t pairs = a->rope_dim / 2, dim = a->dim;
    const auto position = static_cast<float>(at<const int32_t>(at<const ced_rows>(a->rows)->pos)[r]);
    Rotation by;
    Angles::run<W>(at<const float>(a->freqs), pairs, position, a->inverse != 0, &by);
    uint16_t *x = at<uint16_t>(a->x) + r * a->heads * dim + (dim - a->rope_dim);
    for (int64_t h = 0; h < a->heads; h++) rotate_pairs<W>(x + h * dim, pairs, by);
  }
};

}  // namespace

void rope_cpu(ced_stream *s, const ced_rope_args &a) {
  const int64_t row_ns = 2 * a.rope_dim + static_cast<int64_t>(a.heads) * a.rope_dim / 3;
  parallel_for(s, row_count(a.rows), grain_of(row_ns), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; r++) vectorised<RotateRow>(&a, r);
  });
}

}  // namespace ced
