#include "kernel/csa2_index/score.h"
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
  typedef __m512i I;
  static constexpr int W = 16, H = 4, V = 2, kDecodeKeys = 16;

  CED_OP F load(const float *p) { return _mm512_loadu_ps(p); }
  CED_OP F broadcast(float x) { return _mm512_set1_ps(x); }
  CED_OP F zero() { return _mm512_setzero_ps(); }
  CED_OP F add(F a, F b) { return _mm512_add_ps(a, b); }
  CED_OP F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  CED_OP F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  CED_OP F to_f32(I a) { return _mm512_cvtepi32_ps(a); }
  CED_OP F positive(F a) { return _mm512_max_ps(a, zero()); }
  CED_OP F round_bf16(F a) {
    const I u = _mm512_castps_si512(a);
    const I odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const I up = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7FFF)), odd);
    return _mm512_castsi512_ps(_mm512_and_si512(up, _mm512_set1_epi32(-0x10000)));
  }
  // score_of() of BF16 values.
  CED_OP void store_scores(Score *out, F a) {
    const I u = _mm512_castps_si512(add(a, zero()));  // no negative zero
    const I flip = _mm512_or_si512(_mm512_srai_epi32(u, 31), _mm512_set1_epi32(INT32_MIN));
    const I mapped = _mm512_srli_epi32(_mm512_xor_si512(u, flip), 16);
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(out), _mm512_cvtepi32_epi16(mapped));
  }

  CED_OP I load_words(const void *p) { return _mm512_load_si512(p); }
  CED_OP I broadcast_word(const int8_t *p) {
    int32_t word;
    memcpy(&word, p, 4);
    return _mm512_set1_epi32(word);
  }

  CED_OP void block(const uint8_t *keys, const int8_t *q, const int32_t *offset, int stride, I (&sum)[H][V]) {
#pragma GCC unroll 8
    for (int i = 0; i < H; i++) sum[i][0] = sum[i][1] = _mm512_set1_epi32(offset[i * stride]);
#pragma GCC unroll 8
    for (int word = 0; word < kBlockWords; word++) {
      const uint8_t *k = keys + word * kTileKeys * 4;
      const I k0 = load_words(k), k1 = load_words(k + 64);
#pragma GCC unroll 8
      for (int i = 0; i < H; i++) {
        const I x = broadcast_word(q + (word * kIndexHeads + i) * 4);
        sum[i][0] = _mm512_dpbusd_epi32(sum[i][0], k0, x);
        sum[i][1] = _mm512_dpbusd_epi32(sum[i][1], k1, x);
      }
    }
  }

  CED_OP __m128i block_codes(const IndexKey &key, int b) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i *>(key.codes + 16 * b));
  }

  // The codes' words of sixteen keys' block: word w of key i in lane i of out[w].
  CED_OP void transpose(const IndexKey *keys, int b, I (&out)[4]) {
    I v[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
      v[i] = _mm512_castsi128_si512(block_codes(keys[i], b));
      v[i] = _mm512_inserti32x4(v[i], block_codes(keys[i + 4], b), 1);
      v[i] = _mm512_inserti32x4(v[i], block_codes(keys[i + 8], b), 2);
      v[i] = _mm512_inserti32x4(v[i], block_codes(keys[i + 12], b), 3);
    }
    const I a = _mm512_unpacklo_epi32(v[0], v[1]), c = _mm512_unpackhi_epi32(v[0], v[1]);
    const I d = _mm512_unpacklo_epi32(v[2], v[3]), e = _mm512_unpackhi_epi32(v[2], v[3]);
    out[0] = _mm512_unpacklo_epi64(a, d), out[1] = _mm512_unpackhi_epi64(a, d);
    out[2] = _mm512_unpacklo_epi64(c, e), out[3] = _mm512_unpackhi_epi64(c, e);
  }

  // Twice the values of the low nibbles of a word's bytes, + kKeyOffset.
  CED_OP I values(I codes) {
    const I table =
        _mm512_broadcast_i32x4(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    return _mm512_shuffle_epi8(table, _mm512_and_si512(codes, _mm512_set1_epi8(15)));
  }

  CED_OP void decode(const IndexKey *keys, int b, uint8_t *out) {
    I words[4];
    transpose(keys, b, words);
#pragma GCC unroll 4
    for (int w = 0; w < 4; w++) {
      _mm512_store_si512(out + (2 * w) * kTileKeys * 4, values(words[w]));
      _mm512_store_si512(out + (2 * w + 1) * kTileKeys * 4, values(_mm512_srli_epi16(words[w], 4)));
    }
  }
};

}  // namespace
}  // namespace ced

#include "kernel/csa2_index/score_body.h"

namespace ced {
namespace {

// Scale bytes of sixteen keys, one a lane, by block.
CED_TARGET void scale_bytes(const IndexKey *keys, int blocks, I *out) {
  for (int b = 0; b < blocks; b += 4) {
    if (blocks == 4 && keys[15].scales == keys[0].scales + 60) {  // neighbours in a page
      const I all = _mm512_loadu_si512(keys[0].scales);
      for (int c = 0; c < 4; c++)
        out[c] =
            _mm512_and_si512(_mm512_srli_epi32(all, static_cast<unsigned>(8 * c)), _mm512_set1_epi32(255));
      return;
    }
    alignas(64) uint32_t four[16] = {};
    for (int i = 0; i < 16; i++) {
      if (blocks - b >= 4) {
        memcpy(&four[i], keys[i].scales + b, 4);
      } else {
        for (int c = 0; c < blocks - b; c++)
          four[i] |= static_cast<uint32_t>(keys[i].scales[b + c]) << (8 * c);
      }
    }
    const I all = M::load_words(four);
    for (int c = 0; c < 4 && b + c < blocks; c++)
      out[b + c] =
          _mm512_and_si512(_mm512_srli_epi32(all, static_cast<unsigned>(8 * c)), _mm512_set1_epi32(255));
  }
}

// Sixteen keys with their scales folded into the bytes; false if the scales span too much.
CED_TARGET bool fold(const IndexKey *keys, int blocks, int first, KeyTile *tile) {
  I scale[kMaxIndexDim / 32];
  scale_bytes(keys, blocks, scale);
  I low = scale[0], high = scale[0];
  for (int b = 1; b < blocks; b++)
    low = _mm512_min_epu32(low, scale[b]), high = _mm512_max_epu32(high, scale[b]);
  const __mmask16 wide = _mm512_cmpgt_epu32_mask(_mm512_sub_epi32(high, low), _mm512_set1_epi32(kMaxFold));
  const __mmask16 out_of_range = _mm512_cmplt_epu32_mask(low, _mm512_set1_epi32(87)) |
                                 _mm512_cmpgt_epu32_mask(high, _mm512_set1_epi32(167));
  if ((wide | out_of_range) != 0) return false;
  _mm512_store_ps(&tile->fold_scale[first], _mm512_castsi512_ps(_mm512_slli_epi32(low, 23)));
  const I bytes = _mm512_set1_epi32(0x01010101);
  for (int b = 0; b < blocks; b++) {
    I words[4];
    M::transpose(keys, b, words);
    const I by = _mm512_sub_epi32(scale[b], low);
    // kFoldOffset - (kKeyOffset << by) in every byte.
    const I rest = _mm512_mullo_epi32(_mm512_sub_epi32(_mm512_set1_epi32(kFoldOffset),
                                                       _mm512_sllv_epi32(_mm512_set1_epi32(kKeyOffset), by)),
                                      bytes);
    for (int w = 0; w < 4; w++) {
      const I even = _mm512_sllv_epi32(M::values(words[w]), by);
      const I odd = _mm512_sllv_epi32(M::values(_mm512_srli_epi16(words[w], 4)), by);
      uint8_t *out = tile->folded[b * kBlockWords + 2 * w][first];
      _mm512_store_si512(out, _mm512_add_epi8(even, rest));
      _mm512_store_si512(out + kTileKeys * 4, _mm512_add_epi8(odd, rest));
    }
  }
  return true;
}

CED_TARGET void decode(const IndexKey *keys, int dim, bool words, bool folded, KeyTile *tile) {
  const int blocks = dim / 32;
  tile->has_words = false;
  tile->has_folded = folded && fold(keys, blocks, 0, tile) && fold(keys + 16, blocks, 16, tile);
  if (words || !tile->has_folded) decode_words(keys, blocks, tile);
}

// Nearest BF16 of x, 0 or a normal number below 2^112: 1.5 * 2^16 times x's power of two has BF16's unit in the last
// place as its own.
CED_OP F round_moderate(F x) {
  const F power =
      _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7F800000)));
  const F magic = M::broadcast(0x1.8p16f);
  return _mm512_fnmadd_ps(power, magic, _mm512_fmadd_ps(power, magic, x));
}

// Heads' dot products are one exact integer: the bits are those of score_words.
CED_TARGET void score_folded(const KeyTile &tile, const IndexQuery &q, int heads, int dim, Score *out) {
  constexpr int kHeads = kIndexHeads;
  F total0 = M::zero(), total1 = M::zero();
  const int8_t *x = q.folded;
  for (int h = 0; h < heads; h += kHeads) {
    I sum[kHeads][2];
#pragma GCC unroll 8
    for (int i = 0; i < kHeads; i++) sum[i][0] = sum[i][1] = _mm512_set1_epi32(q.fold_offset[h + i]);
    const uint8_t *k = tile.folded[0][0];
    for (int word = 0; word < dim / 4; word++, k += kTileKeys * 4, x += kHeads * 4) {
      const I k0 = M::load_words(k), k1 = M::load_words(k + 64);
#pragma GCC unroll 8
      for (int i = 0; i < kHeads; i++) {
        const I v = M::broadcast_word(x + 4 * i);
        sum[i][0] = _mm512_dpbusd_epi32(sum[i][0], k0, v);
        sum[i][1] = _mm512_dpbusd_epi32(sum[i][1], k1, v);
      }
    }
    const I none = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int i = 0; i < kHeads; i++) {
      const F w = M::broadcast(q.fold_w[h + i]);
      const F dot0 = round_moderate(M::to_f32(_mm512_max_epi32(sum[i][0], none)));
      const F dot1 = round_moderate(M::to_f32(_mm512_max_epi32(sum[i][1], none)));
      total0 = M::add(total0, round_moderate(M::mul(dot0, w)));
      total1 = M::add(total1, round_moderate(M::mul(dot1, w)));
    }
  }
  M::store_scores(out, M::round_bf16(M::mul(total0, M::load(tile.fold_scale))));
  M::store_scores(out + W, M::round_bf16(M::mul(total1, M::load(tile.fold_scale + W))));
}

CED_TARGET void score(const KeyTile &tile, const IndexQuery &q, int heads, int dim, Score *out) {
  if (tile.has_folded && q.folds) {
    score_folded(tile, q, heads, dim, out);
  } else {
    score_words(tile, q, heads, dim, out);
  }
}

}  // namespace
}  // namespace ced

const ced::ScoreOps ced::kScoreAvx512 = {ced::decode, ced::score, true};
#endif
