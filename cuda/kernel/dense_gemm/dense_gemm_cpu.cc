#include "kernel/dense_gemm/dense_gemm.h"
#include "kernel/dense_gemm/tile.h"

namespace ced {
namespace {

// Outputs [o, o + count) of one group for all rows.
template <int W, ced_format xf, ced_format wf>
CED_INLINE void outputs_lanes(const ced_dense_gemm_args &a, int64_t o, int count) {
  const int64_t outputs = static_cast<int64_t>(a.groups) * a.n, inputs = static_cast<int64_t>(a.groups) * a.k;
  const int64_t first = o / a.n * a.k;
  const GemmWeight weight{at<const uint8_t>(a.w), at<const uint8_t>(a.w_scales), a.k};
  tiles<W, xf, wf>(
      weight, o, count, row_count(a.rows),
      [&](int64_t r) {
        const int64_t x = r * inputs + first;
        if constexpr (xf == CED_BF16) return GemmRow{at<const uint8_t>(a.x) + 2 * x, nullptr};
        return GemmRow{at<const uint8_t>(a.x) + x, at<const uint8_t>(a.x_scales) + x / 32};
      },
      [&](int i, int64_t r, float sum) {
        if (a.y_format == CED_F32) {
          at<float>(a.y)[r * outputs + o + i] = sum;
        } else {
          at<uint16_t>(a.y)[r * outputs + o + i] = f32_to_bf16(sum);
        }
      });
}

#define CED_OUTPUTS(name, xf, wf)                                                    \
  template <int W>                                                                   \
  CED_INLINE void name##_lanes(const ced_dense_gemm_args &a, int64_t o, int count) { \
    outputs_lanes<W, xf, wf>(a, o, count);                                           \
  }                                                                                  \
  CED_FOR_EACH_WIDTH(name, (const ced_dense_gemm_args &a, int64_t o, int count), (a, o, count))
CED_OUTPUTS(fp8_fp8, CED_FP8, CED_FP8)
CED_OUTPUTS(fp8_fp4, CED_FP8, CED_FP4)
CED_OUTPUTS(bf16_bf16, CED_BF16, CED_BF16)
CED_OUTPUTS(bf16_f32, CED_BF16, CED_F32)
CED_OUTPUTS(bf16_fp8, CED_BF16, CED_FP8)
#undef CED_OUTPUTS

}  // namespace

void dense_gemm_cpu(ced_stream *s, const ced_dense_gemm_args &a) {
  const auto outputs = a.x_format == CED_FP8    ? (a.w_format == CED_FP8 ? fp8_fp8 : fp8_fp4)
                       : a.w_format == CED_BF16 ? bf16_bf16
                       : a.w_format == CED_F32  ? bf16_f32
                                                : bf16_fp8;
  const int64_t pieces = (a.n + kTileWeights - 1) / kTileWeights;  // of a group
  parallel_for(s, pieces * a.groups, 1, [&](int64_t piece, int64_t, int) {
    const int64_t i = piece % pieces * kTileWeights, left = a.n - i;
    outputs(a, piece / pieces * a.n + i, static_cast<int>(left < kTileWeights ? left : kTileWeights));
  });
}

}  // namespace ced
