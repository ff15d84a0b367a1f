// csa2_index: scores of the visible groups, candidate blocks, exact top-k (spec 4.8, 4.9).
//   q [rows, heads, index_dim] BF16 -> RoPE -> FP4/UE8M0;  w_h = bf16(w[h] * scale)
//   score(j) = bf16(sum_h bf16(relu(bf16(q_h . k_j)) * w_h)),  j < (pos+1)/ratio
//   sel [rows, top_k]: the top_k groups by score, ascending, then -1; ties to the lower index
// publish: also writes the candidate blocks of each row. restrict_: groups outside the row's candidate blocks score
// -inf; when fewer than top_k others remain they are picked all the same, lowest index first (spec D4).
#pragma once
#include "kernel/csa2_index/select.h"
#include "kernel/kv_rows.h"

namespace ced {

constexpr uint32_t kMaxIndexDim = 512, kMaxIndexHeads = 256;
constexpr uint32_t kIndexTile = 32;  // rows of a step that are scored together

void csa2_index_ref(ced_stream *s, const ced_csa2_index_args &a);
// Dot products of FP4 codes in integers per 32 channels (exact), then f32; restricted rows score their candidates only.
void csa2_index_cpu(ced_stream *s, const ced_csa2_index_args &a);

// The workspace: per row of a tile its query, its scores and its blocks' maxima.
struct IndexScratch {
  uint32_t heads;  // padded to a multiple of 4
  uint64_t query_bytes, score_bytes, maxima_bytes;
  uint64_t base;

  explicit IndexScratch(const ced_csa2_index_args &a) : heads((a.heads + 3) / 4 * 4), base(a.workspace) {
    const auto aligned = [](uint64_t bytes) { return (bytes + 63) / 64 * 64; };
    query_bytes = aligned(uint64_t{heads} * (a.kv.index_dim + a.kv.index_dim / 32 + 1) * 4);
    score_bytes = aligned((uint64_t{a.max_groups} + a.block + 15) * sizeof(Score));
    maxima_bytes = a.publish ? aligned((uint64_t{a.max_groups} / a.block + 1) * sizeof(Score)) : 0;
  }
  uint64_t row_bytes() const { return query_bytes + score_bytes + maxima_bytes; }
  uint64_t at_row(uint64_t t) const { return base + t * row_bytes(); }
  // Query of tile row t: codes or values, [heads, index_dim] words at most; then scales [heads, index_dim/32]; then w.
  template <class T>
  T *codes(uint64_t t) const {
    return at<T>(at_row(t));
  }
  float *scales(uint64_t t, uint32_t dim) const { return at<float>(at_row(t)) + uint64_t{heads} * dim; }
  float *weights(uint64_t t, uint32_t dim) const { return scales(t, dim) + uint64_t{heads} * (dim / 32); }
  Score *scores(uint64_t t) const { return at<Score>(at_row(t) + query_bytes); }
  Score *maxima(uint64_t t) const { return at<Score>(at_row(t) + query_bytes + score_bytes); }
};

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

}  // namespace ced
