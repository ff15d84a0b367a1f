// csa2_compress: latents of the groups that close in a step (spec 4.5).
//   ratio 1: latent = norm(a)                     a [rows, dim] BF16
//   ratio > 1: latent = norm(bf16(sum_t w_t a_t))  a, g [rows, dim] f32, w = softmax of g over the group, per channel
// Members of a group that came in earlier steps are read from open [slots][open_rows][2][dim] (a, then g, of
// position mod open_rows); afterwards the last open_rows rows of each sequence are stored there.
#pragma once
#include "internal.h"

namespace ced {

// Canonical. A row costs little beside its projections, so the CPU runs the same body on its threads.
void csa2_compress_ref(ced_stream *s, const ced_csa2_compress_args &a);
inline void csa2_compress_cpu(ced_stream *s, const ced_csa2_compress_args &a) { csa2_compress_ref(s, a); }

constexpr uint32_t kMaxRatio = 16;

}  // namespace ced
