// kv_append: global rows of the groups that close in a step, written into their pages (spec 4.6, 4.7, 5).
//   latent [groups, head_dim] BF16 -> RoPE -> main KV row: FP4 codes and E4M3 scales per 16
//   k [groups, index_dim] BF16 -> norm -> RoPE -> index key row: FP4 codes and UE8M0 scales per 32
// Row j of a sequence is its group j; both are rotated to position j * ratio. A group whose row the sequence's page table
// has no place for is refused.
#pragma once
#include "kernel/kv_rows.h"
#include "kernel/lanes.h"
#include "num/quant.h"

namespace ced {

// Canonical; the CPU runs the same body on its threads, compiled for wide vectors.
void kv_append_ref(ced_stream *s, const ced_kv_append_args &a);
void kv_append_cpu(ced_stream *s, const ced_kv_append_args &a);

CED_INLINE void pack_codes(const uint8_t *codes, int n, uint8_t *out) {
  for (int i = 0; i < n / 2; i++) out[i] = pack_e2m1(codes[2 * i], codes[2 * i + 1]);
}

// Appends group g.
struct AppendGroup {
  template <int W>
  static CED_INLINE void run(const ced_kv_append_args *args, int64_t g) {
    const ced_kv_append_args &a = *args;
    const auto &rows = *at<const ced_rows>(a.rows);
    const int head_dim = static_cast<int>(a.kv.head_dim), index_dim = static_cast<int>(a.kv.index_dim);
    const int pairs = static_cast<int>(a.rope_dim) / 2, ratio = static_cast<int>(a.kv.ratio);
    const int32_t r = at<const int32_t>(at<const ced_groups>(a.groups)->row)[g];
    const int32_t j = visible_groups(a.kv, at<const int32_t>(rows.pos)[r]) - 1;
    const KvRow row = kv_row(a.kv, at<const int32_t>(rows.slot)[r], j);
    float x[kMaxRow], cosine[kMaxRow / 2], sine[kMaxRow / 2];
    rope_angles(at<const float>(a.freqs), pairs, j * ratio, cosine, sine);
    uint8_t codes[32];

    load_row(at<const uint16_t>(a.latent) + g * head_dim, head_dim, x);
    rotate_pairs(x + head_dim - 2 * pairs, pairs, cosine, sine);
    for (int b = 0; b < head_dim / 16; b++) {
      fp4_quant_e4m3(x + 16 * b, codes, row.main_scales + b);
      pack_codes(codes, 16, row.main_codes + 8 * b);
    }

    load_row(at<const uint16_t>(a.k) + g * index_dim, index_dim, x);
    rms_norm(x, index_dim, a.k_weight, a.weight_format, a.eps);
    rotate_pairs(x + index_dim - 2 * pairs, pairs, cosine, sine);
    for (int b = 0; b < index_dim / 32; b++) {
      fp4_quant_e8m0(x + 32 * b, codes, row.index_scales + b);
      pack_codes(codes, 32, row.index_codes + 16 * b);
    }
  }
};
int kv_append_cuda(ced_stream *s, const ced_kv_append_args &a, ced_err *err);

}  // namespace ced
