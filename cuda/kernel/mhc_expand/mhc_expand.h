// mhc_expand: h[k] = bf16(post[k] y + sum_j comb[j][k] h[j]) in place (spec 4.2); comb's first index is the input.
//   y [rows, dim] BF16, post [rows, n], comb [rows, n, n] f32, h [rows, n, dim] BF16
#pragma once
#include "internal.h"

namespace ced {

void mhc_expand_ref(ced_stream *s, const ced_mhc_expand_args &a);
// Sums over the streams in f32, in ascending order.
void mhc_expand_cpu(ced_stream *s, const ced_mhc_expand_args &a);
int mhc_expand_cuda(ced_stream *s, const ced_mhc_expand_args &a, ced_err *err);

}  // namespace ced
