#include "kernel/norm_quant/norm_quant.h"
#include "kernel/row.h"
#include "num/quant.h"

namespace ced {

void norm_quant_ref(ced_stream *, const ced_norm_quant_args &a) {
  const int64_t n = a.n;
  for (int64_t r = 0; r < row_count(a.rows); r++) {
    const uint16_t *x = at<const uint16_t>(a.x) + r * n;
    double squares = 0;
    for (int64_t i = 0; i < n; i++) {
      const float v = bf16_to_f32(x[i]);
      squares += static_cast<double>(v * v);
    }
    const float scale = f32_rsqrt(static_cast<float>(squares / static_cast<double>(n)) + a.eps);
    for (int64_t begin = 0; begin < n; begin += 32) {
      const int64_t length = n - begin < 32 ? n - begin : 32;
      float y[32];
      for (int64_t i = 0; i < length; i++) {
        const float v = bf16_to_f32(x[begin + i]);
        const auto k = static_cast<size_t>(begin + i);
        y[i] = a.weight != 0 ? bf16_round(weight_at(a.weight, a.weight_format, k) * (v * scale)) : v;
      }
      if (a.y != 0)
        for (int64_t i = 0; i < length; i++) at<uint16_t>(a.y)[r * n + begin + i] = f32_to_bf16(y[i]);
      if (a.codes != 0)
        act_quant32(y, at<uint8_t>(a.codes) + r * n + begin, at<uint8_t>(a.scales) + (r * n + begin) / 32);
    }
  }
}

}  // namespace ced
