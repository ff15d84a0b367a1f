// mhc_mix: pre, post and comb of a sub-layer from the streams that enter it (spec 4.2, mixes()).
//   h [rows, n, dim] BF16 -> pre [rows, n], post [rows, n], comb [rows, n(in), n(out)], all f32
// m = (flatten(h) fn^T) * rsqrt(mean(h^2) + norm_eps), then sigmoids for pre and post, and for comb a row softmax
// followed by Sinkhorn steps in f32.
#pragma once
#include "internal.h"

namespace ced {

constexpr uint32_t kMaxStreams = 8;

void mhc_mix_ref(ced_stream *s, const ced_mhc_mix_args &a);
// The projection in f32, 16 lanes along stream * dim; the rest as the reference.
void mhc_mix_cpu(ced_stream *s, const ced_mhc_mix_args &a);

// From a row's projections m[(2+n)*n] (already normalised) to its pre, post and comb. Canonical.
void mhc_mix_finish(const ced_mhc_mix_args &a, const float *m, float *pre, float *post, float *comb);
int mhc_mix_cuda(ced_stream *s, const ced_mhc_mix_args &a, ced_err *err);

}  // namespace ced
