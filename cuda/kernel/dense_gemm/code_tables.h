// code_tables.h: the f32 values of the 16 FP4 codes under each of the 256 scale bytes and of the FP8 codes, as bits.
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

// The values of the e4m3 codes.
struct E4m3Table {
  uint32_t bits[256];

  constexpr E4m3Table() : bits() {
    for (uint32_t code = 0; code < 256; code++)
      bits[code] = (code & 0x80u) << 24 | magnitude(code >> 3 & 15u, code & 7u);
  }

 private:
  static constexpr uint32_t magnitude(uint32_t exponent, uint32_t mantissa) {
    if (exponent == 15 && mantissa == 7) return 0x7FC00000u;
    if (exponent > 0) return (exponent + 120) << 23 | mantissa << 20;
    if (mantissa >= 4) return 120u << 23 | (mantissa - 4) << 21;  // subnormal: mantissa * 2^-9
    if (mantissa >= 2) return 119u << 23 | (mantissa - 2) << 22;
    return mantissa == 1 ? 118u << 23 : 0;
  }
};

// 16 KB and 8 KB, of which a matrix uses a few lines.
extern const E2m1Table kE2m1;
extern const E2m1Bytes kE2m1Bytes;
extern const E4m3Table kE4m3;

}  // namespace ced
