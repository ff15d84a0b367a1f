// The blocked product with VDPBF16PS, whose lane i adds elements 2i + 1, then 2i, each product with one rounding: the
// order of tile.h. It flushes subnormals, so operands far outside the usual range are left to tile_avx512.cc, as are
// products with few rows, which wait for memory.
#include "kernel/dense_gemm/tile_isa.h"

#if CED_WIDE
#include <immintrin.h>

#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC 12 on its own header
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC push_options
#pragma GCC target("avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni,avx2,fma,f16c")

namespace ced {
namespace {

#include "kernel/dense_gemm/tile_avx512.h"

constexpr uint32_t kSlice = 1024;  // elements of k that are expanded at a time
constexpr int kWeights = 4, kRows = 6;

// Whether 32 BF16 values are zero or 2^-50 .. 2^51: sums of their products are multiples of 2^-114.
inline bool usual(__m512i v) {
  const __m512i magnitude = _mm512_and_si512(v, _mm512_set1_epi16(0x7FFF));
  const __m512i over = _mm512_sub_epi16(magnitude, _mm512_set1_epi16(77 << 7));
  return _mm512_mask_cmpgt_epu16_mask(_mm512_test_epi16_mask(magnitude, magnitude), over,
                                      _mm512_set1_epi16((101 << 7) - 1)) == 0;
}

// 32 elements as BF16, in their own order.
template <ced_format f>
inline __m512i bf16_pairs(const uint8_t *p, const uint8_t *scale) {
  if (f == CED_BF16) return _mm512_loadu_si512(p);
  alignas(64) float wide[32];
  Avx512::expand<f, 1>(p, scale, wide);
  const __m512i odd = _mm512_load_si512(wide), even = _mm512_load_si512(wide + 16);
  // A set of bits from each: values below 2^-126 may lose some, but are not usual.
  return _mm512_or_si512(_mm512_and_si512(odd, _mm512_set1_epi32(-65536)), _mm512_srli_epi32(even, 16));
}

// Elements [k0, k0 + depth) of a row, padded with zeros to a multiple of 32; false if one is not usual.
template <ced_format f>
inline bool expand_pairs(const GemmRow &row, uint32_t k, uint32_t k0, uint32_t depth, uint16_t *out) {
  bool all = true;
  for (uint32_t i = 0; i < depth; i += 32) {
    const uint8_t *p = row.x + static_cast<size_t>(k0 + i) / 32 * bytes32(f);
    uint8_t room[64] = {};
    if (k - k0 - i < 32) {
      memcpy(room, p, (k - k0 - i) * bytes32(f) / 32);
      p = room;
    }
    const __m512i v = bf16_pairs<f>(p, has_scales(f) ? row.scales + (k0 + i) / 32 : nullptr);
    all = all & usual(v);
    _mm512_storeu_si512(out + i, v);
  }
  return all;
}

template <int R>
inline void register_tiles(int rows, int count, const uint16_t *w, const uint16_t *x, uint32_t depth,
                           bool first, float *acc) {
  if constexpr (R > 1) {
    if (rows < R) return register_tiles<R - 1>(rows, count, w, x, depth, first, acc);
  }
  for (int i0 = 0; i0 < count; i0 += kWeights, w += kWeights * kSlice, acc += kWeights * 16) {
    __m512 sum[kWeights][R];
    for (int i = 0; i < kWeights; i++)
      for (int r = 0; r < R; r++)
        sum[i][r] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(acc + (r * kTileWeights + i) * 16);
    for (uint32_t k = 0; k < depth; k += 32) {
      __m512bh v[kWeights];
      for (int i = 0; i < kWeights; i++) v[i] = (__m512bh)_mm512_loadu_si512(w + i * kSlice + k);
      for (int r = 0; r < R; r++) {
        const __m512bh u = (__m512bh)_mm512_loadu_si512(x + r * kSlice + k);
        for (int i = 0; i < kWeights; i++) sum[i][r] = _mm512_dpbf16_ps(sum[i][r], v[i], u);
      }
    }
    for (int i = 0; i < kWeights; i++)
      for (int r = 0; r < R; r++) _mm512_storeu_ps(acc + (r * kTileWeights + i) * 16, sum[i][r]);
  }
}

// Whether all operands were usual.
template <ced_format xf, ced_format wf>
bool blocked(uint32_t k, const GemmRow *w, int count, const GemmRow *x, int rows, GemmSums sums) {
  constexpr int kFew = 2 * kWeights;
  alignas(64) uint16_t few[kFew * kSlice], all[kTileRows * kSlice];
  alignas(64) float acc[kTileRows][kTileWeights][16];
  for (uint32_t k0 = 0; k0 < k; k0 += kSlice) {
    const uint32_t left = (k - k0 + 31) / 32 * 32, depth = left < kSlice ? left : kSlice;
    for (int r = 0; r < rows; r++)
      if (!expand_pairs<xf>(x[r], k, k0, depth, all + r * kSlice)) return false;
    for (int i = 0; i < count; i += kFew) {
      int n = 0;
      for (; n < kFew && i + n < count; n++)
        if (!expand_pairs<wf>(w[i + n], k, k0, depth, few + n * kSlice)) return false;
      for (; n % kWeights != 0; n++) memset(few + n * kSlice, 0, depth * 2);
      for (int r = 0; r < rows; r += kRows)
        register_tiles<kRows>(rows - r < kRows ? rows - r : kRows, n, few, all + r * kSlice, depth, k0 == 0,
                              acc[r][i]);
    }
  }
  for (int r = 0; r < rows; r++)
    for (int i = 0; i < count; i += 16) Avx512::reduce(&acc[r][i], &sums[r][i]);
  return true;
}

}  // namespace

void gemm_tile_avx512bf16(ced_format x_format, ced_format w_format, uint32_t k, const GemmRow *w, int count,
                          const GemmRow *x, int rows, GemmSums sums) {
  if (rows > 8 && w_format != CED_F32) {
    const auto run = x_format == CED_FP8
                         ? (w_format == CED_FP8 ? blocked<CED_FP8, CED_FP8> : blocked<CED_FP8, CED_FP4>)
                         : (w_format == CED_BF16 ? blocked<CED_BF16, CED_BF16> : blocked<CED_BF16, CED_FP8>);
    if (run(k, w, count, x, rows, sums)) return;
  }
  gemm_tile_avx512(x_format, w_format, k, w, count, x, rows, sums);
}

}  // namespace ced
#pragma GCC pop_options
#endif
