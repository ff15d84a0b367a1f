// fp8.h: e4m3fn. Bias 7, largest value 448, no infinities, S.1111.111 is NaN, subnormal step 2^-9 (spec 2.3).
#pragma once
#include "num/bits.h"

namespace ced {

CED_HD inline float e4m3_to_f32(uint8_t code) {
  const uint32_t sign = (code & 0x80u) << 24, magnitude = code & 0x7Fu;
  // A magnitude is an f32 with exponent and mantissa 20 bits lower; 2^120 moves the bias, subnormals
  // included.
  const float v = f32_of(magnitude << 20) * 0x1p120f;
  return f32_of((magnitude == 0x7Fu ? 0x7FC00000u : f32_bits(v)) | sign);
}

// Nearest even, saturating at 448; the sign of zero is kept, NaN becomes the NaN code.
CED_HD inline uint8_t f32_to_e4m3(float x) {
  const uint32_t u = f32_bits(x), sign = (u >> 24) & 0x80u, magnitude = u & 0x7FFFFFFFu;
  const uint32_t b = magnitude < 0x43E00000u ? magnitude : 0x43E00000u;  // 448
  const uint32_t normal = ((b + 0x7FFFFu + ((b >> 20) & 1u)) >> 20) - (120u << 3);
  const uint32_t small =
      f32_bits(f32_of(b) + 16384.0f) - f32_bits(16384.0f);  // 2^14's ulp is the subnormal step
  // Masks, not branches: compilers make vectors of loops over this.
  const uint32_t is_small = 0u - static_cast<uint32_t>(b < 0x3C800000u);  // 2^-6
  const uint32_t is_nan = 0u - static_cast<uint32_t>(magnitude > 0x7F800000u);
  const uint32_t code = (normal & ~is_small) | (small & is_small);
  return static_cast<uint8_t>((code | (is_nan & 0x7Fu)) | sign);
}

}  // namespace ced
