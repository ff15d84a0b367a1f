#include <algorithm>

#include "kernel/dense_gemm/dense_gemm.h"
#include "kernel/dense_gemm/tile.h"
#include "kernel/lanes.h"

namespace ced {
namespace {

struct Product {
  const ced_dense_gemm_args &a;
  int64_t rows, tile_rows, outputs, inputs;

  // Outputs [first, first + count) of activation rows [r0, r0 + n).
  void tile(int64_t first, int count, int64_t r0, int n) const {
    const auto x_format = static_cast<ced_format>(a.x_format), w_format = static_cast<ced_format>(a.w_format);
    const int64_t column = first / a.n * a.k;
    GemmRow w[kTileWeights], x[kTileRows];
    weight_rows(w_format, at<const uint8_t>(a.w), at<const uint8_t>(a.w_scales), a.k, first, count, w);
    for (int r = 0; r < n; r++) {
      const int64_t i = (r0 + r) * inputs + column;
      x[r] = x_format == CED_FP8 ? GemmRow{at<const uint8_t>(a.x) + i, at<const uint8_t>(a.x_scales) + i / 32}
                                 : GemmRow{at<const uint8_t>(a.x) + 2 * i, nullptr};
    }
    alignas(64) GemmSums sums;
    gemm_tile(isa(), x_format, w_format, a.k, w, count, x, n, sums);
    for (int r = 0; r < n; r++) {
      const int64_t o = (r0 + r) * outputs + first;
      if (a.y_format == CED_F32) {
        memcpy(at<float>(a.y) + o, sums[r], static_cast<size_t>(count) * sizeof(float));
      } else {
        vectorised<RoundRow>(static_cast<const float *>(sums[r]), count, at<uint16_t>(a.y) + o);
      }
    }
  }
};

}  // namespace

void dense_gemm_cpu(ced_stream *s, const ced_dense_gemm_args &a) {
  const int64_t rows = row_count(a.rows), groups = a.groups;
  if (rows == 0) return;
  const Product p{a, rows, tile_rows(rows), groups * a.n, groups * a.k};
  // Weights vary slowest: those of a tile stay in the caches for the next rows.
  const int64_t row_tiles = (rows + p.tile_rows - 1) / p.tile_rows;
  int64_t some = kTileWeights;  // weights of a piece: fewer where threads would be left without
  while (some > 32 && p.outputs / some * row_tiles < 4 * ced_stream_threads(s)) some /= 2;
  const int64_t per_group = (a.n + some - 1) / some;
  const int64_t ns = some * a.k * std::min(rows, p.tile_rows) / kProductsPerNs;
  parallel_for(s, groups * per_group * row_tiles, grain_of(ns), [&](int64_t piece, int64_t end, int) {
    for (; piece < end; piece++) {
      const int64_t t = piece / row_tiles, r0 = piece % row_tiles * p.tile_rows;
      const int64_t i = t % per_group * some;
      p.tile(t / per_group * a.n + i, static_cast<int>(std::min(some, a.n - i)), r0,
             static_cast<int>(std::min(p.tile_rows, rows - r0)));
    }
  });
}

}  // namespace ced
