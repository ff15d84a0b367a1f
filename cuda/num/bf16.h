// bf16.h: bfloat16, the upper half of an f32.
#pragma once
#include "num/bits.h"

namespace ced {

CED_HD inline float bf16_to_f32(uint16_t h) { return f32_of(static_cast<uint32_t>(h) << 16); }

// Nearest even. Infinities stay, a NaN stays a (quiet) NaN.
CED_HD inline uint16_t f32_to_bf16(float x) {
  const uint32_t u = f32_bits(x);
  const uint32_t rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
  const uint32_t nan = (u >> 16) | 0x40u;
  return static_cast<uint16_t>((u & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded);
}

// The f32 value that storing x as BF16 and reading it back gives.
CED_HD inline float bf16_round(float x) { return bf16_to_f32(f32_to_bf16(x)); }

}  // namespace ced
