// tile_avx512.h: primitives of tile_body.h for AVX-512. Included inside its target options.
#pragma once

struct Avx512 {
  typedef __m512 V;
  static constexpr int kWidth = 16, kWeights = 4, kRows = 6;
  static constexpr float kUnit = 0x1p-8f;

  static V zero() { return _mm512_setzero_ps(); }
  static V of(float x) { return _mm512_set1_ps(x); }
  static V load(const float *p) { return _mm512_loadu_ps(p); }
  // GCC would load it again for every use, and a load takes as long as two multiplications.
  static V load_once(const float *p) {
    V v = load(p);
    __asm__("" : "+v"(v));
    return v;
  }
  static void store(float *p, V v) { _mm512_storeu_ps(p, v); }
  static V mul(V a, V b) { return _mm512_mul_ps(a, b); }
  static V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  static V mul_add(V a, V b, V c) { return _mm512_add_ps(c, _mm512_mul_ps(a, b)); }
  static bool equal(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ) == 0; }
  static void prefetch(const uint8_t *p) { _mm_prefetch(reinterpret_cast<const char *>(p), _MM_HINT_T0); }
  static void prefetch_far(const uint8_t *p) { _mm_prefetch(reinterpret_cast<const char *>(p), _MM_HINT_T1); }

  // FP4: lane l holds byte 4 * (l % 4) + l / 4 of a block, so that a shift per lane brings its nibble down.
  static V shuffled(V v) {
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), v);
  }
  static void shuffle(V *v) { *v = shuffled(*v); }
  static void shuffle(float *p) { store(p, shuffled(load(p))); }

  // Maxima of the bytes: 0xFF is the largest unsigned one, 0x7F the largest signed one.
  struct Seen {
    __m512i u, s;
  };
  static Seen nothing_seen() { return {_mm512_setzero_si512(), _mm512_setzero_si512()}; }
  static bool nan_seen(const Seen &seen) {
    return (_mm512_cmpeq_epi8_mask(seen.u, _mm512_set1_epi8(-1)) |
            _mm512_cmpeq_epi8_mask(seen.s, _mm512_set1_epi8(0x7F))) != 0;
  }

  template <ced_format f>
  static constexpr int direct(int rows) {
    return rows <= 2 || (rows <= 4 && f != CED_FP8) ? 4 : rows <= 8 ? 2 : 0;
  }
  template <ced_format f>
  static constexpr int blocks() {
    return f == CED_FP8 ? 2 : 1;
  }

  // e4m3 in the upper bytes of words to f16 with the same bits, which are 2^-8 of the value.
  static __m512i halves(__m512i words) {
    return _mm512_and_si512(_mm512_srai_epi16(words, 1), _mm512_set1_epi16(static_cast<int16_t>(0xBF80)));
  }
  static __m256i halves(__m256i words) {
    return _mm256_and_si256(_mm256_srai_epi16(words, 1), _mm256_set1_epi16(static_cast<int16_t>(0xBF80)));
  }

  // The upper f16s as f32, by way of memory: storing half a register and converting from there saves a shuffle.
  static V upper(__m512i words) {
    __m256i half = _mm512_extracti64x4_epi64(words, 1);
    V v;
    __asm__("vcvtph2ps %1, %0" : "=v"(v) : "m"(half));
    return v;
  }

  template <ced_format f, int n>
  static void decode(const uint8_t *p, const uint8_t *scales, Seen &seen, V *v) {
    if constexpr (f == CED_FP4) {
      const __m512i b = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
      const __m512i even = _mm512_setr_epi32(0, 0, 0, 0, 8, 8, 8, 8, 16, 16, 16, 16, 24, 24, 24, 24);
      const __m512i odd = _mm512_setr_epi32(4, 4, 4, 4, 12, 12, 12, 12, 20, 20, 20, 20, 28, 28, 28, 28);
      const V values = _mm512_load_ps(kE2m1.bits[*scales]);
      v[0] = _mm512_permutexvar_ps(_mm512_srlv_epi32(b, odd), values);
      v[1] = _mm512_permutexvar_ps(_mm512_srlv_epi32(b, even), values);
    } else if constexpr (f == CED_FP8 && n == 2) {
      __m512i b = _mm512_loadu_si512(p);
      __asm__("" : "+v"(b));  // loaded once: GCC would load it for every use
      // Even bytes move up by one: bytes move on another port than bits.
      const __m512i odd = halves(b), even = halves(_mm512_bslli_epi128(b, 1));
      seen.u = _mm512_max_epu8(seen.u, b), seen.s = _mm512_max_epi8(seen.s, b);
      v[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(odd));
      v[1] = _mm512_cvtph_ps(_mm512_castsi512_si256(even));
      v[2] = upper(odd), v[3] = upper(even);
    } else if constexpr (f == CED_FP8) {
      const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p));
      const __m512i wide = _mm512_zextsi256_si512(b);
      seen.u = _mm512_max_epu8(seen.u, wide), seen.s = _mm512_max_epi8(seen.s, wide);
      v[0] = _mm512_cvtph_ps(halves(b));
      v[1] = _mm512_cvtph_ps(halves(_mm256_slli_epi16(b, 8)));
    } else if constexpr (f == CED_BF16) {
      __m512i b = _mm512_loadu_si512(p);
      __asm__("" : "+v"(b));
      v[0] = _mm512_castsi512_ps(_mm512_and_si512(b, _mm512_set1_epi32(-65536)));
      v[1] = _mm512_castsi512_ps(_mm512_slli_epi32(b, 16));
    } else {
      const V a = _mm512_loadu_ps(p), b = _mm512_loadu_ps(p + 64);
      const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
      v[0] = _mm512_permutex2var_ps(a, odd, b);
      v[1] = _mm512_permutex2var_ps(a, _mm512_sub_epi32(odd, _mm512_set1_epi32(1)), b);
    }
  }

  template <ced_format f, int n>
  static void expand(const uint8_t *p, const uint8_t *scales, float *out) {
    V v[2 * n];
    if constexpr (f == CED_FP4) {
      const __m512i b = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
      const V values = _mm512_load_ps(kE2m1.bits[*scales]);
      v[0] = _mm512_permutexvar_ps(_mm512_srli_epi32(b, 4), values);
      v[1] = _mm512_permutexvar_ps(b, values);
    } else {
      Seen seen = nothing_seen();
      decode<f, n>(p, nullptr, seen, v);
      if constexpr (f == CED_FP8) {
        bool rare = nan_seen(seen);
        for (int b = 0; b < n; b++) rare = rare | (scales[b] > 246);
        if (__builtin_expect(rare, 0)) {
          for (int b = 0; b < n; b++) expand_elements<f>(p + 32 * b, scales[b], out + 32 * b);
          return;
        }
        for (int i = 0; i < 2 * n; i++) v[i] = mul(v[i], of(f16_factor(scales[i / 2])));
      }
    }
    for (int i = 0; i < 2 * n; i++) store(out + 16 * i, v[i]);
  }

  // Two vectors hold sums in parts of 16/n lanes; the result has parts of half the lanes, first a's, then b's.
  static void reduce(float (*lanes)[16], float *sums) {
    V v[16];
    for (int i = 0; i < 16; i++) v[i] = load(lanes[i]);
    for (int i = 0; i < 8; i++)
      v[i] = _mm512_add_ps(_mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0x44),
                           _mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0xEE));
    for (int i = 0; i < 4; i++)
      v[i] = _mm512_add_ps(_mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0x88),
                           _mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0xDD));
    // Quarters hold sums 4i .. 4i + 3, four lanes of each.
    for (int i = 0; i < 2; i++)
      v[i] = _mm512_add_ps(_mm512_shuffle_ps(v[2 * i], v[2 * i + 1], 0x44),
                           _mm512_shuffle_ps(v[2 * i], v[2 * i + 1], 0xEE));
    const V all = _mm512_add_ps(_mm512_shuffle_ps(v[0], v[1], 0x88), _mm512_shuffle_ps(v[0], v[1], 0xDD));
    // Lane 4q + j holds sum 4j + q.
    const V natural = shuffled(all);
    const V nan = _mm512_castsi512_ps(_mm512_set1_epi32(0x7FC00000));
    _mm512_storeu_ps(sums,
                     _mm512_mask_mov_ps(natural, _mm512_cmp_ps_mask(natural, natural, _CMP_UNORD_Q), nan));
  }
};
