#include "kernel/csa2_attend/block.h"
#include "num/e8m0.h"

#if CED_NEON
#include <arm_neon.h>

#define CED_TARGET
#define CED_OP static inline __attribute__((always_inline))

namespace ced {
namespace {

struct M {
  typedef float32x4_t F;
  static constexpr int W = 4, kScoreHeads = 4, kScoreKeys = 4, kMixHeads = 4, kMixVectors = 4;

  CED_OP F load(const float *p) { return vld1q_f32(p); }
  CED_OP void store(float *p, F v) { vst1q_f32(p, v); }
  CED_OP F broadcast(float x) { return vdupq_n_f32(x); }
  CED_OP F zero() { return vdupq_n_f32(0); }
  CED_OP F add(F a, F b) { return vaddq_f32(a, b); }
  CED_OP F mul(F a, F b) { return vmulq_f32(a, b); }
  CED_OP F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }

  // As fp16 a code is its value / 256, subnormals included.
  CED_OP void e4m3(const uint8_t *codes, float factor, float *out) {
    const int8x16_t all = vreinterpretq_s8_u8(vld1q_u8(codes));
    for (int half = 0; half < 2; half++) {
      const int16x8_t wide = vmovl_s8(half == 0 ? vget_low_s8(all) : vget_high_s8(all));
      const float16x8_t v = vreinterpretq_f16_s16(vandq_s16(vshlq_n_s16(wide, 7), vdupq_n_s16(-0x4080)));
      store(out + 8 * half, mul(vcvt_f32_f16(vget_low_f16(v)), broadcast(factor)));
      store(out + 8 * half + 4, mul(vcvt_f32_f16(vget_high_f16(v)), broadcast(factor)));
    }
  }

  // Twice the values come from a table of bytes.
  CED_OP void e2m1(const uint8_t *codes, float scale, float *out) {
    static const int8_t kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    const uint8x8_t pairs = vld1_u8(codes);
    const uint8x8x2_t code = vzip_u8(vand_u8(pairs, vdup_n_u8(15)), vshr_n_u8(pairs, 4));
    const int8x16_t table = vld1q_s8(kTwice);
    for (int half = 0; half < 2; half++) {
      const int16x8_t twice = vmovl_s8(vqtbl1_s8(table, code.val[half]));
      const F low = vcvtq_f32_s32(vmovl_s16(vget_low_s16(twice)));
      const F high = vcvtq_f32_s32(vmovl_s16(vget_high_s16(twice)));
      store(out + 8 * half, mul(mul(low, broadcast(0.5f)), broadcast(scale)));
      store(out + 8 * half + 4, mul(mul(high, broadcast(0.5f)), broadcast(scale)));
    }
  }

  CED_OP void sums(const F (&dot)[4][4][4], float scale, float *logits) {
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < 4; j++) {
        const F t = add(add(dot[0][i][j], dot[2][i][j]), add(dot[1][i][j], dot[3][i][j]));
        const float32x2_t pair = vadd_f32(vget_low_f32(t), vget_high_f32(t));
        logits[i * kBlock + j] = (vget_lane_f32(pair, 0) + vget_lane_f32(pair, 1)) * scale;
      }
  }
};

}  // namespace
}  // namespace ced

#include "kernel/csa2_attend/block_body.h"

const ced::BlockOps ced::kBlockNeon = ced::kOps;
#endif
