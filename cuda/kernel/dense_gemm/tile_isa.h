// tile_isa.h: the bodies of gemm_tile, one per instruction set, and what they share.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "kernel/dense_gemm/code_tables.h"
#include "kernel/dense_gemm/decode.h"
#include "kernel/dense_gemm/tile.h"
#include "num/fp4.h"

namespace ced {

typedef void GemmTile(ced_format x_format, ced_format w_format, uint32_t k, const GemmRow *w, int count,
                      const GemmRow *x, int rows, GemmSums sums);
GemmTile gemm_tile_plain;
#if CED_WIDE
GemmTile gemm_tile_avx2, gemm_tile_avx512, gemm_tile_avx512bf16;
#endif
#if CED_NEON
GemmTile gemm_tile_neon;
#endif

constexpr bool has_scales(ced_format f) { return f == CED_FP8 || f == CED_FP4; }

// Bytes from a weight in use to one that is fetched.
constexpr size_t kAhead = 1024;

// One element of a tensor times the scale byte, exactly as the vector forms give it.
template <ced_format f>
inline float element(const uint8_t *p, int i, uint8_t scale) {
  if constexpr (f == CED_F32) {
    float v;
    memcpy(&v, p + 4 * i, 4);
    return v;
  } else if constexpr (f == CED_BF16) {
    uint16_t h;
    memcpy(&h, p + 2 * i, 2);
    return bf16_to_f32(h);
  } else if constexpr (f == CED_FP8) {
    return f32_of(kE4m3.bits[p[i]]) * e8m0_to_f32(scale);
  } else {
    return f32_of(kE2m1.bits[scale][(p[i / 2] >> (4 * (i & 1))) & 15]);
  }
}

// 2^8 times the value of a scale byte up to 246: what turns an f16 with the bits of an e4m3 into the weight.
inline float f16_factor(uint8_t scale) { return f32_of((scale + 8u) << 23); }

// 32 elements in dot order.
template <ced_format f>
inline void expand_elements(const uint8_t *p, uint8_t scale, float *out) {
  for (int i = 0; i < 16; i++) {
    out[i] = element<f>(p, 2 * i + 1, scale);
    out[16 + i] = element<f>(p, 2 * i, scale);
  }
}

}  // namespace ced
