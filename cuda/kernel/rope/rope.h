// rope: rotates the last rope_dim channels of every head in place (spec 3.7): adjacent pairs as complex numbers,
// by f32(position) * freq, or by its negative (inverse). x [rows, heads, dim] BF16.
#pragma once
#include "internal.h"

namespace ced {

// Products and sums are separate f32 operations on every body, so all have the canonical bits.
void rope_ref(ced_stream *s, const ced_rope_args &a);
void rope_cpu(ced_stream *s, const ced_rope_args &a);
int rope_cuda(ced_stream *s, const ced_rope_args &a, ced_err *err);

}  // namespace ced
