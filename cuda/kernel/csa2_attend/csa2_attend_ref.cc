#include "kernel/csa2_attend/csa2_attend.h"
#include "num/e8m0.h"
#include "num/fp4.h"
#include "num/fp8.h"

namespace ced {
namespace {

void dequantise(const Key &key, int64_t dim, float *out) {
  for (int64_t d = 0; d < dim; d++) {
    if (key.global) {
      out[d] = e2m1_to_f32(key.codes[d / 2] >> (d % 2 * 4)) * e4m3_to_f32(key.scales[d / 16]);
    } else {
      out[d] = e4m3_to_f32(key.codes[d]) * e8m0_to_f32(key.scales[d / 32]);
    }
  }
}

// One block of n keys joins the running softmax of one head.
void attend_block(const uint16_t *q, const float *keys, int n, int64_t dim, float scale, float *acc,
                  float *top, float *total) {
  float l[kBlock], next = *top;
  for (int j = 0; j < n; j++) {
    double dot = 0;
    for (int64_t d = 0; d < dim; d++) dot += static_cast<double>(bf16_to_f32(q[d])) * keys[j * dim + d];
    l[j] = static_cast<float>(dot) * scale;
    next = f32_max(next, l[j]);
  }
  const float carry = f32_exp(*top - next);
  double sum = 0, pv[kMaxRow] = {};
  for (int j = 0; j < n; j++) {
    const float p = f32_exp(l[j] - next);
    sum += p;
    const double rounded = bf16_round(p);
    for (int64_t d = 0; d < dim; d++) pv[d] += rounded * keys[j * dim + d];
  }
  *top = next;
  *total = *total * carry + static_cast<float>(sum);
  for (int64_t d = 0; d < dim; d++) acc[d] = acc[d] * carry + static_cast<float>(pv[d]);
}

}  // namespace

void csa2_attend_ref(ced_stream *, const ced_csa2_attend_args &a) {
  const int64_t heads = a.heads, dim = a.head_dim;
  const float scale = attend_scale(a);
  const AttendScratch w(a, 0);
  for (int64_t r = 0; r < row_count(a.rows); r++) {
    const KeyList list(a, r);
    std::fill_n(w.acc, heads * dim, 0.0f);
    std::fill_n(w.total, heads, 0.0f);
    std::fill_n(w.top, heads, kNoKeyYet);
    for (int b = 0; b < list.blocks(); b++) {
      Key keys[kBlock];
      const int n = list.block(b, keys);
      if (n == 0) continue;
      for (int j = 0; j < n; j++) dequantise(keys[j], dim, w.keys + j * dim);
      for (int64_t h = 0; h < heads; h++)
        attend_block(at<const uint16_t>(a.q) + (r * heads + h) * dim, w.keys, n, dim, scale, w.acc + h * dim,
                     w.top + h, w.total + h);
    }
    for (int64_t h = 0; h < heads; h++) {
      const float sink = weight_at(a.sink, CED_F32, static_cast<size_t>(h));
      const float total = w.total[h] + f32_exp(sink - w.top[h]);
      uint16_t *o = at<uint16_t>(a.o) + (r * heads + h) * dim;
      for (int64_t d = 0; d < dim; d++) o[d] = f32_to_bf16(w.acc[h * dim + d] / total);
    }
  }
}

}  // namespace ced
