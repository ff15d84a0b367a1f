// rotate_row.h: the heads of one row.
#pragma once
#include <cmath>

#include "internal.h"
#include "num/bf16.h"

namespace ced {

constexpr uint32_t kMaxRope = 512;

inline void rotate_row(const ced_rope_args &a, int64_t r) {
  const int64_t pairs = a.rope_dim / 2;
  const auto position = static_cast<float>(at<const int32_t>(at<const ced_rows>(a.rows)->pos)[r]);
  float c[kMaxRope / 2], s[kMaxRope / 2];
  for (int64_t i = 0; i < pairs; i++) {
    const double angle = position * at<const float>(a.freqs)[i];
    c[i] = static_cast<float>(std::cos(angle));
    s[i] = static_cast<float>(a.inverse ? -std::sin(angle) : std::sin(angle));
  }
  for (int64_t h = 0; h < a.heads; h++) {
    uint16_t *x = at<uint16_t>(a.x) + (r * a.heads + h + 1) * a.dim - a.rope_dim;
    for (int64_t i = 0; i < pairs; i++) {
      const float even = bf16_to_f32(x[2 * i]), odd = bf16_to_f32(x[2 * i + 1]);
      x[2 * i] = f32_to_bf16(even * c[i] - odd * s[i]);
      x[2 * i + 1] = f32_to_bf16(even * s[i] + odd * c[i]);
    }
  }
}

}  // namespace ced
