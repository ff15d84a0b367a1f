// quant.h: the three quantisers of the model. Inputs are BF16 values held as f32.
#pragma once
#include "num/e8m0.h"
#include "num/fp4.h"
#include "num/fp8.h"

namespace ced {

// Largest magnitude of n values. Magnitudes order like their bits, and a maximum of integers has no order of
// evaluation that a compiler must keep.
CED_HD inline float abs_max(const float *x, int n) {
  uint32_t m = 0;
  for (int i = 0; i < n; i++) {
    const uint32_t u = f32_bits(x[i]) & 0x7FFFFFFFu;
    m = u > m ? u : m;
  }
  return f32_of(m);
}

// The scale of a group of 32 whose largest magnitude is m (spec 3.2): a power of two, at least 2^-22.
CED_HD inline float act_scale(float m) { return pow2_ceil(f32_max(m, 1e-4f) * 0x1.24924Ap-9f); }

// 32 channels to e4m3 codes and a UE8M0 scale (spec 3.2). The inverse of a power of two is exact.
CED_HD inline void act_quant32(const float *x, uint8_t *codes, uint8_t *scale) {
  const float s = act_scale(abs_max(x, 32));
  const float inverse = 1.0f / s;
  for (int i = 0; i < 32; i++) codes[i] = f32_to_e4m3(x[i] * inverse);  // saturates: the clamp to +-448
  *scale = f32_to_e8m0(s);
}

// 32 channels to e2m1 codes, one a byte, and a UE8M0 scale (spec 3.8): index queries and keys.
CED_HD inline void fp4_quant_e8m0(const float *x, uint8_t *codes, uint8_t *scale) {
  const float s = pow2_ceil(f32_max(abs_max(x, 32), 6 * 0x1p-126f) * 0x1.555556p-3f);
  const float inverse = 1.0f / s;
  for (int i = 0; i < 32; i++) codes[i] = f32_to_e2m1(x[i] * inverse);
  *scale = f32_to_e8m0(s);
}

// 16 channels to e2m1 codes, one a byte, and an E4M3 scale (spec 3.9): main KV. True divisions: the scale is
// no power of two, and a reciprocal would put ties into the wrong bucket.
CED_HD inline void fp4_quant_e4m3(const float *x, uint8_t *codes, uint8_t *scale) {
  *scale = f32_to_e4m3(f32_max(abs_max(x, 16), 6 * 0x1p-9f) / 6.0f);
  const float s = e4m3_to_f32(*scale);
  for (int i = 0; i < 16; i++) codes[i] = f32_to_e2m1(x[i] / s);
}

}  // namespace ced
