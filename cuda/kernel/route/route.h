// route: the experts of a row (spec 6).
//   logits [rows, experts] F32 -> idx [rows, top_k] i32 in descending biased score, ties to the lower expert;
//   weights [rows, top_k] F32 from the unbiased scores sqrt(softplus(logit / temperature)), times route_scale
// bias [experts] F32|BF16 (bias_vl for image rows) takes part in the choice only.
#pragma once
#include "internal.h"

namespace ced {

constexpr uint32_t kMaxExperts = 4096;

void route_ref(ced_stream *s, const ced_route_args &a);
// The scores by polynomials in f64, rounded once: the choice has nothing to do with the body.
void route_cpu(ced_stream *s, const ced_route_args &a);

// The choice among scores of row r, and the weights.
void route_choose(const ced_route_args &a, int64_t r, const float *score);
int route_cuda(ced_stream *s, const ced_route_args &a, ced_err *err);

}  // namespace ced
