// csa2_index: scores of the visible groups, candidate blocks, exact top-k (spec 4.8, 4.9).
//   q [rows, heads, index_dim] BF16 -> RoPE -> FP4/UE8M0;  w_h = bf16(w[h] * scale)
//   score(j) = bf16(sum_h bf16(relu(bf16(q_h . k_j)) * w_h)),  j < (pos+1)/ratio
//   sel [rows, top_k]: the top_k groups by score, ascending, then -1; ties to the lower index
// publish: also writes the candidate blocks of each row. restrict_: groups outside the row's candidate blocks score
// -inf; when fewer than top_k others remain they are picked all the same, lowest index first (spec D4).
#pragma once
#include "kernel/csa2_index/score.h"

namespace ced {

void csa2_index_ref(ced_stream *s, const ced_csa2_index_args &a);
// Dot products of FP4 codes in integers (exact), then f32: see score.h. Restricted rows score their candidates only.
// Scores are kept for a span of groups at a time, from which the best are picked as the scan goes on: the workspace does
// not grow with the context.
void csa2_index_cpu(ced_stream *s, const ced_csa2_index_args &a);
// With the scores of an instruction set that this machine supports.
void csa2_index_on(Isa isa, ced_stream *s, const ced_csa2_index_args &a);
uint64_t csa2_index_ref_workspace(const ced_csa2_index_args &a);
uint64_t csa2_index_cpu_workspace(const ced_csa2_index_args &a);

// Groups that query row r sees; never more than the buffers hold.
inline int32_t index_seen(const ced_csa2_index_args &a, int64_t r) {
  const int32_t pos = at<const int32_t>(at<const ced_rows>(a.rows)->pos)[r];
  return std::min(visible_groups(a.kv, pos), static_cast<int32_t>(a.max_groups));
}

// Candidate blocks of a restricted row that hold visible groups.
inline int index_blocks(const ced_csa2_index_args &a, int64_t r, int32_t seen, const int32_t **blocks) {
  *blocks = at<const int32_t>(a.candidates) + r * a.max_blocks;
  int n = 0;
  while (n < static_cast<int>(a.max_blocks) && (*blocks)[n] >= 0 &&
         static_cast<int64_t>((*blocks)[n]) * a.block < seen)
    n++;
  return n;
}
int csa2_index_cuda(ced_stream *s, const ced_csa2_index_args &a, ced_err *err);
uint64_t csa2_index_cuda_workspace(const ced_csa2_index_args &a);

}  // namespace ced
