#include <cmath>

#include "kernel/rope/rope.h"
#include "num/bf16.h"

namespace ced {

void rope_ref(ced_stream *, const ced_rope_args &a) {
  const int64_t pairs = a.rope_dim / 2;
  const auto *freqs = at<const float>(a.freqs);
  for (int64_t r = 0; r < row_count(a.rows); r++) {
    const auto position = static_cast<float>(at<const int32_t>(at<const ced_rows>(a.rows)->pos)[r]);
    for (int64_t i = 0; i < pairs; i++) {
      const double angle = position * freqs[i];
      const auto c = static_cast<float>(std::cos(angle));
      const auto s = static_cast<float>(a.inverse ? -std::sin(angle) : std::sin(angle));
      for (int64_t h = 0; h < a.heads; h++) {
        uint16_t *x = at<uint16_t>(a.x) + (r * a.heads + h + 1) * a.dim - a.rope_dim + 2 * i;
        const float even = bf16_to_f32(x[0]), odd = bf16_to_f32(x[1]);
        x[0] = f32_to_bf16(even * c - odd * s);
        x[1] = f32_to_bf16(even * s + odd * c);
      }
    }
  }
}

}  // namespace ced
