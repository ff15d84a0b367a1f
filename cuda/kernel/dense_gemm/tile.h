// tile.h: the inner loop of the CPU's matrix products: a few weight rows times a few activation rows.
#pragma once
#include <type_traits>

#include "kernel/dense_gemm/decode.h"

namespace ced {

// A weight matrix [n, k] as stored (spec 2.3).
struct GemmWeight {
  const uint8_t *w, *scales;  // scales of FP8 and FP4 only
  uint32_t k;

  // Scale bytes of row n: one per 32 along k. FP8 shares them between 32 rows.
  template <ced_format f>
  CED_INLINE const uint8_t *scale_row(int64_t n) const {
    if constexpr (f == CED_FP8) return scales + n / 32 * ((k + 31) / 32);
    if constexpr (f == CED_FP4) return scales + n * (k / 32);
    return nullptr;
  }
};

// One row of activations: BF16, or e4m3 codes with their scales.
struct GemmRow {
  const uint8_t *x, *scales;
};

constexpr int kTileRows = 8;      // activation rows of a tile
constexpr int kTileWeights = 16;  // weight rows of a tile
constexpr int kTileDepth = 512;   // elements of k whose activations are decoded at a time

// Bytes of 32 elements of a row that has fewer, the rest zero.
CED_INLINE const uint8_t *padded(const uint8_t *p, uint32_t bytes, uint8_t *room) {
  memset(room, 0, 128);
  memcpy(room, p, bytes);
  return room;
}

// x[r] = elements [k0, k0 + depth) of row r as f32, padded with zeros to a multiple of 32.
template <int W, ced_format f, int R>
CED_INLINE void decode_rows(const GemmRow *rows, uint32_t k, uint32_t k0, uint32_t depth,
                            float (*x)[kTileDepth]) {
  for (int r = 0; r < R; r++) {
    for (uint32_t i = 0; i < depth; i += 32) {
      const uint32_t at = k0 + i, have = k - at < 32 ? k - at : 32;
      const uint8_t *p = rows[r].x + static_cast<size_t>(at) / 32 * bytes32(f);
      uint8_t room[128];
      if (have < 32) p = padded(p, have * (bytes32(f) / 32), room);
      Lanes<W> low, high;
      load32<W, f>(p, f == CED_FP8 ? rows[r].scales[at / 32] : 0, &low, &high);
      low.store(&x[r][i]), high.store(&x[r][i + 16]);
    }
  }
}

// sum[i][r] += weight row n + i times activation row r over [k0, k0 + depth), for N weight rows.
template <int W, ced_format f, int R, int N>
CED_INLINE void multiply(const GemmWeight &weight, int64_t n, uint32_t k0, uint32_t depth,
                         const float (*x)[kTileDepth], float (*sum)[kTileRows][16]) {
  const size_t row_bytes = static_cast<size_t>(weight.k) * bytes32(f) / 32;
  const uint8_t *w[N], *scales[N];
  Lanes<W> lanes[N][R];
  for (int i = 0; i < N; i++) {
    w[i] = weight.w + (n + i) * row_bytes + static_cast<size_t>(k0) / 32 * bytes32(f);
    scales[i] = weight.scale_row<f>(n + i);
    for (int r = 0; r < R; r++) lanes[i][r] = f32_lanes<W>(sum[i][r]);
  }
  const auto step = [&](uint32_t b, const uint8_t *const *p) __attribute__((always_inline)) {
    for (int i = 0; i < N; i++) {
      Lanes<W> low, high;
      load32<W, f>(p[i], f == CED_FP8 || f == CED_FP4 ? scales[i][k0 / 32 + b] : 0, &low, &high);
      for (int r = 0; r < R; r++) {
        lanes[i][r].add_product(low, f32_lanes<W>(&x[r][32 * b]));
        lanes[i][r].add_product(high, f32_lanes<W>(&x[r][32 * b + 16]));
      }
    }
  };
  const uint32_t have = weight.k - k0 < depth ? weight.k - k0 : depth;
  for (uint32_t b = 0; b < have / 32; b++) {
    step(b, w);
    for (int i = 0; i < N; i++) w[i] += bytes32(f);
  }
  if (have % 32 != 0) {
    uint8_t room[N][128];
    for (int i = 0; i < N; i++) w[i] = padded(w[i], have % 32 * (bytes32(f) / 32), room[i]);
    step(have / 32, w);
  }
  for (int i = 0; i < N; i++)
    for (int r = 0; r < R; r++) lanes[i][r].store(sum[i][r]);
}

// y(i, r, sum) for weight rows n + i, i < count <= kTileWeights, and R activation rows.
template <int W, ced_format xf, ced_format wf, int R, class Y>
CED_INLINE void tile(const GemmWeight &weight, int64_t n, int count, const GemmRow *rows, const Y &y) {
  constexpr int N = R >= 8 ? 1 : R >= 4 ? 2 : 4;  // enough independent sums to keep the adders busy
  alignas(64) float x[R][kTileDepth];
  alignas(64) float sum[kTileWeights][kTileRows][16];
  for (int i = 0; i < count; i++) memset(sum[i], 0, R * sizeof sum[i][0]);
  for (uint32_t k0 = 0; k0 < weight.k; k0 += kTileDepth) {
    const uint32_t left = weight.k - k0, depth = left < kTileDepth ? left : kTileDepth;
    decode_rows<W, xf, R>(rows, weight.k, k0, depth, x);
    int i = 0;
    for (; i + N <= count; i += N) multiply<W, wf, R, N>(weight, n + i, k0, depth, x, &sum[i]);
    for (; i < count; i++) multiply<W, wf, R, 1>(weight, n + i, k0, depth, x, &sum[i]);
  }
  for (int i = 0; i < count; i++)
    for (int r = 0; r < R; r++) y(i, r, f32_lanes<W>(sum[i][r]).sum());
}

// The same for any number of activation rows: row(r) is a GemmRow, y(i, r, sum) takes the results.
template <int W, ced_format xf, ced_format wf, class Row, class Y>
CED_INLINE void tiles(const GemmWeight &weight, int64_t n, int count, int64_t rows, const Row &row,
                      const Y &y) {
  int64_t r = 0;
  const auto some = [&](auto size) __attribute__((always_inline)) {
    constexpr int R = decltype(size)::value;
    for (; r + R <= rows; r += R) {
      GemmRow block[R];
      for (int j = 0; j < R; j++) block[j] = row(r + j);
      tile<W, xf, wf, R>(weight, n, count, block,
                         [&](int i, int j, float sum) __attribute__((always_inline)) { y(i, r + j, sum); });
    }
  };
  some(std::integral_constant<int, 8>{});
  some(std::integral_constant<int, 4>{});
  some(std::integral_constant<int, 2>{});
  some(std::integral_constant<int, 1>{});
}

}  // namespace ced
