// kv_append: global rows of the groups that close in a step, written into their pages (spec 4.6, 4.7, 5).
//   latent [groups, head_dim] BF16 -> RoPE -> main KV row: FP4 codes and E4M3 scales per 16
//   k [groups, index_dim] BF16 -> norm -> RoPE -> index key row: FP4 codes and UE8M0 scales per 32
// Row j of a sequence is its group j; both are rotated to position j * ratio.
#pragma once
#include "internal.h"

namespace ced {

// Canonical. A row costs little beside its projections, so the CPU runs the same body on its threads.
void kv_append_ref(ced_stream *s, const ced_kv_append_args &a);
inline void kv_append_cpu(ced_stream *s, const ced_kv_append_args &a) { kv_append_ref(s, a); }

}  // namespace ced
