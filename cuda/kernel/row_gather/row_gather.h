// row_gather: dst[i] = src[index[i]], rows of row_bytes. dst and src must not overlap.
#pragma once
#include "internal.h"

namespace ced {

// Data movement: the bodies differ in threads only.
void row_gather_ref(ced_stream *s, const ced_row_gather_args &a);
void row_gather_cpu(ced_stream *s, const ced_row_gather_args &a);
int row_gather_cuda(ced_stream *s, const ced_row_gather_args &a, ced_err *err);

}  // namespace ced
