#include "kernel/dense_gemm/tile_isa.h"

#if CED_WIDE
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

namespace ced {
namespace {

#include "kernel/dense_gemm/tile_body.h"

struct Avx2 {
  typedef __m256 V;
  static constexpr int kWidth = 8, kWeights = 4, kRows = 3;
  static constexpr float kUnit = 0x1p-8f;

  static V zero() { return _mm256_setzero_ps(); }
  static V of(float x) { return _mm256_set1_ps(x); }
  static V load(const float *p) { return _mm256_loadu_ps(p); }
  static V load_once(const float *p) { return load(p); }
  static void store(float *p, V v) { _mm256_storeu_ps(p, v); }
  static V mul(V a, V b) { return _mm256_mul_ps(a, b); }
  static V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  static V mul_add(V a, V b, V c) { return _mm256_add_ps(c, _mm256_mul_ps(a, b)); }
  static bool equal(V a, V b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_NEQ_UQ)) == 0; }
  static void prefetch(const uint8_t *p) { _mm_prefetch(reinterpret_cast<const char *>(p), _MM_HINT_T0); }
  static void prefetch_far(const uint8_t *p) { _mm_prefetch(reinterpret_cast<const char *>(p), _MM_HINT_T1); }

  // FP4: lanes 0-3 and 8-11, then 4-7 and 12-15, as the unpack instructions give them.
  static void shuffle(V *v) {
    const V low = _mm256_permute2f128_ps(v[0], v[1], 0x20), high = _mm256_permute2f128_ps(v[0], v[1], 0x31);
    v[0] = low, v[1] = high;
  }
  static void shuffle(float *p) {
    V v[2] = {load(p), load(p + 8)};
    shuffle(v);
    store(p, v[0]), store(p + 8, v[1]);
  }

  // Maxima of the bytes: 0xFF is the largest unsigned one, 0x7F the largest signed one.
  struct Seen {
    __m256i u, s;
  };
  static Seen nothing_seen() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static bool nan_seen(const Seen &seen) {
    return _mm256_movemask_epi8(_mm256_or_si256(_mm256_cmpeq_epi8(seen.u, _mm256_set1_epi8(-1)),
                                                _mm256_cmpeq_epi8(seen.s, _mm256_set1_epi8(0x7F)))) != 0;
  }

  template <ced_format f>
  static constexpr int direct(int rows) {
    return rows == 1 ? 4 : rows == 2 ? 2 : rows <= 4 ? 1 : 0;
  }
  template <ced_format f>
  static constexpr int blocks() {
    return 1;
  }

  // e4m3 in the upper bytes of words to f16 with the same bits, which are 2^-8 of the value.
  static void halves(__m256i words, V *v) {
    const __m256i h =
        _mm256_and_si256(_mm256_srai_epi16(words, 1), _mm256_set1_epi16(static_cast<int16_t>(0xBF80)));
    v[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(h));
    v[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1));
  }
  static V bits(__m256i v) { return _mm256_castsi256_ps(v); }
  static __m256i bytes(const uint8_t *p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)); }

  // Odd elements of 16 f32 at p.
  static V odd_ones(const uint8_t *p) {
    const auto *x = reinterpret_cast<const float *>(p);
    const __m256d v = _mm256_castps_pd(_mm256_shuffle_ps(load(x), load(x + 8), 0xDD));
    return _mm256_castpd_ps(_mm256_permute4x64_pd(v, 0xD8));
  }
  static V even_ones(const uint8_t *p) {
    const auto *x = reinterpret_cast<const float *>(p);
    const __m256d v = _mm256_castps_pd(_mm256_shuffle_ps(load(x), load(x + 8), 0x88));
    return _mm256_castpd_ps(_mm256_permute4x64_pd(v, 0xD8));
  }

  template <ced_format f, int n>
  static void decode(const uint8_t *p, const uint8_t *scales, Seen &seen, V *v) {
    if constexpr (f == CED_FP4) {
      // Bytes 0-7 in the lower half, 8-15 in the upper one: eight low nibbles, then eight high ones, index tables of
      // the upper two bytes of the values.
      const __m256i b = _mm256_permute4x64_epi64(
          _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))), 0x50);
      const __m256i code =
          _mm256_and_si256(_mm256_srlv_epi64(b, _mm256_setr_epi64x(0, 4, 0, 4)), _mm256_set1_epi8(15));
      const uint8_t *table = kE2m1Bytes.bytes[*scales];
      const auto broadcast = [](const uint8_t *t) {
        return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i *>(t)));
      };
      const __m256i low = _mm256_shuffle_epi8(broadcast(table), code);
      const __m256i high = _mm256_shuffle_epi8(broadcast(table + 16), code);
      const __m256i even = _mm256_unpacklo_epi8(low, high), odd = _mm256_unpackhi_epi8(low, high);
      const __m256i none = _mm256_setzero_si256();
      v[0] = bits(_mm256_unpacklo_epi16(none, odd)), v[1] = bits(_mm256_unpackhi_epi16(none, odd));
      v[2] = bits(_mm256_unpacklo_epi16(none, even)), v[3] = bits(_mm256_unpackhi_epi16(none, even));
    } else if constexpr (f == CED_FP8) {
      const __m256i b = bytes(p);
      seen.u = _mm256_max_epu8(seen.u, b), seen.s = _mm256_max_epi8(seen.s, b);
      halves(b, v);
      halves(_mm256_slli_epi16(b, 8), v + 2);
    } else if constexpr (f == CED_BF16) {
      for (int i = 0; i < 2; i++) {
        const __m256i b = bytes(p + 32 * i);
        v[i] = bits(_mm256_and_si256(b, _mm256_set1_epi32(-65536)));
        v[2 + i] = bits(_mm256_slli_epi32(b, 16));
      }
    } else {
      v[0] = odd_ones(p), v[1] = odd_ones(p + 64);
      v[2] = even_ones(p), v[3] = even_ones(p + 64);
    }
  }

  template <ced_format f, int n>
  static void expand(const uint8_t *p, const uint8_t *scales, float *out) {
    V v[4];
    Seen seen = nothing_seen();
    decode<f, 1>(p, scales, seen, v);
    if (f == CED_FP4) shuffle(v), shuffle(v + 2);
    if constexpr (f == CED_FP8) {
      if (__builtin_expect(*scales > 246 || nan_seen(seen), 0)) return expand_elements<f>(p, *scales, out);
      const V s = of(f16_factor(*scales));
      for (V &e : v) e = mul(e, s);
    }
    for (int i = 0; i < 4; i++) store(out + 8 * i, v[i]);
  }

  // The tree: halves of 16 lanes, then eight sums at a time.
  static void reduce(float (*lanes)[16], float *sums) {
    for (int part = 0; part < 16; part += 8) {
      V v[8];
      for (int i = 0; i < 8; i++) v[i] = _mm256_add_ps(load(lanes[part + i]), load(lanes[part + i] + 8));
      for (int i = 0; i < 4; i++)  // sums i and i + 4 in the halves
        v[i] = _mm256_add_ps(_mm256_permute2f128_ps(v[i], v[i + 4], 0x20),
                             _mm256_permute2f128_ps(v[i], v[i + 4], 0x31));
      for (int i = 0; i < 2; i++)
        v[i] = _mm256_add_ps(_mm256_shuffle_ps(v[2 * i], v[2 * i + 1], 0x44),
                             _mm256_shuffle_ps(v[2 * i], v[2 * i + 1], 0xEE));
      const V all = _mm256_add_ps(_mm256_shuffle_ps(v[0], v[1], 0x88), _mm256_shuffle_ps(v[0], v[1], 0xDD));
      store(sums + part, _mm256_blendv_ps(all, bits(_mm256_set1_epi32(0x7FC00000)),
                                          _mm256_cmp_ps(all, all, _CMP_UNORD_Q)));
    }
  }
};

}  // namespace

void gemm_tile_avx2(ced_format x_format, ced_format w_format, uint32_t k, const GemmRow *w, int count,
                    const GemmRow *x, int rows, GemmSums sums) {
  any_tile<Avx2>(x_format, w_format, k, w, count, x, rows, sums);
}

}  // namespace ced
#pragma GCC pop_options
#endif
