// tile.h: the CPU's matrix product, for the kernels that multiply weights with activations.
#pragma once
#include "device/isa.h"
#include "internal.h"

namespace ced {

// A weight matrix [n, k] as stored (spec 2.3), at any byte.
struct GemmWeight {
  const uint8_t *w, *scales;  // scales of FP8 and FP4 only
  uint32_t k;
};

// One row of activations: BF16, or e4m3 codes with their scales.
struct GemmRow {
  const uint8_t *x, *scales;
};

constexpr int kTileWeights = 16;  // weight rows of a tile
constexpr int kTileRows = 8;      // activation rows of a tile
typedef float GemmSums[kTileWeights][kTileRows];

// sums[i][r] = weight row n + i times activation row r, for i < count and r < rows. k is a multiple of 32 when the
// activations are FP8. width: simd_width(), or a narrower one that gives the same bits.
void gemm_tile(int width, ced_format x_format, ced_format w_format, const GemmWeight &weight, int64_t n,
               int count, const GemmRow *x, int rows, GemmSums sums);

// The same for any number of activation rows: row(r) is a GemmRow, y(i, r, sum) takes the results.
template <class Row, class Y>
void gemm_tiles(ced_format x_format, ced_format w_format, const GemmWeight &weight, int64_t n, int count,
                int64_t rows, const Row &row, const Y &y) {
  const int width = simd_width();
  for (int64_t first = 0; first < rows; first += kTileRows) {
    const int some = static_cast<int>(rows - first < kTileRows ? rows - first : kTileRows);
    GemmRow x[kTileRows];
    GemmSums sums;
    for (int r = 0; r < some; r++) x[r] = row(first + r);
    gemm_tile(width, x_format, w_format, weight, n, count, x, some, sums);
    for (int i = 0; i < count; i++)
      for (int r = 0; r < some; r++) y(i, first + r, sums[i][r]);
  }
}

}  // namespace ced
