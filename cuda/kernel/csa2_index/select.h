// select.h: exact selections over BF16 scores in linear time; ties go to the lower index (spec D2).
#pragma once
#include <cstdint>

#include "num/bf16.h"

namespace ced {

// A BF16 score as an integer of the same order; both zeros are one.
using Score = uint16_t;
constexpr Score kMasked = 0x007F;  // -inf
constexpr Score kForced = 0xFF80;  // +inf

CED_HD inline Score score_of(uint16_t bf16) {
  const unsigned u = bf16 == 0x8000u ? 0u : bf16;
  return static_cast<Score>(u ^ ((u & 0x8000u) != 0 ? 0xFFFFu : 0x8000u));
}

CED_HD inline float score_value(Score s) {
  return bf16_to_f32(static_cast<uint16_t>(s ^ ((s & 0x8000u) != 0 ? 0x8000u : 0xFFFFu)));
}

// Indices of the k largest of n scores, ascending. Returns how many: min(k, n).
int top_k(const Score *scores, int n, int k, int32_t *out);

// Candidate blocks of a query with `seen` scores (spec 4.9): the block of the newest group and those with the largest
// maxima, at most max_blocks, without blocks that hold masked scores only. Writes their numbers, ascending, then -1 up
// to max_blocks. maxima: scratch for ceil(seen / block) scores.
void candidate_blocks(const Score *scores, int seen, int block, int max_blocks, Score *maxima, int32_t *out);

// The k best of a stream of scores, kept as it goes by: a list that is cut to k whenever it is full. Scores that cannot
// enter any more are passed over kStride at a time.
class Best {
 public:
  static constexpr int kSlack = 2048, kStride = 64;
  static uint64_t bytes(uint64_t k) {
    return (k + kSlack) * (sizeof(Score) + sizeof(int32_t)) + k * sizeof(int32_t);
  }

  // memory: bytes(k), aligned for int32_t. Only scores above `floor` count.
  void open(void *memory, int k, int floor) {
    k_ = k, floor_ = floor, count_ = 0;
    index_ = static_cast<int32_t *>(memory);
    order_ = index_ + k + kSlack;
    scores_ = reinterpret_cast<Score *>(order_ + k);
  }

  // The next n scores, of indices from, from+1, ...
  void add(const Score *scores, int n, int32_t from);
  void add(Score score, int32_t index) {
    if (score <= floor_) return;
    if (count_ == k_ + kSlack) cut();
    scores_[count_] = score, index_[count_++] = index;
  }
  // Indices of the best, ascending; how many: at most k. *indices stays valid until the next call.
  int finish(const int32_t **indices);

 private:
  void cut();

  int k_ = 0, floor_ = 0, count_ = 0;
  int32_t *index_ = nullptr, *order_ = nullptr;  // ascending; scratch
  Score *scores_ = nullptr;
};

// Candidate blocks as above, of scores that arrive in pieces of whole blocks; n is less only in the last piece.
void add_blocks(const Score *scores, int n, int block, int32_t from, Best *best);

}  // namespace ced
