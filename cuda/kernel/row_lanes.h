// row_lanes.h: what the CPU bodies do to rows of BF16, in vectors. Channels 2i and 2i+1 share a 32-bit word, so 32
// channels are split into one set of lanes with the even and one with the odd channels by a shift and a mask, which costs
// less than widening on every machine. A sum over a row has two such pairs of sets, of alternate blocks of 32.
#pragma once
#include "kernel/lanes.h"
#include "kernel/row.h"
#include "num/quant.h"

namespace ced {

constexpr int64_t kBlock = 32;

// Channels 0, 2, .. 30 and 1, 3, .. 31 of a block.
template <int W>
struct Pairs {
  f32<W> even, odd;

  friend CED_INLINE Pairs operator*(const Pairs &a, const Pairs &b) {
    return {a.even * b.even, a.odd * b.odd};
  }
  friend CED_INLINE Pairs operator*(const Pairs &a, float b) { return {a.even * b, a.odd * b}; }
  friend CED_INLINE Pairs operator+(const Pairs &a, const Pairs &b) {
    return {a.even + b.even, a.odd + b.odd};
  }
  CED_INLINE void operator+=(const Pairs &b) { *this = *this + b; }
};

// 32 BF16 at any address.
template <int W>
CED_INLINE Pairs<W> load_pairs(const void *p) {
  const auto v = load<u32<W>>(p);
  return {bits_as<float>(v << 16), bits_as<float>(v & 0xFFFF0000u)};
}

// Rounds to BF16 and stores 32 of them.
template <int W>
CED_INLINE void store_pairs(void *p, const Pairs<W> &x) {
  const auto even = bits_as<uint32_t>(round_bf16(x.even)), odd = bits_as<uint32_t>(round_bf16(x.odd));
  store(p, (even >> 16) | odd);
}

// 32 F32 at any address.
template <int W>
CED_INLINE Pairs<W> load_f32_pairs(const void *p) {
  typedef typename f32<W>::V F;
  typedef typename i32<W>::V I;
  const auto a = load<f32<W>>(p), b = load<f32<W>>(static_cast<const char *>(p) + 64);
  I even;
  for (int l = 0; l < W; l++) even[l] = 2 * l;
  Pairs<W> r;
  for (int i = 0; i < 16 / W; i++) {
    const F low = 2 * i < 16 / W ? a.v[(2 * i) % (16 / W)] : b.v[(2 * i) % (16 / W)];
    const F high = 2 * i + 1 < 16 / W ? a.v[(2 * i + 1) % (16 / W)] : b.v[(2 * i + 1) % (16 / W)];
    r.even.v[i] = __builtin_shuffle(low, high, even);
    r.odd.v[i] = __builtin_shuffle(low, high, even + 1);
  }
  return r;
}

// 32 elements, from element i on, of a checkpoint tensor in BF16 or F32.
template <int W>
CED_INLINE Pairs<W> load_weights(const char *tensor, bool bf16, int64_t i) {
  if (bf16) return load_pairs<W>(tensor + 2 * i);
  return load_f32_pairs<W>(tensor + 4 * i);
}

// A sum over a row: block b goes to part b % 2.
template <int W>
struct PairSum {
  Pairs<W> part[2] = {};

  CED_INLINE float total() const {
    const auto all = part[0] + part[1];
    return sum(all.even + all.odd);
  }
};

// The squares of a row of any length.
template <int W>
CED_INLINE float sum_squares(const uint16_t *x, int64_t n) {
  PairSum<W> squares;
  int64_t k = 0;
  const auto block = [&](const uint16_t *p, int part) __attribute__((always_inline)) {
    const auto v = load_pairs<W>(p);
    squares.part[part] += v * v;
  };
  for (; k + 2 * kBlock <= n; k += 2 * kBlock) {
    block(x + k, 0);
    block(x + k + kBlock, 1);
  }
  for (int part = 0; k < n; k += kBlock, part++) {
    uint16_t rest[kBlock] = {};
    memcpy(rest, x + k, static_cast<size_t>(2 * (n - k < kBlock ? n - k : kBlock)));
    block(rest, part);
  }
  return squares.total();
}

template <int W>
CED_INLINE i32<W> magnitude(const f32<W> &x) {
  return bits_as<int32_t>(x) & 0x7FFFFFFF;
}

// The largest lane; magnitudes of f32 order like their bits.
template <int W>
CED_INLINE int32_t largest(const i32<W> &a) {
  typedef int32_t I4 __attribute__((vector_size(16)));
  I4 q[4];
  store(q, a);
  const I4 low = q[0] > q[1] ? q[0] : q[1], high = q[2] > q[3] ? q[2] : q[3];
  I4 t = low > high ? low : high;
  const I4 s = __builtin_shuffle(t, I4{2, 3, 0, 1});
  t = t > s ? t : s;
  return t[0] > t[1] ? t[0] : t[1];
}

// f32_to_e4m3 of lanes of at most 448.
template <int W>
CED_INLINE u32<W> e4m3_codes(const f32<W> &x) {
  const i32<W> m = magnitude(x);
  const i32<W> normal = (m + ((m >> 20) & 1) + (0x7FFFF - (120 << 23))) >> 20;
  const i32<W> small = bits_as<int32_t>(bits_as<float>(m) + 16384.0f) - 0x46800000;
  const i32<W> code = where_less(m, i32<W>::of(0x3C800000), small, normal);  // 2^-6
  return bits_as<uint32_t>(code) | ((bits_as<uint32_t>(x) >> 24) & 0x80u);
}

// act_quant32 of every 32 of n BF16 values, a multiple of 32 (spec 3.2).
template <int W>
CED_INLINE void quantise_row(const uint16_t *x, int64_t n, uint8_t *codes, uint8_t *scales) {
  for (int64_t k = 0; k < n; k += kBlock) {
    const auto v = load_pairs<W>(x + k);
    const int32_t m = largest(larger(magnitude(v.even), magnitude(v.odd)));
    if (__builtin_expect(m >= 0x7F800000, 0)) {
      float whole[kBlock];
      load_row(x + k, kBlock, whole);
      act_quant32(whole, codes + k, scales + k / kBlock);
      continue;
    }
    // A power of two in the middle of the range, so its inverse has the mirrored exponent; and no BF16 lies between
    // 448 and what the scale of 448 rounds to, so nothing saturates.
    const uint32_t s = f32_bits(act_scale(f32_of(static_cast<uint32_t>(m))));
    const float inverse = f32_of((254u << 23) - s);
    narrow(e4m3_codes(v.even * inverse) | (e4m3_codes(v.odd * inverse) << 8), codes + k);
    scales[k / kBlock] = static_cast<uint8_t>(s >> 23);
  }
}

// RMSNorm (spec 3.1): y = bf16(w * (x * scale)) for any number of channels; y may be x.
template <int W>
CED_INLINE void scale_row(const uint16_t *x, int64_t n, const char *weight, bool bf16, float scale,
                          uint16_t *y) {
  const auto block = [&](const uint16_t *in, const Pairs<W> &w, uint16_t *out)
                         __attribute__((always_inline)) {
                           const auto v = load_pairs<W>(in);
                           store_pairs(out, w * (v * scale));
                         };
  int64_t k = 0;
  if (bf16) {
    for (; k + kBlock <= n; k += kBlock) block(x + k, load_pairs<W>(weight + 2 * k), y + k);
  } else {
    for (; k + kBlock <= n; k += kBlock) block(x + k, load_f32_pairs<W>(weight + 4 * k), y + k);
  }
  if (k == n) return;
  const auto left = static_cast<size_t>(n - k);
  uint16_t rest[kBlock] = {};
  char w[4 * kBlock] = {};
  memcpy(rest, x + k, 2 * left);
  memcpy(w, weight + (bf16 ? 2 : 4) * k, (bf16 ? 2 : 4) * left);
  block(rest, load_weights<W>(w, bf16, 0), rest);
  memcpy(y + k, rest, 2 * left);
}

template <int W>
CED_INLINE float rms_scale(const uint16_t *x, int64_t n, float eps) {
  return f32_rsqrt(sum_squares<W>(x, n) / static_cast<float>(n) + eps);
}

}  // namespace ced
