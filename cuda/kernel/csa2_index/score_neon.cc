#include "kernel/csa2_index/score.h"
#include "num/e8m0.h"

#if CED_NEON
#include <arm_neon.h>

#define CED_TARGET
#define CED_OP static inline __attribute__((always_inline))

namespace ced {
namespace {

struct M {
  typedef float32x4_t F;
  typedef int32x4_t I;
  static constexpr int W = 4, H = 4, V = 2, kDecodeKeys = 4;

  CED_OP F load(const float *p) { return vld1q_f32(p); }
  CED_OP F broadcast(float x) { return vdupq_n_f32(x); }
  CED_OP F zero() { return vdupq_n_f32(0); }
  CED_OP F add(F a, F b) { return vaddq_f32(a, b); }
  CED_OP F mul(F a, F b) { return vmulq_f32(a, b); }
  CED_OP F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  CED_OP F to_f32(I a) { return vcvtq_f32_s32(a); }
  CED_OP F positive(F a) { return vbslq_f32(vcgtq_f32(a, zero()), a, zero()); }
  CED_OP F round_bf16(F a) {
    const uint32x4_t u = vreinterpretq_u32_f32(a), odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
    const uint32x4_t up = vaddq_u32(vaddq_u32(u, vdupq_n_u32(0x7FFF)), odd);
    return vreinterpretq_f32_u32(vandq_u32(up, vdupq_n_u32(0xFFFF0000u)));
  }
  // score_of() of BF16 values.
  CED_OP void store_scores(Score *out, F a) {
    const int32x4_t s = vreinterpretq_s32_f32(add(a, zero()));  // no negative zero
    const uint32x4_t flip = vorrq_u32(vreinterpretq_u32_s32(vshrq_n_s32(s, 31)), vdupq_n_u32(0x80000000u));
    vst1_u16(out, vshrn_n_u32(veorq_u32(vreinterpretq_u32_s32(s), flip), 16));
  }

  // At most sixteen times 24 * 12 in sixteen bits.
  CED_OP void block(const uint8_t *keys, const int8_t *q, const int32_t *offset, int stride, I (&sum)[H][V]) {
    int16x8_t low[H][V], high[H][V];
    for (int i = 0; i < H; i++)
      for (int v = 0; v < V; v++) low[i][v] = high[i][v] = vdupq_n_s16(0);
    for (int word = 0; word < kBlockWords; word++) {
      int8x16_t k[V];
      for (int v = 0; v < V; v++) k[v] = vreinterpretq_s8_u8(vld1q_u8(keys + word * kTileKeys * 4 + 16 * v));
      for (int i = 0; i < H; i++) {
        int32_t word_of_head;
        memcpy(&word_of_head, q + (word * kIndexHeads + i) * 4, 4);
        const int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(word_of_head));
        for (int v = 0; v < V; v++) {
          low[i][v] = vmlal_s8(low[i][v], vget_low_s8(k[v]), vget_low_s8(x));
          high[i][v] = vmlal_high_s8(high[i][v], k[v], x);
        }
      }
    }
    for (int i = 0; i < H; i++)
      for (int v = 0; v < V; v++)
        sum[i][v] = vaddq_s32(vpaddq_s32(vpaddlq_s16(low[i][v]), vpaddlq_s16(high[i][v])),
                              vdupq_n_s32(offset[i * stride]));
  }

  CED_OP uint8x16_t values(uint8x16_t codes) {
    static const uint8_t kValues[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
    return vqtbl1q_u8(vld1q_u8(kValues), codes);
  }

  CED_OP void decode(const IndexKey *keys, int b, uint8_t *out) {
    uint32x4_t v[4];
    for (int i = 0; i < 4; i++) v[i] = vreinterpretq_u32_u8(vld1q_u8(keys[i].codes + 16 * b));
    const uint32x4x2_t a = vzipq_u32(v[0], v[2]), c = vzipq_u32(v[1], v[3]);
    const uint32x4x2_t low = vzipq_u32(a.val[0], c.val[0]), high = vzipq_u32(a.val[1], c.val[1]);
    const uint32x4_t words[4] = {low.val[0], low.val[1], high.val[0], high.val[1]};
    for (int w = 0; w < 4; w++) {
      const uint8x16_t pairs = vreinterpretq_u8_u32(words[w]);
      vst1q_u8(out + 2 * w * kTileKeys * 4, values(vandq_u8(pairs, vdupq_n_u8(15))));
      vst1q_u8(out + (2 * w + 1) * kTileKeys * 4, values(vshrq_n_u8(pairs, 4)));
    }
  }
};

}  // namespace
}  // namespace ced

#include "kernel/csa2_index/score_body.h"

namespace ced {
namespace {

void decode(const IndexKey *keys, int dim, bool, bool, KeyTile *tile) { decode_words(keys, dim / 32, tile); }

}  // namespace
}  // namespace ced

const ced::ScoreOps ced::kScoreNeon = {ced::decode, ced::score_words, false};
#endif
