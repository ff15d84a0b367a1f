#include "kernel/csa2_index/score.h"
#include "num/e8m0.h"

#if CED_WIDE
#include <immintrin.h>

#define CED_TARGET CED_AVX2
#define CED_OP CED_AVX2 static inline __attribute__((always_inline))

namespace ced {
namespace {

struct M {
  typedef __m256 F;
  typedef __m256i I;
  static constexpr int W = 8, H = 4, V = 2, kDecodeKeys = 8;

  CED_OP F load(const float *p) { return _mm256_loadu_ps(p); }
  CED_OP F broadcast(float x) { return _mm256_set1_ps(x); }
  CED_OP F zero() { return _mm256_setzero_ps(); }
  CED_OP F add(F a, F b) { return _mm256_add_ps(a, b); }
  CED_OP F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  CED_OP F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  CED_OP F to_f32(I a) { return _mm256_cvtepi32_ps(a); }
  CED_OP F positive(F a) { return _mm256_max_ps(a, zero()); }
  CED_OP F round_bf16(F a) {
    const I u = _mm256_castps_si256(a);
    const I odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const I up = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7FFF)), odd);
    return _mm256_castsi256_ps(_mm256_and_si256(up, _mm256_set1_epi32(-0x10000)));
  }
  // score_of() of BF16 values.
  CED_OP void store_scores(Score *out, F a) {
    const I u = _mm256_castps_si256(add(a, zero()));  // no negative zero
    const I flip = _mm256_or_si256(_mm256_srai_epi32(u, 31), _mm256_set1_epi32(INT32_MIN));
    const I mapped = _mm256_srli_epi32(_mm256_xor_si256(u, flip), 16);
    _mm_storeu_si128(reinterpret_cast<__m128i *>(out),
                     _mm_packus_epi32(_mm256_castsi256_si128(mapped), _mm256_extracti128_si256(mapped, 1)));
  }

  // At most eight times 2 * 24 * 12 in sixteen bits.
  CED_OP void block(const uint8_t *keys, const int8_t *q, const int32_t *offset, int stride, I (&sum)[H][V]) {
    I part[H][V];
#pragma GCC unroll 8
    for (int i = 0; i < H; i++) part[i][0] = part[i][1] = _mm256_setzero_si256();
#pragma GCC unroll 2
    for (int word = 0; word < kBlockWords; word++) {
      const I *k = reinterpret_cast<const I *>(keys + word * kTileKeys * 4);
      const I k0 = _mm256_load_si256(k), k1 = _mm256_load_si256(k + 1);
#pragma GCC unroll 8
      for (int i = 0; i < H; i++) {
        int32_t x;
        memcpy(&x, q + (word * kIndexHeads + i) * 4, 4);
        const I v = _mm256_set1_epi32(x);
        part[i][0] = _mm256_add_epi16(part[i][0], _mm256_maddubs_epi16(k0, v));
        part[i][1] = _mm256_add_epi16(part[i][1], _mm256_maddubs_epi16(k1, v));
      }
    }
    const I one = _mm256_set1_epi16(1);
#pragma GCC unroll 8
    for (int i = 0; i < H; i++)
      for (int v = 0; v < V; v++)
        sum[i][v] =
            _mm256_add_epi32(_mm256_madd_epi16(part[i][v], one), _mm256_set1_epi32(offset[i * stride]));
  }

  CED_OP I values(I codes) {
    const I table =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    return _mm256_shuffle_epi8(table, _mm256_and_si256(codes, _mm256_set1_epi8(15)));
  }

  CED_OP void decode(const IndexKey *keys, int b, uint8_t *out) {
    I v[4];
    for (int i = 0; i < 4; i++) {
      const auto *low = reinterpret_cast<const __m128i *>(keys[i].codes + 16 * b);
      const auto *high = reinterpret_cast<const __m128i *>(keys[i + 4].codes + 16 * b);
      v[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(low)), _mm_loadu_si128(high), 1);
    }
    const I a = _mm256_unpacklo_epi32(v[0], v[1]), c = _mm256_unpackhi_epi32(v[0], v[1]);
    const I d = _mm256_unpacklo_epi32(v[2], v[3]), e = _mm256_unpackhi_epi32(v[2], v[3]);
    const I words[4] = {_mm256_unpacklo_epi64(a, d), _mm256_unpackhi_epi64(a, d), _mm256_unpacklo_epi64(c, e),
                        _mm256_unpackhi_epi64(c, e)};
    for (int w = 0; w < 4; w++) {
      _mm256_store_si256(reinterpret_cast<I *>(out + 2 * w * kTileKeys * 4), values(words[w]));
      _mm256_store_si256(reinterpret_cast<I *>(out + (2 * w + 1) * kTileKeys * 4),
                         values(_mm256_srli_epi16(words[w], 4)));
    }
  }
};

}  // namespace
}  // namespace ced

#include "kernel/csa2_index/score_body.h"

namespace ced {
namespace {

CED_TARGET void decode(const IndexKey *keys, int dim, bool, bool, KeyTile *tile) {
  decode_words(keys, dim / 32, tile);
}

}  // namespace
}  // namespace ced

const ced::ScoreOps ced::kScoreAvx2 = {ced::decode, ced::score_words, false};
#endif
