#include "kernel/dense_gemm/tile_isa.h"

#if CED_NEON
#include <arm_neon.h>

namespace ced {
namespace {

#include "kernel/dense_gemm/tile_body.h"

struct Neon {
  typedef float32x4_t V;
  static constexpr int kWidth = 4, kWeights = 4, kRows = 4;
  static constexpr float kUnit = 0x1p-8f;

  static V zero() { return vdupq_n_f32(0); }
  static V of(float x) { return vdupq_n_f32(x); }
  static V load(const float *p) { return vld1q_f32(p); }
  static V load_once(const float *p) { return load(p); }
  static void store(float *p, V v) { vst1q_f32(p, v); }
  static V mul(V a, V b) { return vmulq_f32(a, b); }
  static V fma(V a, V b, V c) { return vfmaq_f32(c, a, b); }
  static V mul_add(V a, V b, V c) { return vaddq_f32(c, vmulq_f32(a, b)); }
  static bool equal(V a, V b) { return vminvq_u32(vceqq_f32(a, b)) != 0; }
  static void prefetch(const uint8_t *p) { __builtin_prefetch(p); }
  static void prefetch_far(const uint8_t *p) { __builtin_prefetch(p, 0, 2); }
  static void shuffle(V *) {}
  static void shuffle(float *) {}

  // Maxima of the bytes: 0xFF is the largest unsigned one, 0x7F the largest signed one.
  struct Seen {
    uint8x16_t u;
    int8x16_t s;
  };
  static Seen nothing_seen() { return {vdupq_n_u8(0), vdupq_n_s8(0)}; }
  static bool nan_seen(const Seen &seen) { return vmaxvq_u8(seen.u) == 0xFF || vmaxvq_s8(seen.s) == 0x7F; }

  template <ced_format f>
  static constexpr int direct(int rows) {
    return rows == 1 ? 4 : rows == 2 ? 2 : rows <= 4 ? 1 : 0;
  }
  template <ced_format f>
  static constexpr int blocks() {
    return 1;
  }

  static V bits(uint16x4_t upper) { return vreinterpretq_f32_u32(vshll_n_u16(upper, 16)); }
  // Eight upper halves of f32 as two vectors.
  static void widen(uint16x8_t upper, V *v) {
    v[0] = bits(vget_low_u16(upper));
    v[1] = bits(vget_high_u16(upper));
  }
  // Eight e4m3 as f16 with the same bits, which are 2^-8 of the value, as two vectors.
  static void halves(uint8x8_t codes, V *v) {
    const int16x8_t spread = vshrq_n_s16(vreinterpretq_s16_u16(vshll_n_u8(codes, 8)), 1);
    const float16x8_t h =
        vreinterpretq_f16_u16(vandq_u16(vreinterpretq_u16_s16(spread), vdupq_n_u16(0xBF80)));
    v[0] = vcvt_f32_f16(vget_low_f16(h));
    v[1] = vcvt_f32_f16(vget_high_f16(h));
  }

  template <ced_format f, int n>
  static void decode(const uint8_t *p, const uint8_t *scales, Seen &seen, V *v) {
    V *odd = v, *even = v + 4;
    if constexpr (f == CED_FP4) {
      const uint8_t *table = kE2m1Bytes.bytes[*scales];
      const uint8x16_t low = vld1q_u8(table), high = vld1q_u8(table + 16), b = vld1q_u8(p);
      const auto values = [&](uint8x16_t code, V *out) {
        const uint8x16_t l = vqtbl1q_u8(low, code), h = vqtbl1q_u8(high, code);
        widen(vreinterpretq_u16_u8(vzip1q_u8(l, h)), out);
        widen(vreinterpretq_u16_u8(vzip2q_u8(l, h)), out + 2);
      };
      values(vshrq_n_u8(b, 4), odd);
      values(vandq_u8(b, vdupq_n_u8(15)), even);
    } else if constexpr (f == CED_FP8) {
      const uint8x16x2_t b = vld2q_u8(p);  // even bytes, odd bytes
      for (int i = 0; i < 2; i++) {
        seen.u = vmaxq_u8(seen.u, b.val[i]);
        seen.s = vmaxq_s8(seen.s, vreinterpretq_s8_u8(b.val[i]));
      }
      halves(vget_low_u8(b.val[1]), odd), halves(vget_high_u8(b.val[1]), odd + 2);
      halves(vget_low_u8(b.val[0]), even), halves(vget_high_u8(b.val[0]), even + 2);
    } else if constexpr (f == CED_BF16) {
      for (int i = 0; i < 4; i++) {
        const uint32x4_t b = vreinterpretq_u32_u8(vld1q_u8(p + 16 * i));
        odd[i] = vreinterpretq_f32_u32(vandq_u32(b, vdupq_n_u32(0xFFFF0000u)));
        even[i] = vreinterpretq_f32_u32(vshlq_n_u32(b, 16));
      }
    } else {
      for (int i = 0; i < 4; i++) {
        const V a = vreinterpretq_f32_u8(vld1q_u8(p + 32 * i)),
                b = vreinterpretq_f32_u8(vld1q_u8(p + 32 * i + 16));
        odd[i] = vuzp2q_f32(a, b);
        even[i] = vuzp1q_f32(a, b);
      }
    }
  }

  template <ced_format f, int n>
  static void expand(const uint8_t *p, const uint8_t *scales, float *out) {
    V v[8];
    Seen seen = nothing_seen();
    decode<f, 1>(p, scales, seen, v);
    if constexpr (f == CED_FP8) {
      if (__builtin_expect(*scales > 246 || nan_seen(seen), 0)) return expand_elements<f>(p, *scales, out);
      const V s = of(f16_factor(*scales));
      for (V &e : v) e = mul(e, s);
    }
    for (int i = 0; i < 8; i++) store(out + 4 * i, v[i]);
  }

  // The tree: distances 8 and 4 within a row, 2 and 1 for four rows at a time.
  static void reduce(float (*lanes)[16], float *sums) {
    for (int part = 0; part < 16; part += 4) {
      V v[4];
      for (int i = 0; i < 4; i++) {
        const float *t = lanes[part + i];
        v[i] = vaddq_f32(vaddq_f32(load(t), load(t + 8)), vaddq_f32(load(t + 4), load(t + 12)));
      }
      const auto pairs = [](V a, V b, bool upper) {
        const float64x2_t x = vreinterpretq_f64_f32(a), y = vreinterpretq_f64_f32(b);
        return vreinterpretq_f32_f64(upper ? vzip2q_f64(x, y) : vzip1q_f64(x, y));
      };
      const V a = vaddq_f32(pairs(v[0], v[1], false), pairs(v[0], v[1], true));
      const V b = vaddq_f32(pairs(v[2], v[3], false), pairs(v[2], v[3], true));
      const V all = vaddq_f32(vuzp1q_f32(a, b), vuzp2q_f32(a, b));
      const V nan = vreinterpretq_f32_u32(vdupq_n_u32(0x7FC00000u));
      store(sums + part, vbslq_f32(vceqq_f32(all, all), all, nan));
    }
  }
};

}  // namespace

void gemm_tile_neon(ced_format x_format, ced_format w_format, uint32_t k, const GemmRow *w, int count,
                    const GemmRow *x, int rows, GemmSums sums) {
  any_tile<Neon>(x_format, w_format, k, w, count, x, rows, sums);
}

}  // namespace ced
#endif
