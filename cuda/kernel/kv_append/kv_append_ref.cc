#include "kernel/kv_append/kv_append.h"

#include "kernel/kv_rows.h"
#include "num/quant.h"

namespace ced {
namespace {

void pack(const uint8_t *codes, int n, uint8_t *out) {
  for (int i = 0; i < n; i += 2) out[i / 2] = pack_e2m1(codes[i], codes[i + 1]);
}

}  // namespace

void kv_append_ref(ced_stream *s, const ced_kv_append_args &a) {
  const auto &rows = *at<const ced_rows>(a.rows);
  const auto &groups = *at<const ced_groups>(a.groups);
  const int head_dim = static_cast<int>(a.kv.head_dim), index_dim = static_cast<int>(a.kv.index_dim);
  const int rope_dim = static_cast<int>(a.rope_dim), ratio = static_cast<int>(a.kv.ratio);
  const auto *freqs = at<const float>(a.freqs);
  parallel_for(s, groups.count, 1, [&](int64_t begin, int64_t end, int) {
    float x[kMaxRow];
    uint8_t codes[32];
    for (int64_t g = begin; g < end; g++) {
      const int32_t r = at<const int32_t>(groups.row)[g];
      const int32_t j = visible_groups(a.kv, at<const int32_t>(rows.pos)[r]) - 1;
      const KvRow row = kv_row(a.kv, at<const int32_t>(rows.slot)[r], j);

      load_row(at<const uint16_t>(a.latent) + g * head_dim, head_dim, x);
      rotate(x, head_dim, rope_dim, freqs, j * ratio);
      for (int b = 0; b < head_dim / 16; b++) {
        fp4_quant_e4m3(x + 16 * b, codes, row.main_scales + b);
        pack(codes, 16, row.main_codes + 8 * b);
      }

      load_row(at<const uint16_t>(a.k) + g * index_dim, index_dim, x);
      rms_norm(x, index_dim, a.k_weight, a.weight_format, a.eps);
      rotate(x, index_dim, rope_dim, freqs, j * ratio);
      for (int b = 0; b < index_dim / 32; b++) {
        fp4_quant_e8m0(x + 32 * b, codes, row.index_scales + b);
        pack(codes, 32, row.index_codes + 16 * b);
      }
    }
  });
}

}  // namespace ced
