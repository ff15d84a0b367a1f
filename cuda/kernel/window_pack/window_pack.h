// window_pack: the window KV rows of a step (spec 4.3): kv_norm, RoPE at the row's position, FP8 per 32 channels.
//   x [rows, dim] BF16 (wkv's output) -> packed [rows, dim + dim/32] bytes: e4m3 codes, then UE8M0 scales
#pragma once
#include "internal.h"

namespace ced {

void window_pack_ref(ced_stream *s, const ced_window_pack_args &a);
// The mean square in f32, in the lanes of row_lanes.h.
void window_pack_cpu(ced_stream *s, const ced_window_pack_args &a);
int window_pack_cuda(ced_stream *s, const ced_window_pack_args &a, ced_err *err);

}  // namespace ced
