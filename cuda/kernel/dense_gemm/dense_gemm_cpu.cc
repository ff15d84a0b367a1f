#include "kernel/dense_gemm/dense_gemm.h"
#include "kernel/dense_gemm/tile.h"
#include "num/bf16.h"

namespace ced {

void dense_gemm_cpu(ced_stream *s, const ced_dense_gemm_args &a) {
  const auto x_format = static_cast<ced_format>(a.x_format), w_format = static_cast<ced_format>(a.w_format);
  const int64_t n = a.n, outputs = a.groups * n, inputs = static_cast<int64_t>(a.groups) * a.k;
  const GemmWeight weight{at<const uint8_t>(a.w), at<const uint8_t>(a.w_scales), a.k};
  const int64_t pieces = (n + kTileWeights - 1) / kTileWeights;  // of a group
  parallel_for(s, pieces * a.groups, 1, [&](int64_t piece, int64_t, int) {
    const int64_t group = piece / pieces, i0 = piece % pieces * kTileWeights, left = n - i0;
    const int64_t first = group * n + i0;
    const auto row = [&](int64_t r) {
      const int64_t x = r * inputs + group * a.k;
      if (x_format == CED_BF16) return GemmRow{at<const uint8_t>(a.x) + 2 * x, nullptr};
      return GemmRow{at<const uint8_t>(a.x) + x, at<const uint8_t>(a.x_scales) + x / 32};
    };
    gemm_tiles(x_format, w_format, weight, first, static_cast<int>(left < kTileWeights ? left : kTileWeights),
               row_count(a.rows), row, [&](int i, int64_t r, float sum) {
                 const int64_t o = r * outputs + first + i;
                 if (a.y_format == CED_F32) {
                   at<float>(a.y)[o] = sum;
                 } else {
                   at<uint16_t>(a.y)[o] = f32_to_bf16(sum);
                 }
               });
  });
}

}  // namespace ced
