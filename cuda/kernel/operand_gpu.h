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

// Of every four elements 0..3 of the 16, w[2s] has (0, 2) and w[2s+1] has (1, 3): as bytes and nibbles lie, both come out
// of a word by one shift.
struct Words {
  uint32_t w[8];
};

// Multiplied by 2^(code - 127 + shift), exactly where BF16 reaches. kPlain: the code is below 128, so one product does.
template <bool kPlain>
__device__ void scale_pairs(Words &o, uint8_t code, uint32_t shift) {
  const uint32_t field = code + shift;
  uint32_t times = field * 0x00800080u, rest = 0;
  if (!kPlain && field > 254) {
    times = code == 255 ? 0x7FC07FC0u : 254 * 0x00800080u;
    rest = code == 255 ? 0 : (field - 127) * 0x00800080u;
  }
  for (uint32_t &w : o.w) w = ptx::mul_bf16x2(w, times);
  if (rest != 0)
    for (uint32_t &w : o.w) w = ptx::mul_bf16x2(w, rest);
}

// 16 elements out of a row that is in the order of operands.
__device__ inline void load_words(Words &o, const unsigned char *p) {
  const uint4 a = load16(p), b = load16(p + 16);
  o.w[0] = a.x, o.w[1] = a.y, o.w[2] = a.z, o.w[3] = a.w;
  o.w[4] = b.x, o.w[5] = b.y, o.w[6] = b.z, o.w[7] = b.w;
}

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
      for (int i = 0; i < static_cast<int>(kBytes / 16); i++) {
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

template <bool kPlain = false>
__device__ Words expand(const Raw<CED_BF16> &r, uint8_t) {
  Words o;
  CED_UNROLL
  for (int s = 0; s < 4; s++) {
    o.w[2 * s] = ptx::pick_bytes(r.word[2 * s], r.word[2 * s + 1], 0x5410);
    o.w[2 * s + 1] = ptx::pick_bytes(r.word[2 * s], r.word[2 * s + 1], 0x7632);
  }
  return o;
}

// e4m3: moved to BF16's place a code is its value times 2^-120.
template <bool kPlain = false>
__device__ Words expand(const Raw<CED_FP8> &r, uint8_t scale) {
  Words o;
  uint32_t nan = 0;
  CED_UNROLL
  for (int s = 0; s < 4; s++) {
    const uint32_t u = r.word[s];
    o.w[2 * s] = (u << 8 & 0x80008000u) | (u << 4 & 0x07F007F0u);
    o.w[2 * s + 1] = (u & 0x80008000u) | (u >> 4 & 0x07F007F0u);
    nan |= (u & 0x7F7F7F7Fu) + 0x01010101u;
  }
  scale_pairs<kPlain>(o, scale, 120);
  if ((nan & 0x80808080u) != 0) {
    CED_UNROLL
    for (int i = 0; i < 16; i++)
      if ((r.word[i / 4] >> (8 * (i % 4)) & 0x7Fu) == 0x7Fu)
        o.w[i / 4 * 2 + i % 2] |= 0x7FFFu << (16 * (i % 4 / 2));
  }
  return o;
}

// e2m1: moved to BF16's place a code is its value times 2^-126.
template <bool kPlain = false>
__device__ Words expand(const Raw<CED_FP4> &r, uint8_t scale) {
  Words o;
  CED_UNROLL
  for (int s = 0; s < 4; s++) {
    const uint32_t u = ptx::pick_bytes(r.word[s / 2], 0, s % 2 == 0 ? 0x1100 : 0x3322);  // every byte twice
    o.w[2 * s] = (u << 4 & 0x80008000u) | (u << 6 & 0x01C001C0u);
    o.w[2 * s + 1] = (u & 0x80008000u) | (u << 2 & 0x01C001C0u);
  }
  scale_pairs<kPlain>(o, scale, 126);
  return o;
}

// F32 is the sum of three BF16, which are the parts 0, 1, 2: exact but for the last bits of subnormals.
__device__ inline Words f32_part(const Raw<CED_F32> &r, int part) {
  Words o;
  for (int i = 0; i < 8; i++) {
    uint32_t half[2];
    for (int j = 0; j < 2; j++) {
      float v = f32_of(r.word[i / 2 * 4 + i % 2 + 2 * j]);
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
