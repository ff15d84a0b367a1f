#include "kernel/csa2_compress/csa2_compress.h"

#include "kernel/row.h"

namespace ced {
namespace {

// The pooled group that row r closes, before the norm.
void pool(const ced_csa2_compress_args &a, const ced_rows &rows, int64_t r, float *out) {
  const int ratio = static_cast<int>(a.ratio);
  const GroupMembers members = group_members(a, rows, r);
  for (size_t d = 0; d < a.dim; d++) {
    float top = members.g[0][d];
    for (int t = 1; t < ratio; t++) top = f32_max(top, members.g[t][d]);
    double e[kMaxRatio], total = 0, sum = 0;
    for (int t = 0; t < ratio; t++) total += e[t] = std::exp(static_cast<double>(members.g[t][d]) - top);
    for (int t = 0; t < ratio; t++)
      sum += static_cast<double>(members.a[t][d] * static_cast<float>(e[t] / total));
    out[d] = bf16_round(static_cast<float>(sum));
  }
}

}  // namespace

void csa2_compress_ref(ced_stream *, const ced_csa2_compress_args &a) {
  const auto &rows = *at<const ced_rows>(a.rows);
  const auto &groups = *at<const ced_groups>(a.groups);
  const int64_t dim = a.dim;
  float x[kMaxRow];
  for (int64_t g = 0; g < groups.count; g++) {
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
  if (a.ratio == 1) return;
  // After every read above: the rows that later steps may need.
  for (int64_t r = 0; r < rows.count; r++) keep_open(a, rows, r);
}

}  // namespace ced
