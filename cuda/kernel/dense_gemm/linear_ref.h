// linear_ref.h: one output of a linear in canonical arithmetic (spec 3.0, 3.3 - 3.6).
#pragma once
#include <cstring>

#include "ced.h"
#include "num/bf16.h"
#include "num/e8m0.h"
#include "num/fp4.h"
#include "num/fp8.h"

namespace ced {

// Quantised linear: each 32-block is exact in f64 and rounded to f32; the blocks are added in f32 in ascending order.
// w: one row of e4m3 codes or packed e2m1; w_scales: its UE8M0 bytes.
inline float quantised_dot(const uint8_t *x, const uint8_t *x_scales, const uint8_t *w,
                           const uint8_t *w_scales, ced_format w_format, int64_t k) {
  float sum = 0;
  for (int64_t b = 0; b < k / 32; b++) {
    double block = 0;
    for (int64_t i = 32 * b; i < 32 * b + 32; i++) {
      const auto nibble = static_cast<uint8_t>(w[i / 2] >> (4 * (i & 1)));
      const float v = w_format == CED_FP8 ? e4m3_to_f32(w[i]) : e2m1_to_f32(nibble);
      block += static_cast<double>(e4m3_to_f32(x[i])) * static_cast<double>(v);
    }
    sum = sum + static_cast<float>(block) * e8m0_to_f32(x_scales[b]) * e8m0_to_f32(w_scales[b]);
  }
  return sum;
}

// BF16 activations with a row of BF16, F32 or dequantised FP8: one f64 sum, rounded to f32.
inline float plain_dot(const uint16_t *x, const uint8_t *w, const uint8_t *w_scales, ced_format w_format,
                       int64_t k) {
  double sum = 0;
  for (int64_t i = 0; i < k; i++) {
    float v = 0;
    if (w_format == CED_F32) {
      memcpy(&v, w + 4 * i, 4);
    } else if (w_format == CED_BF16) {
      uint16_t h;
      memcpy(&h, w + 2 * i, 2);
      v = bf16_to_f32(h);
    } else {
      v = e4m3_to_f32(w[i]) * e8m0_to_f32(w_scales[i / 32]);
    }
    sum += static_cast<double>(bf16_to_f32(x[i])) * static_cast<double>(v);
  }
  return static_cast<float>(sum);
}

}  // namespace ced
