#include "kernel/dense_gemm/dense_gemm.h"
#include "kernel/dense_gemm/linear_ref.h"

namespace ced {

void dense_gemm_ref(ced_stream *, const ced_dense_gemm_args &a) {
  const int64_t n = a.n, k = a.k, outputs = a.groups * n, inputs = a.groups * k;
  const auto w_format = static_cast<ced_format>(a.w_format);
  const bool quantised = a.x_format == CED_FP8;
  const int64_t row_bytes = a.w_format == CED_F32    ? 4 * k
                            : a.w_format == CED_BF16 ? 2 * k
                            : a.w_format == CED_FP8  ? k
                                                     : k / 2;
  for (int64_t o = 0; o < outputs; o++) {
    const int64_t first = o / n * k;  // of the group's part of an activation row
    const uint8_t *w = at<const uint8_t>(a.w) + o * row_bytes;
    const uint8_t *w_scales = at<const uint8_t>(a.w_scales);
    if (w_format == CED_FP8) w_scales += o / 32 * ((k + 31) / 32);
    if (w_format == CED_FP4) w_scales += o * (k / 32);
    for (int64_t r = 0; r < row_count(a.rows); r++) {
      const int64_t x = r * inputs + first;
      const float sum = quantised
                            ? quantised_dot(at<const uint8_t>(a.x) + x,
                                            at<const uint8_t>(a.x_scales) + x / 32, w, w_scales, w_format, k)
                            : plain_dot(at<const uint16_t>(a.x) + x, w, w_scales, w_format, k);
      if (a.y_format == CED_F32) {
        at<float>(a.y)[r * outputs + o] = sum;
      } else {
        at<uint16_t>(a.y)[r * outputs + o] = f32_to_bf16(sum);
      }
    }
  }
}

}  // namespace ced
