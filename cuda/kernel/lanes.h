// lanes.h: sixteen lanes for the CPU bodies, in vectors of whatever width W the machine has, with the same bits for
// each: multiply and add stay separate, sums over the lanes use one fixed tree.
//
//   struct Dot {
//     template <int W>
//     static CED_INLINE float run(const float *x, const float *y, int64_t n) { ... f32<W> ... }
//   };
//   const float d = vectorised<Dot>(x, y, n);  // picks W
#pragma once
#include <cstdint>
#include <cstring>

#include "kernel/dense_gemm/decode.h"
#include "kernel/dense_gemm/tile.h"
#include "num/bf16.h"

namespace ced {

constexpr int kLanes = 16;

// So many by so many sums of sixteen lanes stay in registers: 32 of 64 bytes, or 16 of less.
template <int W>
constexpr int kRegisterTile = W == 16 ? 4 : 2;

// 64 bytes of T, as vectors of W 32-bit elements: 16 lanes of a 32-bit type, 32 of a 16-bit one.
template <class T, int W>
struct Vec {
  typedef T V __attribute__((vector_size(4 * W)));
  typedef T Memory __attribute__((vector_size(4 * W), aligned(1), may_alias));  // V at any address
  static constexpr int kParts = 16 / W;
  V v[kParts];

#define CED_VEC_OPERATOR(op)                                    \
  friend CED_INLINE Vec operator op(Vec a, const Vec &b) {      \
    for (int i = 0; i < kParts; i++) a.v[i] = a.v[i] op b.v[i]; \
    return a;                                                   \
  }                                                             \
  friend CED_INLINE Vec operator op(Vec a, T b) {               \
    for (int i = 0; i < kParts; i++) a.v[i] = a.v[i] op b;      \
    return a;                                                   \
  }
  CED_VEC_OPERATOR(+)
  CED_VEC_OPERATOR(-)
  CED_VEC_OPERATOR(*)
  CED_VEC_OPERATOR(/)
  CED_VEC_OPERATOR(&)
  CED_VEC_OPERATOR(|)
  CED_VEC_OPERATOR(^)
#undef CED_VEC_OPERATOR
  // Every lane x.
  static CED_INLINE Vec of(T x) {
    Vec r;
    for (int i = 0; i < kParts; i++) r.v[i] = V{} + x;
    return r;
  }
  friend CED_INLINE Vec operator<<(Vec a, int n) {
    for (int i = 0; i < kParts; i++) a.v[i] = a.v[i] << n;
    return a;
  }
  friend CED_INLINE Vec operator>>(Vec a, int n) {
    for (int i = 0; i < kParts; i++) a.v[i] = a.v[i] >> n;
    return a;
  }
  CED_INLINE void operator+=(const Vec &b) { *this = *this + b; }
};

template <int W>
using f32 = Vec<float, W>;
template <int W>
using i32 = Vec<int32_t, W>;
template <int W>
using u32 = Vec<uint32_t, W>;
template <int W>
using i16 = Vec<int16_t, W>;

// Memory is accessed as vectors: GCC turns a memcpy into pieces of 16 bytes, whatever the function it ends up in.
template <class V>
CED_INLINE V load(const void *p) {
  typedef typename V::Memory Memory;
  V r;
  for (int i = 0; i < V::kParts; i++) r.v[i] = static_cast<const Memory *>(p)[i];
  return r;
}

template <class T, int W>
CED_INLINE void store(void *p, const Vec<T, W> &a) {
  typedef typename Vec<T, W>::Memory Memory;
  for (int i = 0; i < 16 / W; i++) static_cast<Memory *>(p)[i] = a.v[i];
}

// The same bits as another type.
template <class To, class T, int W>
CED_INLINE Vec<To, W> bits_as(const Vec<T, W> &a) {
  Vec<To, W> r;
  for (int i = 0; i < 16 / W; i++) r.v[i] = (typename Vec<To, W>::V)a.v[i];
  return r;
}

// condition(a, b) ? x : y, lane by lane.
template <class T, class X, int W>
CED_INLINE Vec<X, W> where_less(const Vec<T, W> &a, const Vec<T, W> &b, const Vec<X, W> &x,
                                const Vec<X, W> &y) {
  Vec<X, W> r;
  for (int i = 0; i < 16 / W; i++) r.v[i] = a.v[i] < b.v[i] ? x.v[i] : y.v[i];
  return r;
}

template <class T, int W>
CED_INLINE Vec<T, W> larger(const Vec<T, W> &a, const Vec<T, W> &b) {
  return where_less(b, a, a, b);
}

template <int W>
CED_INLINE f32<W> to_f32(const i32<W> &a) {
  f32<W> r;
  for (int i = 0; i < 16 / W; i++) r.v[i] = __builtin_convertvector(a.v[i], typename f32<W>::V);
  return r;
}

template <int W>
CED_INLINE i32<W> to_i32(const f32<W> &a) {
  i32<W> r;
  for (int i = 0; i < 16 / W; i++) r.v[i] = __builtin_convertvector(a.v[i], typename i32<W>::V);
  return r;
}

// Sixteen small integers of type T at any address, zero-extended.
template <int W, class T>
CED_INLINE u32<W> widen(const void *p) {
  typedef T Narrow __attribute__((vector_size(W * sizeof(T)), aligned(1), may_alias));
  u32<W> r;
  for (int i = 0; i < 16 / W; i++)
    r.v[i] = __builtin_convertvector(static_cast<const Narrow *>(p)[i], typename u32<W>::V);
  return r;
}

template <int W>
CED_INLINE void narrow(const u32<W> &a, void *p) {
  typedef uint16_t Narrow __attribute__((vector_size(2 * W), aligned(1), may_alias));
  for (int i = 0; i < 16 / W; i++) static_cast<Narrow *>(p)[i] = __builtin_convertvector(a.v[i], Narrow);
}

// Sixteen BF16 at any address.
template <int W>
CED_INLINE f32<W> load_bf16(const void *p) {
  return bits_as<float>(widen<W, uint16_t>(p) << 16);
}

// Nearest even; NaN is not expected.
template <int W>
CED_INLINE f32<W> round_bf16(const f32<W> &x) {
  const u32<W> u = bits_as<uint32_t>(x);
  return bits_as<float>((u + ((u >> 16) & 1u) + 0x7FFFu) & 0xFFFF0000u);
}

template <int W>
CED_INLINE void store_bf16(uint16_t *p, const f32<W> &x) {
  narrow(bits_as<uint32_t>(round_bf16(x)) >> 16, p);
}

// n f32 as BF16, NaN included.
struct RoundRow {
  template <int W>
  static CED_INLINE void run(const float *x, int n, uint16_t *y) {
    for (int i = 0; i < n; i++) y[i] = f32_to_bf16(x[i]);
  }
};

// Lane l + lane l+8, then +4, +2, +1.
template <int W>
CED_INLINE float sum(const f32<W> &a) {
  typedef float F4 __attribute__((vector_size(16)));
  F4 q[4], t;
  store(q, a);
  t = (q[0] + q[2]) + (q[1] + q[3]);
  return (t[0] + t[2]) + (t[1] + t[3]);
}

// The largest lane.
template <int W>
CED_INLINE float largest(const f32<W> &a) {
  float x[16];
  store(x, a);
  for (int d = 8; d > 0; d /= 2)
    for (int i = 0; i < d; i++) x[i] = x[i] > x[i + d] ? x[i] : x[i + d];
  return x[0];
}

// e^x for x <= 0, below -87 zero: relative error under 2^-22.
template <int W>
CED_INLINE f32<W> exp_negative(const f32<W> &x) {
  const f32<W> low = f32<W>::of(-87.0f), clamped = larger(x, low);
  const f32<W> n = (clamped * 0x1.715476p0f + 0x1.8p23f) - 0x1.8p23f;  // nearest integer to x / ln 2
  const f32<W> r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  f32<W> p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const f32<W> y = p * (r * r) + r + 1.0f;
  return where_less(x, low, f32<W>{}, y * bits_as<float>((to_i32(n) + 127) << 23));
}

#if CED_WIDE
template <class K, class... A>
CED_AVX512 auto vectorised_16(A... a) {
  return K::template run<16>(a...);
}
template <class K, class... A>
CED_AVX2 auto vectorised_8(A... a) {
  return K::template run<8>(a...);
}
#endif

// K::run<W>(arguments) with W for this machine, compiled for its instructions. Arguments are copied: pass pointers.
template <class K, class... A>
auto vectorised(A... a) {
#if CED_WIDE
  const int width = simd_width();
  if (width == 16) return vectorised_16<K>(a...);
  if (width == 8) return vectorised_8<K>(a...);
#endif
  return K::template run<4>(a...);
}

}  // namespace ced
