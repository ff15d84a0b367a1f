// linear.h: canonical linears (spec 3.3, 3.5, 3.6) that turn the generator's inputs into inputs of the kernel under
// test. Written apart from ced_dense_gemm, so that each kernel's golden stands alone.
#pragma once
#include <cstdint>
#include <vector>

#include "num/bf16.h"
#include "num/quant.h"

namespace linear {

// x [rows, k] BF16 times w [n, k] BF16, transposed: f32, one rounding.
inline std::vector<float> bf16(const std::vector<uint16_t> &x, const std::vector<uint16_t> &w, size_t n,
                               size_t k) {
  const size_t rows = x.size() / k;
  std::vector<float> y(rows * n);
  for (size_t r = 0; r < rows; r++)
    for (size_t o = 0; o < n; o++) {
      double sum = 0;
      for (size_t i = 0; i < k; i++)
        sum += static_cast<double>(ced::bf16_to_f32(x[r * k + i])) * ced::bf16_to_f32(w[o * k + i]);
      y[r * n + o] = static_cast<float>(sum);
    }
  return y;
}

inline std::vector<uint16_t> rounded(const std::vector<float> &x) {
  std::vector<uint16_t> y(x.size());
  for (size_t i = 0; i < x.size(); i++) y[i] = ced::f32_to_bf16(x[i]);
  return y;
}

// x [rows, k] BF16, quantised per 32, times w [n, k] e4m3 with scales [n/32, k/32], transposed: BF16.
inline std::vector<uint16_t> fp8(const std::vector<uint16_t> &x, const std::vector<uint8_t> &w,
                                 const std::vector<uint8_t> &scales, size_t n, size_t k) {
  const size_t rows = x.size() / k, blocks = k / 32;
  float value[256];
  for (int c = 0; c < 256; c++) value[c] = ced::e4m3_to_f32(static_cast<uint8_t>(c));
  std::vector<float> q(rows * k), qs(rows * blocks);
  for (size_t b = 0; b < rows * blocks; b++) {
    float v[32];
    uint8_t codes[32], scale;
    for (size_t i = 0; i < 32; i++) v[i] = ced::bf16_to_f32(x[32 * b + i]);
    ced::act_quant32(v, codes, &scale);
    for (size_t i = 0; i < 32; i++) q[32 * b + i] = value[codes[i]];
    qs[b] = ced::e8m0_to_f32(scale);
  }
  std::vector<uint16_t> y(rows * n);
  for (size_t o = 0; o < n; o++)
    for (size_t r = 0; r < rows; r++) {
      float acc = 0;
      for (size_t b = 0; b < blocks; b++) {
        double sum = 0;  // exact
        for (size_t i = 32 * b; i < 32 * b + 32; i++)
          sum += static_cast<double>(q[r * k + i]) * value[w[o * k + i]];
        acc += static_cast<float>(sum) * qs[r * blocks + b] * ced::e8m0_to_f32(scales[o / 32 * blocks + b]);
      }
      y[r * n + o] = ced::f32_to_bf16(acc);
    }
  return y;
}

}  // namespace linear
