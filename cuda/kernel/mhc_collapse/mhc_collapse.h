// mhc_collapse: x = bf16(sum_j pre[j] h[j]) (spec 4.2).
//   h [rows, streams, dim] BF16, pre [rows, streams] f32 -> x [rows, dim] BF16
#pragma once
#include "internal.h"

namespace ced {

void mhc_collapse_ref(ced_stream *s, const ced_mhc_collapse_args &a);
// Sums over the streams in f32, in ascending order.
void mhc_collapse_cpu(ced_stream *s, const ced_mhc_collapse_args &a);
int mhc_collapse_cuda(ced_stream *s, const ced_mhc_collapse_args &a, ced_err *err);

}  // namespace ced
