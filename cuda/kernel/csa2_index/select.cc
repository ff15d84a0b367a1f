#include "kernel/csa2_index/select.h"

#include <algorithm>

namespace ced {
namespace {

// The largest bin whose scores, with those of the bins above, number at least *k; *k becomes what it has to give.
int cut(const uint32_t (&count)[256], uint32_t *k) {
  int bin = 255;
  while (count[bin] < *k) *k -= count[bin--];
  return bin;
}

}  // namespace

int top_k(const Score *scores, int n, int k, int32_t *out) {
  if (n <= k) {
    for (int i = 0; i < n; i++) out[i] = i;
    return n;
  }
  if (k == 0) return 0;
  // Two passes of counting find the k-th score, a byte each. Without branches on the scores, and with the first pass
  // spread over four tables: neighbours often fall into the same bin.
  uint32_t high[256] = {}, low[256] = {}, spread[4][256] = {}, ties = static_cast<uint32_t>(k);
  for (int i = 0; i < n; i++) spread[i % 4][scores[i] >> 8]++;
  for (int b = 0; b < 256; b++) high[b] = spread[0][b] + spread[1][b] + spread[2][b] + spread[3][b];
  const int top = cut(high, &ties);
  for (int i = 0; i < n; i++) low[scores[i] & 255] += scores[i] >> 8 == top;
  const auto threshold = static_cast<Score>(top << 8 | cut(low, &ties));
  int m = 0;
  for (int i = 0; m < k; i++) {
    const uint32_t tie = (scores[i] == threshold) & (ties > 0);
    out[m] = i;
    m += static_cast<int>((scores[i] > threshold) | tie);
    ties -= tie;
  }
  return m;
}

void candidate_blocks(const Score *scores, int seen, int block, int max_blocks, Score *maxima, int32_t *out) {
  const int blocks = (seen + block - 1) / block;
  for (int b = 0; b < blocks; b++) {
    const Score *begin = scores + static_cast<int64_t>(b) * block;
    maxima[b] = *std::max_element(begin, std::min(begin + block, scores + seen));
  }
  if (blocks > 0) maxima[blocks - 1] = kForced;  // the newest group is the last one seen
  const int n = top_k(maxima, blocks, max_blocks, out);
  int m = 0;
  for (int i = 0; i < n; i++)
    if (maxima[out[i]] != kMasked) out[m++] = out[i];
  std::fill(out + m, out + max_blocks, -1);
}

void Best::add(const Score *scores, int n, int32_t from) {
  for (int i = 0; i < n; i += kStride) {
    const int m = std::min(kStride, n - i);
    Score top = 0;
    if (m == kStride) {
      for (int j = 0; j < kStride; j++) top = std::max(top, scores[i + j]);
      if (top <= floor_) continue;
    }
    if (count_ + kStride > k_ + kSlack) cut();
    int count = count_;
    for (int j = 0; j < m; j++) {  // without branches on the scores
      scores_[count] = scores[i + j], index_[count] = from + i + j;
      count += scores[i + j] > floor_;
    }
    count_ = count;
  }
}

void Best::cut() {
  if (count_ <= k_) return;
  count_ = top_k(scores_, count_, k_, order_);
  int least = kForced;
  for (int i = 0; i < count_; i++) {
    scores_[i] = scores_[order_[i]], index_[i] = index_[order_[i]];
    least = std::min<int>(least, scores_[i]);
  }
  floor_ = least;  // an equal score of a higher index would lose
}

int Best::finish(const int32_t **indices) {
  cut();
  *indices = index_;
  return count_;
}

void add_blocks(const Score *scores, int n, int block, int32_t from, Best *best) {
  for (int i = 0; i < n; i += block)
    best->add(*std::max_element(scores + i, scores + std::min(i + block, n)), from++);
}

}  // namespace ced
