// norm_quant_row.h: norm_quant of a row on the CPU, for kernels that have the row at hand.
#pragma once
#include <cstring>

#include "kernel/norm_quant/norm_quant.h"
#include "kernel/row_lanes.h"

namespace ced {

struct NormQuantRow {
  template <int W>
  static CED_INLINE void run(const ced_norm_quant_args *a, int64_t r) {
    const int64_t n = a->n;
    const uint16_t *x = at<const uint16_t>(a->x) + r * n;
    uint16_t *y = a->y != 0 ? at<uint16_t>(a->y) + r * n : nullptr;
    uint8_t *codes = at<uint8_t>(a->codes) + r * n, *scales = at<uint8_t>(a->scales) + r * n / 32;
    if (a->weight == 0) {
      if (y != nullptr && y != x) memcpy(y, x, static_cast<size_t>(2 * n));
      if (a->codes != 0) quantise_row<W>(x, n, codes, scales);
      return;
    }
    const bool bf16 = a->weight_format == CED_BF16;
    const char *weight = at<const char>(a->weight);
    const float scale = rms_scale<W>(x, n, a->eps);
    constexpr int64_t kPart = 1024;  // of a row whose normalised values nobody wants
    for (int64_t k = 0; k < n; k += kPart) {
      const int64_t length = n - k < kPart ? n - k : kPart;
      uint16_t unwanted[kPart], *part = y != nullptr ? y + k : unwanted;
      scale_row<W>(x + k, length, weight + (bf16 ? 2 : 4) * k, bf16, scale, part);
      if (a->codes != 0) quantise_row<W>(part, length, codes + k, scales + k / 32);
    }
  }
};

}  // namespace ced
