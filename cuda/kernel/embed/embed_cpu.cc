#include <cstring>

#include "kernel/embed/embed.h"
#include "kernel/row.h"

namespace ced {

static void embed_row(const ced_embed_args &a, int64_t r) {
  const auto &rows = *at<const ced_rows>(a.rows);
  const int64_t dim = a.dim;
  uint16_t *h = at<uint16_t>(a.h) + r * a.streams * dim;
  const int64_t override_row = rows.embed_row != 0 ? at<const int32_t>(rows.embed_row)[r] : -1;
  if (override_row >= 0) {
    memcpy(h, at<const uint16_t>(a.overrides) + override_row * dim, 2 * a.dim);
  } else {
    const int64_t first = at<const int32_t>(rows.token)[r] * dim;
    if (a.table_format == CED_BF16) {
      memcpy(h, at<const char>(a.table) + 2 * first, 2 * a.dim);
    } else {
      for (int64_t i = 0; i < dim; i++)
        h[i] = f32_to_bf16(weight_at(a.table, CED_F32, static_cast<size_t>(first + i)));
    }
  }
  for (int64_t j = 0; j < a.streams; j++) {
    if (j > 0) memcpy(h + j * dim, h, 2 * a.dim);
    at<float>(a.pre)[r * a.streams + j] = j == 0 ? 1.0f : 0.0f;
  }
}

void embed_ref(ced_stream *s, const ced_embed_args &a) { embed_cpu(s, a); }

void embed_cpu(ced_stream *s, const ced_embed_args &a) {
  const int64_t row_ns = 20 + static_cast<int64_t>(a.streams) * a.dim / 16;
  parallel_for(s, row_count(a.rows), grain_of(row_ns), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; r++) embed_row(a, r);
  });
}

}  // namespace ced
