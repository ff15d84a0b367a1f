#include "kernel/dense_gemm/tile.h"

#include "kernel/dense_gemm/tile_isa.h"

namespace ced {

void gemm_tile(Isa isa, ced_format x_format, ced_format w_format, uint32_t k, const GemmRow *w, int count,
               const GemmRow *x, int rows, GemmSums sums) {
  auto *run = gemm_tile_plain;
#if CED_WIDE
  if (isa == Isa::kAvx2) run = gemm_tile_avx2;
  if (isa == Isa::kAvx512) run = gemm_tile_avx512;
  if (isa == Isa::kAvx512Bf16) run = gemm_tile_avx512bf16;
#endif
#if CED_NEON
  if (isa == Isa::kNeon) run = gemm_tile_neon;
#endif
  (void)isa;
  run(x_format, w_format, k, w, count, x, rows, sums);
}

void weight_rows(ced_format format, const uint8_t *w, const uint8_t *scales, uint32_t k, int64_t n, int count,
                 GemmRow *rows) {
  const size_t bytes = static_cast<size_t>(k) * bytes32(format) / 32, groups = (k + 31) / 32;
  for (int i = 0; i < count; i++) {
    const auto row = static_cast<size_t>(n + i);
    rows[i] = {w + row * bytes,
               has_scales(format) ? scales + (format == CED_FP8 ? row / 32 : row) * groups : nullptr};
  }
}

int64_t tile_rows(int64_t rows) {
  constexpr int64_t kWhole = 12;  // register tiles of every instruction set divide it
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  if (tiles <= 1) return rows;
  return ((rows + tiles - 1) / tiles + kWhole - 1) / kWhole * kWhole;
}

}  // namespace ced
