#include "kernel/dense_gemm/decode.h"
#include "kernel/dense_gemm/tile.h"
#include "kernel/norm_quant/norm_quant.h"
#include "kernel/row.h"
#include "num/quant.h"

namespace ced {
namespace {

// Loops over 16 lanes, which compilers turn into vectors; the lanes are joined by the tree of decode.h.
CED_INLINE float mean_square(const uint16_t *x, int64_t n) {
  float lanes[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int l = 0; l < 16; l++) lanes[l] += bf16_to_f32(x[i + l]) * bf16_to_f32(x[i + l]);
  for (; i < n; i++) lanes[i % 16] += bf16_to_f32(x[i]) * bf16_to_f32(x[i]);
  for (int d = 8; d > 0; d /= 2)
    for (int l = 0; l < d; l++) lanes[l] += lanes[l + d];
  return lanes[0] / static_cast<float>(n);
}

// y = bf16(w * (x * scale)) for n <= 32 channels from k on, as f32.
CED_INLINE void normalise(const ced_norm_quant_args &a, const uint16_t *x, int64_t k, int64_t n, float scale,
                          float *y) {
  float w[32];
  const char *weight = at<const char>(a.weight);
  if (a.weight_format == CED_F32) {
    memcpy(w, weight + 4 * k, static_cast<size_t>(4 * n));
  } else {
    uint16_t h[32];
    memcpy(h, weight + 2 * k, static_cast<size_t>(2 * n));
    for (int64_t i = 0; i < n; i++) w[i] = bf16_to_f32(h[i]);
  }
  for (int64_t i = 0; i < n; i++) y[i] = bf16_round(w[i] * (bf16_to_f32(x[k + i]) * scale));
}

CED_INLINE void norm_quant_row(const ced_norm_quant_args &a, int64_t r) {
  const int64_t n = a.n;
  const uint16_t *x = at<const uint16_t>(a.x) + r * n;
  const float scale = a.weight != 0 ? f32_rsqrt(mean_square(x, n) + a.eps) : 1.0f;
  for (int64_t k = 0; k < n; k += 32) {
    const int64_t length = n - k < 32 ? n - k : 32;
    float y[32];
    if (a.weight != 0) {
      normalise(a, x, k, length, scale, y);
    } else {
      for (int64_t i = 0; i < length; i++) y[i] = bf16_to_f32(x[k + i]);
    }
    if (a.y != 0)
      for (int64_t i = 0; i < length; i++) at<uint16_t>(a.y)[r * n + k + i] = f32_to_bf16(y[i]);
    if (a.codes != 0)
      act_quant32(y, at<uint8_t>(a.codes) + r * n + k, at<uint8_t>(a.scales) + (r * n + k) / 32);
  }
}

#if CED_WIDE
CED_AVX512 void row_avx512(const ced_norm_quant_args &a, int64_t r) { norm_quant_row(a, r); }
CED_AVX2 void row_avx2(const ced_norm_quant_args &a, int64_t r) { norm_quant_row(a, r); }
#endif
void row_plain(const ced_norm_quant_args &a, int64_t r) { norm_quant_row(a, r); }

}  // namespace

void norm_quant_cpu(ced_stream *s, const ced_norm_quant_args &a) {
  auto *row = row_plain;
#if CED_WIDE
  row = simd_width() == 16 ? row_avx512 : simd_width() == 8 ? row_avx2 : row_plain;
#endif
  parallel_for(s, row_count(a.rows), 1, [&](int64_t r, int64_t, int) { row(a, r); });
}

}  // namespace ced
