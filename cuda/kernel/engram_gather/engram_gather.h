// engram_gather: dequantised rows of the Engram table, concatenated in column order (spec 4.12 step 1).
//   ids [rows, cols] i64, table [table_rows, dim] e4m3 with UE8M0 scales per 32 -> e [rows, cols*dim] BF16 (exact)
// An id outside the table gives zeros.
#pragma once
#include "internal.h"
#include "num/bf16.h"
#include "num/e8m0.h"
#include "num/fp8.h"

namespace ced {

void engram_gather_ref(ced_stream *s, const ced_engram_gather_args &a);
// Bound by the latency of the table's memory: rows are fetched ahead, and a single token's are enough for several
// threads. The same bits.
void engram_gather_cpu(ced_stream *s, const ced_engram_gather_args &a);

constexpr int64_t kEngramPiece = 12;  // table rows that a thread takes at a time
static_assert((48 + kEngramPiece - 1) / kEngramPiece >= 4, "one token of the release: 2 layers' 48 rows");

// 32 codes with one scale.
inline void engram_dequantise(const uint8_t *codes, uint8_t scale, uint16_t *e) {
  for (int i = 0; i < 32; i++) e[i] = f32_to_bf16(e4m3_to_f32(codes[i]) * e8m0_to_f32(scale));
}
int engram_gather_cuda(ced_stream *s, const ced_engram_gather_args &a, ced_err *err);

}  // namespace ced
