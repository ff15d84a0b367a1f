// dense_gemm: y = x W^T, block-diagonal over groups (spec 3.3 - 3.6).
//   x [rows, groups*k] BF16 or FP8, w [groups*n, k] BF16|F32|FP8|FP4 -> y [rows, groups*n] BF16 or F32
//   group g: y[:, g*n + i] = x[:, g*k .. (g+1)*k] . w[g*n + i]
#pragma once
#include "internal.h"

namespace ced {

// Canonical: quantised linears round each 32-block to f32 and add blocks in f32; the others sum in f64.
void dense_gemm_ref(ced_stream *s, const ced_dense_gemm_args &a);
// Scales multiplied into the elements, then f32 sums in the order of tile.h over all of k.
void dense_gemm_cpu(ced_stream *s, const ced_dense_gemm_args &a);
int dense_gemm_cuda(ced_stream *s, const ced_dense_gemm_args &a, ced_err *err);
// Its form for more than 16 rows, of the same bits, and whether that serves these arguments.
bool dense_gemm_prefills(const ced_dense_gemm_args &a);
int dense_gemm_prefill_cuda(ced_stream *s, const ced_dense_gemm_args &a, ced_err *err);

}  // namespace ced
