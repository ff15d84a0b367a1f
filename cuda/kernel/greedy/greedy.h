// greedy: the token of each row of logits that greedy sampling takes (spec D2).
//   ids[r] = the lowest index of the largest of logits[r, :]; -1 where one is NaN or +Inf, or all are -Inf
#pragma once
#include "internal.h"

namespace ced {

// Nothing is rounded: the bodies differ in threads only.
void greedy_ref(ced_stream *s, const ced_greedy_args &a);
void greedy_cpu(ced_stream *s, const ced_greedy_args &a);
int greedy_cuda(ced_stream *s, const ced_greedy_args &a, ced_err *err);

}  // namespace ced
