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
  // Two passes of counting find the k-th score, a byte each.
  uint32_t high[256] = {}, low[256] = {}, ties = static_cast<uint32_t>(k);
  for (int i = 0; i < n; i++) high[scores[i] >> 8]++;
  const int top = cut(high, &ties);
  for (int i = 0; i < n; i++)
    if (scores[i] >> 8 == top) low[scores[i] & 255]++;
  const auto threshold = static_cast<Score>(top << 8 | cut(low, &ties));
  int m = 0;
  for (int i = 0; m < k; i++) {
    if (scores[i] < threshold || (scores[i] == threshold && ties == 0)) continue;
    if (scores[i] == threshold) ties--;
    out[m++] = i;
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

}  // namespace ced
