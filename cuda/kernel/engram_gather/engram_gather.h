// engram_gather: dequantised rows of the Engram table, concatenated in column order (spec 4.12 step 1).
//   ids [rows, cols] i64, table [table_rows, dim] e4m3 with UE8M0 scales per 32 -> e [rows, cols*dim] BF16 (exact)
// An id outside the table gives zeros.
#pragma once
#include "internal.h"

namespace ced {

// Bound by the table's memory: one body for both kinds of stream.
void engram_gather_ref(ced_stream *s, const ced_engram_gather_args &a);
inline void engram_gather_cpu(ced_stream *s, const ced_engram_gather_args &a) { engram_gather_ref(s, a); }

}  // namespace ced
