#include "kernel/mhc_mix/mhc_mix.h"

#include "kernel/row.h"

namespace ced {
namespace {

// k[j][.] /= sum + eps for every row j, or k[.][j] for every column.
void normalise(float *k, int n, bool rows, float eps) {
  const int along = rows ? 1 : n, across = rows ? n : 1;
  for (int j = 0; j < n; j++) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += k[j * across + i * along];
    const float total = static_cast<float>(sum) + eps;
    for (int i = 0; i < n; i++) k[j * across + i * along] /= total;
  }
}

}  // namespace

void mhc_mix_finish(const ced_mhc_mix_args &a, const float *m, float *pre, float *post, float *comb) {
  const int n = static_cast<int>(a.streams);
  const auto scale = [&](size_t i) { return weight_at(a.scale, CED_F32, i); };
  const auto mixed = [&](int i, size_t part) {
    return m[i] * scale(part) + weight_at(a.base, CED_F32, static_cast<size_t>(i));
  };
  for (int j = 0; j < n; j++) {
    pre[j] = f32_sigmoid(mixed(j, 0)) + a.hc_eps;
    post[j] = 2.0f * f32_sigmoid(mixed(n + j, 1));
  }
  for (int i = 0; i < n * n; i++) comb[i] = mixed(2 * n + i, 2);
  for (int j = 0; j < n; j++) {
    float *row = comb + j * n, top = row[0];
    for (int k = 1; k < n; k++) top = f32_max(top, row[k]);
    for (int k = 0; k < n; k++) row[k] = f32_exp(row[k] - top);
  }
  normalise(comb, n, true, 0);
  for (int i = 0; i < n * n; i++) comb[i] += a.hc_eps;
  normalise(comb, n, false, a.hc_eps);
  for (uint32_t step = 1; step < a.iters; step++) {
    normalise(comb, n, true, a.hc_eps);
    normalise(comb, n, false, a.hc_eps);
  }
}

void mhc_mix_ref(ced_stream *, const ced_mhc_mix_args &a) {
  const int64_t n = a.streams, width = n * a.dim, outputs = (2 + n) * n;
  for (int64_t r = 0; r < row_count(a.rows); r++) {
    const uint16_t *h = at<const uint16_t>(a.h) + r * width;
    double squares = 0;
    for (int64_t i = 0; i < width; i++) {
      const float x = bf16_to_f32(h[i]);
      squares += static_cast<double>(x * x);
    }
    const float norm = f32_rsqrt(static_cast<float>(squares / static_cast<double>(width)) + a.norm_eps);
    float m[(2 + kMaxStreams) * kMaxStreams];
    for (int64_t o = 0; o < outputs; o++) {
      double sum = 0;
      for (int64_t i = 0; i < width; i++)
        sum += static_cast<double>(bf16_to_f32(h[i])) *
               weight_at(a.fn, CED_F32, static_cast<size_t>(o * width + i));
      m[o] = static_cast<float>(sum) * norm;
    }
    mhc_mix_finish(a, m, at<float>(a.pre) + r * n, at<float>(a.post) + r * n, at<float>(a.comb) + r * n * n);
  }
}

}  // namespace ced
