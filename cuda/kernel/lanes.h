// lanes.h: sixteen f32 lanes for the CPU bodies, written with vector extensions so that every target computes
// the same bits: multiply and add stay separate, sums over the lanes use one fixed tree.
#pragma once
#include <cstdint>
#include <cstring>

#include "num/bf16.h"

#define CED_INLINE inline __attribute__((always_inline))
// A function compiled once per instruction set and picked at load time. Its vector code must be CED_INLINE.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define CED_MULTIVERSION __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CED_MULTIVERSION
#endif

namespace ced {

constexpr int kLanes = 16;

typedef float f32x16 __attribute__((vector_size(64)));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef uint32_t u32x16 __attribute__((vector_size(64)));
typedef int16_t i16x32 __attribute__((vector_size(64)));
typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x4 __attribute__((vector_size(16)));
typedef uint16_t u16x16 __attribute__((vector_size(32)));
typedef uint8_t u8x16 __attribute__((vector_size(16)));
typedef uint8_t u8x8 __attribute__((vector_size(8)));

template <class V>
CED_INLINE V load(const void *p) {
  V v;
  memcpy(&v, p, sizeof v);
  return v;
}

template <class V>
CED_INLINE void store(void *p, const V &v) {
  memcpy(p, &v, sizeof v);
}

// The same bits as another vector type.
template <class To, class From>
CED_INLINE To bits_as(const From &v) {
  static_assert(sizeof(To) == sizeof(From), "same size");
  return (To)v;
}

CED_INLINE f32x16 splat(float x) { return f32x16{} + x; }

CED_INLINE f32x16 load_bf16(const uint16_t *p) {
  return bits_as<f32x16>(__builtin_convertvector(load<u16x16>(p), u32x16) << 16);
}

// Nearest even; NaN is not expected.
CED_INLINE f32x16 round_bf16(const f32x16 &x) {
  const u32x16 u = bits_as<u32x16>(x);
  return bits_as<f32x16>((u + 0x7FFFu + ((u >> 16) & 1u)) & 0xFFFF0000u);
}

CED_INLINE void store_bf16(uint16_t *p, const f32x16 &x) {
  store(p, __builtin_convertvector(bits_as<u32x16>(round_bf16(x)) >> 16, u16x16));
}

CED_INLINE f32x16 max16(const f32x16 &a, const f32x16 &b) { return a > b ? a : b; }

// Lane l + lane l+8, then +4, +2, +1.
CED_INLINE float sum16(const f32x16 &v) {
  const f32x8 a = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                  __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  const f32x4 b = __builtin_shufflevector(a, a, 0, 1, 2, 3) + __builtin_shufflevector(a, a, 4, 5, 6, 7);
  return (b[0] + b[2]) + (b[1] + b[3]);
}

// e^x for x <= 0, below -87 zero: relative error under 2^-22.
CED_INLINE f32x16 exp16(const f32x16 &x) {
  const f32x16 magic = splat(0x1.8p23f);
  const f32x16 clamped = max16(x, splat(-87.0f));
  const f32x16 n = (clamped * 0x1.715476p0f + magic) - magic;  // nearest integer to x / ln 2
  const f32x16 r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  f32x16 p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const f32x16 y = p * (r * r) + r + 1.0f;
  const i32x16 scale = (__builtin_convertvector(n, i32x16) + 127) << 23;
  return x < splat(-87.0f) ? splat(0) : y * bits_as<f32x16>(scale);
}

}  // namespace ced
