#include "kernel/engram_gate/engram_gate.h"

namespace ced {

void engram_gate_ref(ced_stream *, const ced_engram_gate_args &a) {
  const int64_t n = a.streams, dim = a.dim;
  for (int64_t r = 0; r < row_count(a.rows); r++) {
    const uint16_t *keys = at<const uint16_t>(a.kv) + r * (n + 1) * dim, *value = keys + n * dim;
    for (int64_t j = 0; j < n; j++) {
      uint16_t *h = at<uint16_t>(a.h) + (r * n + j) * dim;
      double dot = 0, h_squares = 0, key_squares = 0;
      for (int64_t d = 0; d < dim; d++) {
        const auto i = static_cast<size_t>(j * dim + d);
        const float x = bf16_to_f32(h[d]), key = bf16_to_f32(keys[i]);
        const float w = weight_at(a.q_weight, a.weight_format, i) * weight_at(a.k_weight, a.weight_format, i);
        dot += static_cast<double>(x * w * key);
        h_squares += static_cast<double>(x * x);
        key_squares += static_cast<double>(key * key);
      }
      const auto mean = [&](double sum) { return static_cast<float>(sum / static_cast<double>(dim)); };
      const float gate = engram_image_row(a, r)
                             ? 0.0f
                             : engram_gate_of(a, static_cast<float>(dot), mean(h_squares), mean(key_squares));
      for (int64_t d = 0; d < dim; d++) h[d] = f32_to_bf16(bf16_to_f32(h[d]) + gate * bf16_to_f32(value[d]));
    }
  }
}

}  // namespace ced
