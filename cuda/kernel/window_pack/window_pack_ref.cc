#include "kernel/row.h"
#include "kernel/window_pack/window_pack.h"
#include "num/quant.h"

namespace ced {

void window_pack_ref(ced_stream *, const ced_window_pack_args &a) {
  const int dim = static_cast<int>(a.dim);
  const auto *pos = at<const int32_t>(at<const ced_rows>(a.rows)->pos);
  float x[kMaxRow];
  for (int64_t r = 0; r < row_count(a.rows); r++) {
    load_row(at<const uint16_t>(a.x) + r * dim, dim, x);
    rms_norm(x, dim, a.weight, a.weight_format, a.eps);
    rotate(x, dim, static_cast<int>(a.rope_dim), at<const float>(a.freqs), pos[r]);
    uint8_t *codes = at<uint8_t>(a.packed) + r * (dim + dim / 32), *scales = codes + dim;
    for (int b = 0; b < dim / 32; b++) act_quant32(x + 32 * b, codes + 32 * b, scales + b);
  }
}

}  // namespace ced
