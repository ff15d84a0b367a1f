// fp4.h: e2m1, four bits: sign, then magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6 (spec 2.3). Two per byte, even
// index low.
#pragma once
#include "num/bits.h"

namespace ced {

// code: the low four bits count.
CED_HD inline float e2m1_to_f32(uint8_t code) {
  const uint32_t sign = (code & 8u) << 28, magnitude = code & 7u;
  const float v = f32_of(magnitude << 22) * 0x1p126f;  // bias 1, as in e4m3_to_f32
  return f32_of(f32_bits(v) | sign);
}

// Nearest, ties to the even code: 0.25 down, 0.75 up, 1.25 down, 1.75 up, 2.5 down, 3.5 up, 5 down. Saturates
// at 6.
CED_HD inline uint8_t f32_to_e2m1(float v) {
  const float a = f32_abs(v);
  const int code =
      (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
  return static_cast<uint8_t>(static_cast<uint32_t>(code) | ((f32_bits(v) >> 28) & 8u));
}

CED_HD inline uint8_t pack_e2m1(uint8_t even, uint8_t odd) {
  return static_cast<uint8_t>((even & 15) | (odd << 4));
}

}  // namespace ced
