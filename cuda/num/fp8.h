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
  const uint32_t u = f32_bits(x), sign = (u >> 24) & 0x80u, mag = u & 0x7FFFFFFFu;
  const float a = f32_min(f32_of(mag), 448.0f);
  const uint32_t b = f32_bits(a);
  const uint32_t normal = ((b + 0x7FFFFu + ((b >> 20) & 1u)) >> 20) - (120u << 3);
  const uint32_t small = f32_bits(a + 16384.0f) - f32_bits(16384.0f);  // an ulp of 2^14 is the subnormal step
  const uint32_t code = a < 0x1p-6f ? small : normal;
  return static_cast<uint8_t>((mag > 0x7F800000u ? 0x7Fu : code) | sign);
}

}  // namespace ced
