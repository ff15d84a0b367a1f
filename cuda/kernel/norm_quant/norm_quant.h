// norm_quant: RMSNorm (spec 3.1), then FP8 quantisation per 32 channels (spec 3.2); either may be left out.
//   x [rows, n] BF16, weight [n] BF16|F32 or none -> y [rows, n] BF16, codes [rows, n] e4m3, scales [rows, n/32]
// y is rounded once; codes and scales are those of the rounded y.
#pragma once
#include "internal.h"

namespace ced {

void norm_quant_ref(ced_stream *s, const ced_norm_quant_args &a);
// The mean square in f32, in the lanes of row_lanes.h.
void norm_quant_cpu(ced_stream *s, const ced_norm_quant_args &a);
int norm_quant_cuda(ced_stream *s, const ced_norm_quant_args &a, ced_err *err);

}  // namespace ced
