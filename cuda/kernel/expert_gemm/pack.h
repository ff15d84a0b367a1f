// pack.h: a packed expert. Tiles of 16 weight rows by a k-step of 64 stand in the order in which a block of the device
// reads them, so that a stage of its ring is one copy, and within a tile every lane has its 16 bytes.
//
// A part has items, an item the k-steps (k rounded up to 64, with zeros), a k-step the item's tiles:
//   w1 and w3: an item is 32 channels of both: w1's first 16, w3's, w1's next 16, w3's
//   w2:        an item is 32 outputs, two tiles
// A tile: 16 bytes for each lane: elements 16t..16t+15 of row g, then of row g + 8 (lane = 4g + t), a word for eight
// (pack_word). Behind the tiles of a k-step, for each g and each half of the 64: each tile's scales of rows g and g + 8.
#pragma once
#include "internal.h"

namespace ced {

struct Pack {
  static constexpr uint32_t kChannels = 32, kStep = 64;
  static constexpr uint32_t kCodes = 512, kTile = kCodes + 32;  // bytes of a tile without and with its scales
  static constexpr uint32_t kUpTiles = 4, kDownTiles = 2;       // of an item

  CED_HD static uint32_t steps(uint32_t k) { return (k + kStep - 1) / kStep; }
  CED_HD static uint64_t bytes(uint32_t n, uint32_t k, uint32_t tiles) {
    return static_cast<uint64_t>(n / kChannels) * steps(k) * tiles * kTile;
  }
  // Where the tiles of a k-step are in their part.
  CED_HD static uint64_t step(uint32_t item, uint32_t step, uint32_t k, uint32_t tiles) {
    return (static_cast<uint64_t>(item) * steps(k) + step) * tiles * kTile;
  }
  // Where a tile's scales of rows g and g + 8 are in a k-step.
  CED_HD static uint32_t scales(uint32_t g, uint32_t half, uint32_t tile, uint32_t tiles) {
    return kCodes * tiles + (2 * g + half) * 2 * tiles + 2 * tile;
  }
};

// Where BF16 has e2m1's sign, and the lower bits of its exponent with the upper one of its mantissa, twice.
constexpr uint32_t kFp4Pair = 0x81C081C0u;

// Four pairs, of elements (0, 2), (1, 3), (4, 6), (5, 7) of eight, in BF16's places. They come out of a word by four
// shifts and four masks: the fourth pair is what is left of the bits, after another pair's are taken off by the xor.
CED_HD inline void unpack_word(uint32_t u, uint32_t pairs[4]) {
  pairs[0] = u & kFp4Pair;
  pairs[1] = (u >> 6 | u << 26) & kFp4Pair;
  pairs[2] = u << 4 & kFp4Pair;
  pairs[3] = (u >> 2 ^ u << 6) & kFp4Pair;
}

// The inverse. T: 32 bits, or a vector of them; q: eight codes, the first in the lowest bits.
template <class T>
__attribute__((always_inline)) inline T pack_word(T q) {
  const auto place = [](T pair) __attribute__((always_inline)) {
    return (pair & 0x00080008u) << 12 | (pair & 0x00070007u) << 6;
  };
  const T p0 = place((q & 0xFu) | (q & 0xF00u) << 8), p1 = place((q >> 4 & 0xFu) | (q & 0xF000u) << 4),
          p2 = place((q >> 16 & 0xFu) | (q >> 8 & 0xF0000u)),
          p3 = place((q >> 20 & 0xFu) | (q >> 12 & 0xF0000u));
  T u = p0 | p1 << 6 | p1 >> 26 | p2 >> 4;
  u |= ((p3 ^ u << 6) & 0x01000100u) << 2;  // bits 10, 26
  u |= (p3 & 0x80000000u) >> 6;             // 25
  u |= (p3 >> 6 ^ u >> 8) & 0x00020000u;    // 17
  u |= (p3 >> 6 ^ u >> 8) & 0x00000200u;    // 9
  u |= (p3 >> 6 ^ u >> 8) & 0x00000002u;    // 1
  u |= ((p3 ^ u >> 2) & 0x00400040u) >> 6;  // 0, 16
  return u;
}

}  // namespace ced
