// operand_gpu.h: 16 consecutive elements of a row as the operand of BF16 matrix instructions, with their power-of-two
// block scale multiplied in. FP8 and FP4 values times their scale are BF16 values, so nothing is rounded (scales below
// 2^-117 excepted, where BF16 ends).
//
// A k-step of 64: lane%4 = t holds the elements 16t..16t+15 of rows lane/4 (and lane/4 + 8). Step s of four
// mma_m16n8k16 takes elements 4s..4s+3 of every lane, for both operands: the instruction's k index is a permutation of
// the memory's, the same on both sides, and every lane reads 16 neighbours.
#pragma once
#include "device/gpu.h"

namespace ced {

// w[0..7]: the pairs (0,1), (2,3) .. (14,15).
struct Words {
  uint32_t w[8];
};

// 2^(code - 127 + shift) as a pair of BF16, and what is left beyond BF16's range.
struct PairScale {
  uint32_t first, rest;  // rest 0: nothing
  __device__ PairScale(uint8_t code, int shift) {
    const int field = code + shift;  // of 2^(code - 127 + shift)
    const uint32_t one = static_cast<uint32_t>(code == 255 ? 0x7FC0 : (field < 254 ? field : 254) << 7);
    first = one | one << 16;
    const auto more = static_cast<uint32_t>((field - 254 + 127) << 7);
    rest = field > 254 && code != 255 ? more | more << 16 : 0;
  }
  __device__ uint32_t operator()(uint32_t pair) const {
    const uint32_t v = ptx::mul_bf16x2(pair, first);
    return rest == 0 ? v : ptx::mul_bf16x2(v, rest);
  }
};

// bytes of 16 elements
__host__ __device__ constexpr uint32_t bytes16(ced_format f) {
  return f == CED_F32 ? 64 : f == CED_BF16 ? 32 : f == CED_FP8 ? 16 : 8;
}

// What was read of a row: zeros beyond its end.
template <ced_format kFormat>
struct Raw {
  uint32_t word[bytes16(kFormat) / 4];

  // k0: the first element, a multiple of 16. once: nobody reads them again. kWhole: the row starts at a multiple of 16
  // bytes (FP4: 8) and has a multiple of 16 elements.
  template <bool kWhole, bool kOnce>
  __device__ void load(const unsigned char *row, uint32_t k0, uint32_t k) {
    constexpr uint32_t kBytes = bytes16(kFormat);
    for (uint32_t &w : word) w = 0;
    if (k0 >= k) return;
    const unsigned char *p = row + static_cast<size_t>(k0) * kBytes / 16;
    if (kWhole && kBytes >= 16) {
      for (uint32_t i = 0; i < kBytes / 16; i++) {
        const uint4 v = kOnce ? ptx::load16_once(p + 16 * i) : load16(p + 16 * i);
        word[4 * i] = v.x, word[4 * i + 1] = v.y, word[4 * i + 2] = v.z, word[4 * i + 3] = v.w;
      }
    } else if (kWhole) {
      const uint2 v = *reinterpret_cast<const uint2 *>(p);
      word[0] = v.x, word[1] = v.y;
    } else {
      const uint32_t bytes = k - k0 >= 16 ? kBytes : (k - k0) * kBytes / 16;
      CED_UNROLL
      for (uint32_t i = 0; i < kBytes; i++)
        if (i < bytes) word[i / 4] |= static_cast<uint32_t>(p[i]) << (8 * (i % 4));
    }
  }
};

__device__ inline Words expand(const Raw<CED_BF16> &r, uint8_t) {
  Words o;
  for (int i = 0; i < 8; i++) o.w[i] = r.word[i];
  return o;
}

// e4m3: moved to BF16's place a code is its value times 2^-120.
__device__ inline Words expand(const Raw<CED_FP8> &r, uint8_t scale) {
  const PairScale times(scale, 120);
  Words o;
  for (int i = 0; i < 8; i++) {
    const uint32_t u = r.word[i / 2] >> (16 * (i % 2));
    const uint32_t x = (u & 0xFFu) | (u & 0xFF00u) << 8;
    o.w[i] = times((x & 0x007F007Fu) << 4 | (x & 0x00800080u) << 8);
  }
  for (int i = 0; i < 4; i++) {
    const uint32_t u = r.word[i], nan = ((u & 0x7F7F7F7Fu) + 0x01010101u) & 0x80808080u;
    if (nan == 0) continue;
    for (int j = 0; j < 4; j++)
      if ((nan >> (8 * j) & 0x80u) != 0) o.w[2 * i + j / 2] |= 0x7FFFu << (16 * (j % 2));
  }
  return o;
}

// e2m1: moved to BF16's place a code is its value times 2^-126.
__device__ inline Words expand(const Raw<CED_FP4> &r, uint8_t scale) {
  const PairScale times(scale, 126);
  Words o;
  for (int i = 0; i < 8; i++) {
    const uint32_t u = r.word[i / 4] >> (8 * (i % 4));
    const uint32_t x = (u & 0xFu) | (u & 0xF0u) << 12;
    o.w[i] = times((x & 0x00070007u) << 6 | (x & 0x00080008u) << 12);
  }
  return o;
}

// F32 is the sum of three BF16, which are the parts 0, 1, 2: exact but for the last bits of subnormals.
__device__ inline Words f32_part(const Raw<CED_F32> &r, int part) {
  Words o;
  for (int i = 0; i < 8; i++) {
    uint32_t half[2];
    for (int j = 0; j < 2; j++) {
      float v = f32_of(r.word[2 * i + j]);
      uint16_t h = f32_to_bf16(v);
      for (int p = 0; p < part; p++) v -= bf16_to_f32(h), h = f32_to_bf16(v);
      half[j] = h;
    }
    o.w[i] = half[0] | half[1] << 16;
  }
  return o;
}

// Adds a k-step of 64: 16 rows of one operand, 8 of the other.
__device__ inline void mma_step64(float d[4], const Words &low, const Words &high, const Words &b) {
  CED_UNROLL
  for (int s = 0; s < 4; s++) {
    const uint32_t a[4] = {low.w[2 * s], high.w[2 * s], low.w[2 * s + 1], high.w[2 * s + 1]};
    ptx::mma_m16n8k16_bf16(d, a, b.w + 2 * s);
  }
}

}  // namespace ced
