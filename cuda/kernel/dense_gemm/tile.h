// tile.h: the CPU's matrix product, for the kernels that multiply weights with activations.
//
// Order of additions ("dot order"), the same for every instruction set, row count and blocking: k goes in blocks of
// 32, ascending; lane i of 16 takes element 2i + 1 of a block, then element 2i; a fixed tree with distances 8, 4, 2, 1
// adds the lanes. That is what VDPBF16PS does. An element is its code times its scale, as an f32; k is padded with
// zeros. Products of BF16, FP8 and FP4 values are exact and added with one rounding (a fused multiply-add where there
// is one), products with F32 weights are rounded, then added. Subnormals count: nothing is flushed. NaN sums are the
// NaN 0x7FC00000.
#pragma once
#include "device/isa.h"
#include "internal.h"

namespace ced {

// One row of weights or activations, at any byte: elements of its format and, for FP8 and FP4, a scale per 32.
struct GemmRow {
  const uint8_t *x, *scales;
};

constexpr int kTileWeights = 128;  // weight rows of a tile
constexpr int kTileRows = 96;      // activation rows of a tile
typedef float GemmSums[kTileRows][kTileWeights];

// sums[r][i] = weight row w[i] times activation row x[r], each of k elements, for i < count and r < rows; the rest of
// sums is undefined. k is a multiple of 32 when the activations are FP8. Consecutive FP8 weight rows that share their
// scales are best passed with equal pointers. Uses about 1 MB of stack.
void gemm_tile(Isa isa, ced_format x_format, ced_format w_format, uint32_t k, const GemmRow *w, int count,
               const GemmRow *x, int rows, GemmSums sums);

// Rows of a matrix [*, k] as stored (spec 2.3) from row n on, for gemm_tile.
void weight_rows(ced_format format, const uint8_t *w, const uint8_t *scales, uint32_t k, int64_t n, int count,
                 GemmRow *rows);

// Activation rows of a tile: equal parts of all of them, in whole register tiles.
int64_t tile_rows(int64_t rows);

constexpr int64_t kProductsPerNs = 24;  // about what a core does, to tell how long a piece takes

}  // namespace ced
