// rotary.h: RoPE (spec 3.7) in vectors: cosines and sines of a position, and the rotation of channels by them.
#pragma once
#include "kernel/lanes64.h"
#include "kernel/row_lanes.h"

namespace ced {

constexpr uint32_t kMaxRope = 512;

// What one position rotates by: cosine and sine of every pair of channels.
struct Rotation {
  alignas(64) float cosine[kMaxRope / 2], sine[kMaxRope / 2];
};

// The rotation of `pairs` pairs at a position below 2^20, or the opposite one. Angles are f32 products, as the specification has it;
// the results are those of the f64 functions, rounded once.
struct Angles {
  template <int W>
  static CED_INLINE void run(const float *freqs, int64_t pairs, float position, bool inverse, Rotation *to) {
    typedef typename F64<W>::D D;
    typedef typename F64<W>::Half Half;
    constexpr int N = W / 2;
    for (int64_t i = 0; i < pairs; i += N) {
      Half angle = {};
      if (i + N <= pairs) {
        memcpy(&angle, freqs + i, sizeof angle);
      } else {
        for (int64_t l = 0; i + l < pairs; l++) angle[l] = freqs[i + l];
      }
      angle = angle * position;
      D c, s;
      cos_sin<W>(__builtin_convertvector(angle, D), &c, &s);
      if (inverse) s = -s;
      const Half c32 = __builtin_convertvector(c, Half), s32 = __builtin_convertvector(s, Half);
      memcpy(to->cosine + i, &c32, sizeof c32);
      memcpy(to->sine + i, &s32, sizeof s32);
    }
  }
};

// One head's rotary channels in place: adjacent pairs, products and sums apart.
template <int W>
CED_INLINE void rotate_pairs(uint16_t *x, int64_t pairs, const Rotation &by) {
  int64_t i = 0;
  for (; i + kLanes <= pairs; i += kLanes) {
    const auto v = load_pairs<W>(x + 2 * i);
    const auto c = load<f32<W>>(by.cosine + i), s = load<f32<W>>(by.sine + i);
    store_pairs<W>(x + 2 * i, {v.even * c - v.odd * s, v.even * s + v.odd * c});
  }
  for (; i < pairs; i++) {
    const float even = bf16_to_f32(x[2 * i]), odd = bf16_to_f32(x[2 * i + 1]);
    x[2 * i] = f32_to_bf16(even * by.cosine[i] - odd * by.sine[i]);
    x[2 * i + 1] = f32_to_bf16(even * by.sine[i] + odd * by.cosine[i]);
  }
}

}  // namespace ced
