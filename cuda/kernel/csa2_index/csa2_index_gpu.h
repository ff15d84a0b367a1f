// csa2_index_gpu.h: what the CUDA body's two halves, scores and selections, leave each other.
#pragma once
#include "kernel/csa2_index/csa2_index.h"
#include "kernel/row_gpu.h"

namespace ced {

constexpr uint32_t kHeadTile = 16;                                      // rows of an mma
constexpr uint32_t kWarpKeys = 32, kWarps = 8, kThreads = 32 * kWarps;  // keys of a warp; of a block: 256
constexpr uint32_t kBlockKeys = kWarpKeys * kWarps;
constexpr uint32_t kSelectThreads = 512, kChunk = 8 * kSelectThreads;
constexpr uint32_t kOneBlock = 4 * kChunk;            // the most keys of a row that one block selects from
constexpr uint32_t kBins = 256, kCopies = 4;          // copies of a count, for lanes that count alike
constexpr uint64_t kScoreBytes = uint64_t{64} << 20;  // of the scores that are kept at a time

__host__ __device__ constexpr uint64_t index_padded(uint64_t n, uint64_t to) {
  return (n + to - 1) / to * to;
}

// What blocks tell each other when they select from a row's keys. high is counted with the scores.
struct IndexSelection {
  uint32_t high[kBins],
      low[kBins];  // keys by their upper byte; by the lower one, of those in the bin of the cut
};
struct IndexChunk {
  uint32_t above, equal;  // keys of a chunk, against the cut
};

// The workspace: prepared queries of all rows, then their selections, then scores and block maxima of `rows` rows at a
// time.
//   words   [tiles][blocks][32 lanes][4]  operand A of mma_m16n8k32_s8u8: twice the FP4 values
//   scales  [heads, blocks]   a quarter of the scale: both sides are doubled
//   offsets [heads, blocks]   -kOffset times the sum of the block's values
//   w       [heads]
struct IndexLayout {
  uint32_t heads, blocks;  // heads: padded to whole tiles
  uint64_t words, scales, offsets, w, query;
  uint64_t keys, maxima;  // a row's, at most
  bool split;             // many keys: selections are shared out
  uint64_t chunks, selection, scores;
  uint32_t rows;

  __host__ __device__ explicit IndexLayout(const ced_csa2_index_args &a)
      : heads(static_cast<uint32_t>(index_padded(a.heads, kHeadTile))),
        blocks(a.kv.index_dim / 32),
        words(0),
        scales(uint64_t{heads} * a.kv.index_dim),
        offsets(scales + uint64_t{heads} * blocks * 4),
        w(offsets + uint64_t{heads} * blocks * 4),
        query(index_padded(w + uint64_t{heads} * 4, 64)) {
    const uint64_t some = a.max_groups > 0 ? a.max_groups : 1;
    const uint64_t groups = index_padded(a.block > 0 ? index_padded(some, a.block) : some, kBlockKeys);
    const uint64_t listed = index_padded(uint64_t{a.max_blocks} * a.block, kBlockKeys);
    keys = a.restrict_ != 0 && listed < groups ? listed : groups;
    maxima = a.publish != 0 ? index_padded(a.max_groups / a.block + 1, 64) : 0;
    split = a.restrict_ == 0 && groups > kOneBlock;
    chunks = groups > kOneBlock ? ceil_div(static_cast<uint32_t>(groups), kChunk) : 0;
    selection = index_padded(chunks > 0 ? sizeof(IndexSelection) + chunks * sizeof(IndexChunk) : 0, 64);
    scores = (query + 2 * selection) * a.max_rows;
    const uint64_t row = 2 * (keys + maxima), fit = kScoreBytes / row;
    rows = static_cast<uint32_t>(fit < 1 ? 1 : fit < a.max_rows ? fit : a.max_rows > 0 ? a.max_rows : 1);
  }
  // A workspace for many rows or long ones serves calls with fewer.
  __host__ __device__ uint64_t bytes(uint32_t max_rows) const {
    const uint64_t row = 2 * (keys + maxima), least = kScoreBytes > row ? kScoreBytes : row;
    const uint64_t most = row * (max_rows > 0 ? max_rows : 1);
    return scores + (most < least ? most : least);
  }
  __device__ unsigned char *query_of(const ced_csa2_index_args &a, int32_t r) const {
    return at<unsigned char>(a.workspace) + static_cast<uint64_t>(r) * query;
  }
  // which: 0 of groups, 1 of candidate blocks.
  __device__ IndexSelection *selection_of(const ced_csa2_index_args &a, int32_t r, uint32_t which) const {
    return reinterpret_cast<IndexSelection *>(at<unsigned char>(a.workspace) + query * a.max_rows +
                                              (2 * static_cast<uint64_t>(r) + which) * selection);
  }
  __device__ IndexChunk *counts_of(const ced_csa2_index_args &a, int32_t r, uint32_t which) const {
    return reinterpret_cast<IndexChunk *>(selection_of(a, r, which) + 1);
  }
  // i: the row within those kept at a time.
  __device__ Score *scores_of(const ced_csa2_index_args &a, uint32_t i) const {
    return reinterpret_cast<Score *>(at<unsigned char>(a.workspace) + scores) + i * keys;
  }
  __device__ Score *maxima_of(const ced_csa2_index_args &a, uint32_t i) const {
    return scores_of(a, rows) + i * maxima;
  }
};

__device__ inline int32_t seen_of(const ced_csa2_index_args &a, int32_t r) {
  const int32_t n = visible_groups(a.kv, at<const int32_t>(at<const ced_rows>(a.rows)->pos)[r]);
  return n < static_cast<int32_t>(a.max_groups) ? n : static_cast<int32_t>(a.max_groups);
}

// Group of position p of a row's keys: p itself, or place p % block of the candidate block p / block; -1 is none.
template <bool kRestricted>
__device__ int32_t group_of(const ced_csa2_index_args &a, int32_t r, int32_t seen, uint32_t p) {
  if (!kRestricted) return static_cast<int64_t>(p) < seen ? static_cast<int32_t>(p) : -1;
  if (p / a.block >= a.max_blocks) return -1;
  const int32_t b = at<const int32_t>(a.candidates)[static_cast<size_t>(r) * a.max_blocks + p / a.block];
  const int64_t j = static_cast<int64_t>(b) * a.block + p % a.block;
  return b >= 0 && j < seen ? static_cast<int32_t>(j) : -1;
}

// Selects from the scores of `rows` rows from `first` on.
int csa2_index_select(ced_stream *s, const ced_csa2_index_args &a, const IndexLayout &at_, int32_t first,
                      uint32_t rows, ced_err *err);

}  // namespace ced
