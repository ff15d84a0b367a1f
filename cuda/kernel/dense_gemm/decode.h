// decode.h: weights and activations of every format as the 16 lanes of a dot product. Element k goes to lane k mod
// 16, each lane adds in ascending order, and a fixed tree adds the lanes: the same bits whatever the width W of a
// machine's vectors. Scales are powers of two and are multiplied into the elements, which stay exact.
#pragma once
#include <cstdint>
#include <cstring>

#include "ced.h"
#include "device/isa.h"
#include "num/bf16.h"
#include "num/e8m0.h"
#include "num/fp8.h"

#define CED_INLINE inline __attribute__((always_inline))

namespace ced {

template <int W>
struct Simd {
  typedef float F __attribute__((vector_size(4 * W)));
  typedef int32_t I __attribute__((vector_size(4 * W)));
  typedef uint32_t U __attribute__((vector_size(4 * W)));
  typedef uint64_t U64 __attribute__((vector_size(4 * W)));
};

template <int W>
struct Lanes {
  typename Simd<W>::F v[16 / W];

  CED_INLINE void add_product(const Lanes &a, const Lanes &b) {
    for (int i = 0; i < 16 / W; i++) v[i] += a.v[i] * b.v[i];
  }
  CED_INLINE Lanes operator*(float s) const {
    Lanes r;
    for (int i = 0; i < 16 / W; i++) r.v[i] = v[i] * s;
    return r;
  }
  CED_INLINE Lanes operator*(const Lanes &b) const {
    Lanes r;
    for (int i = 0; i < 16 / W; i++) r.v[i] = v[i] * b.v[i];
    return r;
  }
  CED_INLINE void store(float *p) const { memcpy(p, v, 64); }
  // The fixed tree: distances 8, 4, 2, 1.
  CED_INLINE float sum() const {
    float t[16];
    store(t);
    for (int d = 8; d > 0; d /= 2)
      for (int i = 0; i < d; i++) t[i] = t[i] + t[i + d];
    return t[0];
  }
};

// 16 f32 from any address.
template <int W>
CED_INLINE Lanes<W> f32_lanes(const void *p) {
  Lanes<W> r;
  memcpy(r.v, p, 64);
  return r;
}

// What follows widens small elements. __builtin_convertvector would do, but GCC splits it into quarters: the wide
// forms copy the dword that holds an element to its lane and shift it into place.
template <int W>
CED_INLINE typename Simd<W>::I broadcast(const uint8_t *p) {  // 8 bytes to every pair of lanes
  uint64_t q;
  memcpy(&q, p, 8);
  return (typename Simd<W>::I)(typename Simd<W>::U64{} + q);
}

// Bytes p[W*i ..] in the top bits of W lanes.
template <int W>
CED_INLINE typename Simd<W>::I top_bytes(const uint8_t *p) {
  typedef typename Simd<W>::I I;
  if constexpr (W == 16) {
    const I source = {0, 0, 0, 0, 1, 1, 1, 1, 16, 16, 16, 16, 17, 17, 17, 17};
    const I left = {24, 16, 8, 0, 24, 16, 8, 0, 24, 16, 8, 0, 24, 16, 8, 0};
    return __builtin_shuffle(broadcast<W>(p), broadcast<W>(p + 8), source) << left;
  } else if constexpr (W == 8) {
    return __builtin_shuffle(broadcast<W>(p), I{0, 0, 0, 0, 1, 1, 1, 1}) << I{24, 16, 8, 0, 24, 16, 8, 0};
  } else {
    return I{p[0], p[1], p[2], p[3]} << 24;
  }
}

// W e2m1 codes of W/2 bytes, low nibble first, in the low bits of W lanes; the bits above them are noise.
template <int W>
CED_INLINE typename Simd<W>::I nibbles(const uint8_t *p) {
  typedef typename Simd<W>::U U;
  typedef typename Simd<W>::I I;
  if constexpr (W == 16) {
    const I both = __builtin_shuffle(broadcast<W>(p), I{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1});
    return (I)((U)both >> U{0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28});
  } else if constexpr (W == 8) {
    uint32_t d;
    memcpy(&d, p, 4);
    return (I)((U{} + d) >> U{0, 4, 8, 12, 16, 20, 24, 28});
  } else {
    return I{p[0], p[0] >> 4, p[1], p[1] >> 4};
  }
}

// The values of e2m1 codes times scale.
template <int W>
CED_INLINE typename Simd<W>::F e2m1_values(typename Simd<W>::I code, float scale) {
  typedef typename Simd<W>::F F;
  typedef typename Simd<W>::I I;
  if constexpr (W == 16) {
    const F table = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    return __builtin_shuffle(table * scale, code);
  } else if constexpr (W == 8) {
    const F table = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    return (F)((I)__builtin_shuffle(table * scale, code) | ((code & 8) << 28));
  } else {
    // Exponents 1 - 3 as those of an f32; 0 and 0.5 are the subnormals: made with an exponent, then reduced by 1.
    const I magnitude = code & 7, subnormal = magnitude < 2;
    const F one = (F)(subnormal & 0x3F800000);
    const F v = (F)((magnitude << 22) + (126 << 23) + (subnormal & (1 << 23))) - one;
    return (F)((I)v | ((code & 8) << 28)) * scale;
  }
}

// 32 BF16 from any address.
template <int W>
CED_INLINE void bf16_lanes(const uint8_t *p, Lanes<W> *low, Lanes<W> *high) {
  typedef typename Simd<W>::F F;
  typedef typename Simd<W>::I I;
  I even_odd[2 * 16 / W];  // the lanes of low, then of high
  for (int i = 0; i < 16 / W; i++) {
    I v;
    memcpy(&v, p + 4 * W * i, sizeof v);
    I a, b, left;
    if constexpr (W == 16) {
      a = __builtin_shuffle(v, I{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7});
      b = __builtin_shuffle(v, I{8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15});
      left = I{16, 0, 16, 0, 16, 0, 16, 0, 16, 0, 16, 0, 16, 0, 16, 0};
    } else if constexpr (W == 8) {
      a = __builtin_shuffle(v, I{0, 0, 1, 1, 2, 2, 3, 3});
      b = __builtin_shuffle(v, I{4, 4, 5, 5, 6, 6, 7, 7});
      left = I{16, 0, 16, 0, 16, 0, 16, 0};
    } else {
      a = __builtin_shuffle(v, I{0, 0, 1, 1});
      b = __builtin_shuffle(v, I{2, 2, 3, 3});
      left = I{16, 0, 16, 0};
    }
    even_odd[2 * i] = (a << left) & -65536;
    even_odd[2 * i + 1] = (b << left) & -65536;
  }
  for (int i = 0; i < 16 / W; i++) {
    low->v[i] = (F)even_odd[i];
    high->v[i] = (F)even_odd[16 / W + i];
  }
}

// 16 e4m3 codes times the scale byte.
template <int W>
CED_INLINE Lanes<W> e4m3_lanes(const uint8_t *p, uint8_t scale) {
  typedef typename Simd<W>::F F;
  typedef typename Simd<W>::I I;
  // As in e4m3_to_f32, with the scale folded into the bias where that is a finite f32.
  const bool fold = scale <= 134;
  const float bias = fold ? f32_of(static_cast<uint32_t>(scale + 120) << 23) : 0x1p120f;
  Lanes<W> r;
  for (int i = 0; i < 16 / W; i++) {
    const I c = top_bytes<W>(p + W * i), nan = (c & 0x7F000000) == 0x7F000000;
    const F v = (F)((c >> 4) & static_cast<int32_t>(0x87F00000)) * bias;
    r.v[i] = (F)((I)v | (nan & 0x7FC00000));
  }
  return __builtin_expect(fold, 1) ? r : r * e8m0_to_f32(scale);
}

// 32 elements of a tensor of format f, at p, times the scale byte of the quantised formats, as two sets of lanes.
template <int W, ced_format f>
CED_INLINE void load32(const uint8_t *p, uint8_t scale, Lanes<W> *low, Lanes<W> *high) {
  if constexpr (f == CED_F32) {
    *low = f32_lanes<W>(p);
    *high = f32_lanes<W>(p + 64);
  } else if constexpr (f == CED_BF16) {
    bf16_lanes<W>(p, low, high);
  } else if constexpr (f == CED_FP8) {
    *low = e4m3_lanes<W>(p, scale);
    *high = e4m3_lanes<W>(p + 16, scale);
  } else {
    const float s = e8m0_to_f32(scale);
    for (int i = 0; i < 16 / W; i++) low->v[i] = e2m1_values<W>(nibbles<W>(p + W / 2 * i), s);
    for (int i = 0; i < 16 / W; i++) high->v[i] = e2m1_values<W>(nibbles<W>(p + 8 + W / 2 * i), s);
  }
}

// Bytes of 32 elements.
constexpr uint32_t bytes32(ced_format f) {
  return f == CED_F32 ? 128 : f == CED_BF16 ? 64 : f == CED_FP8 ? 32 : 16;
}

}  // namespace ced
