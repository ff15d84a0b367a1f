// select.h: exact selections over BF16 scores in linear time; ties go to the lower index (spec D2).
#pragma once
#include <cstdint>

#include "num/bf16.h"

namespace ced {

// A BF16 score as an integer of the same order; both zeros are one.
using Score = uint16_t;
constexpr Score kMasked = 0x007F;  // -inf
constexpr Score kForced = 0xFF80;  // +inf

inline Score score_of(uint16_t bf16) {
  const unsigned u = bf16 == 0x8000u ? 0u : bf16;
  return static_cast<Score>(u ^ ((u & 0x8000u) != 0 ? 0xFFFFu : 0x8000u));
}

inline float score_value(Score s) {
  return bf16_to_f32(static_cast<uint16_t>(s ^ ((s & 0x8000u) != 0 ? 0x8000u : 0xFFFFu)));
}

// Indices of the k largest of n scores, ascending. Returns how many: min(k, n).
int top_k(const Score *scores, int n, int k, int32_t *out);

// Candidate blocks of a query with `seen` scores (spec 4.9): the block of the newest group and those with the largest
// maxima, at most max_blocks, without blocks that hold masked scores only. Writes their numbers, ascending, then -1 up
// to max_blocks. maxima: scratch for ceil(seen / block) scores.
void candidate_blocks(const Score *scores, int seen, int block, int max_blocks, Score *maxima, int32_t *out);

}  // namespace ced
