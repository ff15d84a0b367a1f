// e2m1_table.h: the f32 values of the 16 FP4 codes under each of the 256 scale bytes, as bits.
#pragma once
#include <cstdint>

namespace ced {

struct E2m1Table {
  alignas(64) uint32_t bits[256][16];

  constexpr E2m1Table() : bits() {
    for (int scale = 0; scale < 256; scale++)
      for (int code = 0; code < 16; code++) bits[scale][code] = value(scale, code);
  }

 private:
  // As e2m1_to_f32 times e8m0_to_f32: exact, infinite above the range of an f32.
  static constexpr uint32_t value(int scale, int code) {
    const uint32_t sign = static_cast<uint32_t>(code & 8) << 28;
    const int magnitude = code & 7;
    if (scale == 255) return sign | 0x7FC00000u;
    if (magnitude == 0) return sign;
    const int exponent = scale + (magnitude == 1 ? -1 : magnitude / 2 - 1);
    const uint32_t mantissa = magnitude > 1 && magnitude % 2 == 1 ? 0xC00000u : 0x800000u;
    if (exponent >= 255) return sign | 0x7F800000u;
    if (exponent <= 0) return sign | mantissa >> (1 - exponent);
    return sign | static_cast<uint32_t>(exponent) << 23 | (mantissa & 0x7FFFFFu);
  }
};

// 16 KB, of which a matrix uses a few lines.
extern const E2m1Table kE2m1;

}  // namespace ced
