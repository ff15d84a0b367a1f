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

// The upper two bytes of those values, which hold all of their bits: 16 lower ones, then 16 upper ones.
struct E2m1Bytes {
  alignas(32) uint8_t bytes[256][32];

  constexpr explicit E2m1Bytes(const E2m1Table &table) : bytes() {
    for (int scale = 0; scale < 256; scale++)
      for (int code = 0; code < 16; code++) {
        bytes[scale][code] = static_cast<uint8_t>(table.bits[scale][code] >> 16);
        bytes[scale][16 + code] = static_cast<uint8_t>(table.bits[scale][code] >> 24);
      }
  }
};

// 16 KB and 8 KB, of which a matrix uses a few lines.
extern const E2m1Table kE2m1;
extern const E2m1Bytes kE2m1Bytes;

}  // namespace ced
