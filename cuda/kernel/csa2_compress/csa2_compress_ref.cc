#include "kernel/csa2_compress/csa2_compress.h"

#include "kernel/row.h"

namespace ced {
namespace {

// The (a, g) row of a position that an earlier step left open.
float *open_row(const ced_csa2_compress_args &a, int32_t slot, int32_t pos) {
  const size_t place = static_cast<size_t>(slot) * a.open_rows + static_cast<uint32_t>(pos) % a.open_rows;
  return at<float>(a.open) + place * 2 * a.dim;
}

// The pooled group that row r closes, before the norm.
void pool(const ced_csa2_compress_args &a, const ced_rows &rows, int64_t r, float *out) {
  const int ratio = static_cast<int>(a.ratio);
  const size_t dim = a.dim;
  const int32_t slot = at<const int32_t>(rows.slot)[r], pos = at<const int32_t>(rows.pos)[r];
  const float *av[kMaxRatio], *gv[kMaxRatio];
  for (int t = 0; t < ratio; t++) {
    const int64_t member = r - (ratio - 1 - t);
    if (member >= 0 && at<const int32_t>(rows.slot)[member] == slot) {
      av[t] = at<const float>(a.a) + static_cast<size_t>(member) * dim;
      gv[t] = at<const float>(a.g) + static_cast<size_t>(member) * dim;
    } else {
      av[t] = open_row(a, slot, pos - (ratio - 1 - t));
      gv[t] = av[t] + dim;
    }
  }
  for (size_t d = 0; d < dim; d++) {
    float top = gv[0][d];
    for (int t = 1; t < ratio; t++) top = f32_max(top, gv[t][d]);
    double e[kMaxRatio], total = 0, sum = 0;
    for (int t = 0; t < ratio; t++) total += e[t] = std::exp(static_cast<double>(gv[t][d]) - top);
    for (int t = 0; t < ratio; t++) sum += static_cast<double>(av[t][d] * static_cast<float>(e[t] / total));
    out[d] = bf16_round(static_cast<float>(sum));
  }
}

}  // namespace

void csa2_compress_ref(ced_stream *s, const ced_csa2_compress_args &a) {
  const auto &rows = *at<const ced_rows>(a.rows);
  const auto &groups = *at<const ced_groups>(a.groups);
  const int64_t dim = a.dim;
  parallel_for(s, groups.count, 1, [&](int64_t begin, int64_t end, int) {
    float x[kMaxRow];
    for (int64_t g = begin; g < end; g++) {
      const int64_t r = at<const int32_t>(groups.row)[g];
      if (a.ratio == 1) {
        load_row(at<const uint16_t>(a.a) + r * dim, dim, x);
      } else {
        pool(a, rows, r, x);
      }
      rms_norm(x, static_cast<int>(dim), a.weight, a.weight_format, a.eps);
      uint16_t *latent = at<uint16_t>(a.latent) + g * dim;
      for (int64_t d = 0; d < dim; d++) latent[d] = f32_to_bf16(x[d]);
    }
  });
  if (a.ratio == 1) return;
  // After every read above: the rows that later steps may need.
  const auto *pos = at<const int32_t>(rows.pos), *slot = at<const int32_t>(rows.slot);
  const int64_t n = a.open_rows;
  parallel_for(s, rows.count, 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; r++) {
      if (r + n < rows.count && slot[r + n] == slot[r]) continue;
      float *open = open_row(a, slot[r], pos[r]);
      memcpy(open, at<const float>(a.a) + r * dim, static_cast<size_t>(dim) * 4);
      memcpy(open + dim, at<const float>(a.g) + r * dim, static_cast<size_t>(dim) * 4);
    }
  });
}

}  // namespace ced
