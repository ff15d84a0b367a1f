#include "kernel/csa2_attend/block.h"
#include "num/e8m0.h"

#if CED_WIDE
// The undefined operands of GCC 12's own intrinsics.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#define CED_TARGET CED_AVX512
#define CED_OP CED_AVX512 static inline __attribute__((always_inline))

namespace ced {
namespace {

struct M {
  typedef __m512 F;
  static constexpr int W = 16, kScoreHeads = 4, kScoreKeys = 4, kMixHeads = 8, kMixVectors = 2;

  CED_OP F load(const float *p) { return _mm512_loadu_ps(p); }
  CED_OP void store(float *p, F v) { _mm512_storeu_ps(p, v); }
  CED_OP F broadcast(float x) { return _mm512_set1_ps(x); }
  CED_OP F zero() { return _mm512_setzero_ps(); }
  CED_OP F add(F a, F b) { return _mm512_add_ps(a, b); }
  CED_OP F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  CED_OP F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }

  // As fp16 a code is its value / 256, subnormals included.
  CED_OP void e4m3(const uint8_t *codes, float factor, float *out) {
    const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i *>(codes)));
    const __m256i half = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(-0x4080));
    store(out, mul(_mm512_cvtph_ps(half), broadcast(factor)));
  }

  CED_OP void e2m1(const uint8_t *codes, float scale, float *out) {
    const F table = _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
    uint64_t all;
    memcpy(&all, codes, 8);
    // Nibbles 2i and 2i+1 to the low bits of lanes 2i and 2i+1; the permutation looks at four bits.
    const __m512i fields = _mm512_setr_epi64(0x0400000000, 0x0C00000008, 0x1400000010, 0x1C00000018,
                                             0x2400000020, 0x2C00000028, 0x3400000030, 0x3C00000038);
    const __m512i code = _mm512_multishift_epi64_epi8(fields, _mm512_set1_epi64(static_cast<int64_t>(all)));
    store(out, _mm512_permutexvar_ps(code, mul(table, broadcast(scale))));
  }

  // Sums of sixteen vectors by one tree of shuffles: distances 8, 4, 2, 1.
  CED_OP void sums(const F (&dot)[1][4][4], float scale, float *logits) {
    F v[16];
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < 4; j++) v[4 * j + i] = dot[0][i][j];
    for (int i = 0; i < 8; i++)
      v[i] = add(_mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0x44),
                 _mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0xEE));
    for (int i = 0; i < 4; i++)
      v[i] = add(_mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0x88),
                 _mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0xDD));
    for (int i = 0; i < 2; i++)
      v[i] = add(_mm512_shuffle_ps(v[2 * i], v[2 * i + 1], 0x44),
                 _mm512_shuffle_ps(v[2 * i], v[2 * i + 1], 0xEE));
    v[0] = add(_mm512_shuffle_ps(v[0], v[1], 0x88), _mm512_shuffle_ps(v[0], v[1], 0xDD));
    v[0] = mul(v[0], broadcast(scale));
    // 128 bits to a head.
    _mm_storeu_ps(logits, _mm512_castps512_ps128(v[0]));
    _mm_storeu_ps(logits + kBlock, _mm512_extractf32x4_ps(v[0], 1));
    _mm_storeu_ps(logits + 2 * kBlock, _mm512_extractf32x4_ps(v[0], 2));
    _mm_storeu_ps(logits + 3 * kBlock, _mm512_extractf32x4_ps(v[0], 3));
  }
};

}  // namespace
}  // namespace ced

#include "kernel/csa2_attend/block_body.h"

const ced::BlockOps ced::kBlockAvx512 = ced::kOps;
#endif
