// e8m0.h: powers of two as one byte, 2^(byte-127); 255 is NaN (spec 2.3).
#pragma once
#include "num/bits.h"

namespace ced {

CED_HD inline float e8m0_to_f32(uint8_t code) {
  const uint32_t normal = static_cast<uint32_t>(code) << 23;
  return f32_of(code == 0 ? 0x00400000u : code == 255 ? 0x7FC00000u : normal);
}

// Of a power of two (the mantissa is ignored).
CED_HD inline uint8_t f32_to_e8m0(float pow2) { return static_cast<uint8_t>(f32_bits(pow2) >> 23); }

// 2^ceil(log2 t) of a positive t, on the bits: library log2 and ceil misround exact powers (spec 3.2).
CED_HD inline float pow2_ceil(float t) {
  const uint32_t u = f32_bits(t);
  const uint32_t field = ((u >> 23) & 255u) + ((u & 0x7FFFFFu) != 0 ? 1u : 0u);
  return f32_of(field == 0 ? 0x00400000u : field << 23);
}

}  // namespace ced
