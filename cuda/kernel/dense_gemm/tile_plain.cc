#include <cfenv>

#include "kernel/dense_gemm/tile_isa.h"

namespace ced {
namespace {

#include "kernel/dense_gemm/tile_body.h"

// Vectors of four, which every machine has or imitates.
struct Plain {
  typedef float V __attribute__((vector_size(16)));
  typedef float Memory __attribute__((vector_size(16), aligned(4), may_alias));
  typedef double Wide __attribute__((vector_size(32)));
  static constexpr int kWidth = 4, kWeights = 2, kRows = 4;
  static constexpr float kUnit = 1;  // FP8 decoded as it is

  static V zero() { return V{}; }
  static V of(float x) { return V{} + x; }
  static V load(const float *p) { return *reinterpret_cast<const Memory *>(p); }
  static V load_once(const float *p) { return load(p); }
  static void store(float *p, V v) { *reinterpret_cast<Memory *>(p) = v; }
  static V mul(V a, V b) { return a * b; }
  static V fma(V a, V b, V c) { return a * b + c; }  // unless a product leaves the range: see below
  static V mul_add(V a, V b, V c) { return a * b + c; }
  static bool equal(V a, V b) { return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3]; }
  static void prefetch(const uint8_t *p) { __builtin_prefetch(p); }
  static void prefetch_far(const uint8_t *p) { __builtin_prefetch(p, 0, 2); }
  static void shuffle(V *) {}
  static void shuffle(float *) {}

  struct Seen {
    bool nan;
  };
  static Seen nothing_seen() { return {false}; }
  static bool nan_seen(const Seen &seen) { return seen.nan; }

  template <ced_format f>
  static constexpr int direct(int rows) {
    return rows == 1 ? 2 : rows == 2 ? 1 : 0;
  }
  template <ced_format f>
  static constexpr int blocks() {
    return 1;
  }
  template <ced_format f, int n>
  static void decode(const uint8_t *p, const uint8_t *scales, Seen &seen, V *v) {
    alignas(16) float out[32];
    if constexpr (f == CED_FP8) {
      for (int i = 0; i < 32; i++) seen.nan |= (p[i] & 0x7F) == 0x7F;
      expand_elements<f>(p, 127, out);
    } else {
      expand<f, 1>(p, scales, out);
    }
    for (int i = 0; i < 8; i++) v[i] = load(out + 4 * i);
  }
  template <ced_format f, int n>
  static void expand(const uint8_t *p, const uint8_t *scales, float *out) {
    expand_elements<f>(p, has_scales(f) ? *scales : uint8_t{0}, out);
  }

  static void reduce(float (*lanes)[16], float *sums) {
    for (int i = 0; i < 16; i++) {
      float t[16];
      memcpy(t, lanes[i], sizeof t);
      for (int d = 8; d > 0; d /= 2)
        for (int l = 0; l < d; l++) t[l] = t[l] + t[l + d];
      sums[i] = t[0] == t[0] ? t[0] : f32_of(0x7FC00000u);
    }
  }
};

// The same where products left the range of an f32 before they were added: f64 holds product and sum of BF16-valued
// operands exactly, or far enough for the one rounding to f32.
struct PlainExact : Plain {
  static V fma(V a, V b, V c) {
    V r;
    for (int i = 0; i < 4; i++)
      r[i] = static_cast<float>(static_cast<double>(a[i]) * static_cast<double>(b[i]) +
                                static_cast<double>(c[i]));
    return r;
  }
};

}  // namespace

void gemm_tile_plain(ced_format x_format, ced_format w_format, uint32_t k, const GemmRow *w, int count,
                     const GemmRow *x, int rows, GemmSums sums) {
  constexpr int kLossy = FE_UNDERFLOW | FE_OVERFLOW;
  feclearexcept(kLossy);
  any_tile<Plain>(x_format, w_format, k, w, count, x, rows, sums);
  if (w_format != CED_F32 && fetestexcept(kLossy))
    any_tile<PlainExact>(x_format, w_format, k, w, count, x, rows, sums);
}

}  // namespace ced
