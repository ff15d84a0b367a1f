#include "kernel/csa2_attend/block.h"
#include "num/e8m0.h"

#if CED_WIDE
#include <immintrin.h>

#define CED_TARGET CED_AVX2
#define CED_OP CED_AVX2 static inline __attribute__((always_inline))

namespace ced {
namespace {

struct M {
  typedef __m256 F;
  static constexpr int W = 8, kScoreHeads = 4, kScoreKeys = 2, kMixHeads = 4, kMixVectors = 2;

  CED_OP F load(const float *p) { return _mm256_loadu_ps(p); }
  CED_OP void store(float *p, F v) { _mm256_storeu_ps(p, v); }
  CED_OP F broadcast(float x) { return _mm256_set1_ps(x); }
  CED_OP F zero() { return _mm256_setzero_ps(); }
  CED_OP F add(F a, F b) { return _mm256_add_ps(a, b); }
  CED_OP F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  CED_OP F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }

  // As fp16 a code is its value / 256, subnormals included.
  CED_OP void e4m3(const uint8_t *codes, float factor, float *out) {
    const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i *>(codes)));
    const __m256i half = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(-0x4080));
    store(out, mul(_mm256_cvtph_ps(_mm256_castsi256_si128(half)), broadcast(factor)));
    store(out + 8, mul(_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)), broadcast(factor)));
  }

  CED_OP void e2m1(const uint8_t *codes, float scale, float *out) {
    const F table = mul(_mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6), broadcast(scale));
    for (int half = 0; half < 2; half++) {
      int32_t all;
      memcpy(&all, codes + 4 * half, 4);
      const __m256i code =
          _mm256_srlv_epi32(_mm256_set1_epi32(all), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
      const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(code, _mm256_set1_epi32(8)), 28);
      store(out + 8 * half, _mm256_xor_ps(_mm256_permutevar8x32_ps(table, code), _mm256_castsi256_ps(sign)));
    }
  }

  CED_OP void sums(const F (&dot)[2][4][2], float scale, float *logits) {
    __m128 v[2][4];  // by key: what the heads' lanes l, l+4, l+8, l+12 add up to
    for (int j = 0; j < 2; j++) {
      for (int i = 0; i < 4; i++) {
        const F x = add(dot[0][i][j], dot[1][i][j]);
        v[j][i] = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
      }
      _MM_TRANSPOSE4_PS(v[j][0], v[j][1], v[j][2], v[j][3]);
      v[j][0] = _mm_add_ps(_mm_add_ps(v[j][0], v[j][2]), _mm_add_ps(v[j][1], v[j][3]));
      v[j][0] = _mm_mul_ps(v[j][0], _mm_set1_ps(scale));
    }
    const __m128 low = _mm_unpacklo_ps(v[0][0], v[1][0]), high = _mm_unpackhi_ps(v[0][0], v[1][0]);
    _mm_storel_pi(reinterpret_cast<__m64 *>(logits), low);
    _mm_storeh_pi(reinterpret_cast<__m64 *>(logits + kBlock), low);
    _mm_storel_pi(reinterpret_cast<__m64 *>(logits + 2 * kBlock), high);
    _mm_storeh_pi(reinterpret_cast<__m64 *>(logits + 3 * kBlock), high);
  }
};

}  // namespace
}  // namespace ced

#include "kernel/csa2_attend/block_body.h"

const ced::BlockOps ced::kBlockAvx2 = ced::kOps;
#endif
