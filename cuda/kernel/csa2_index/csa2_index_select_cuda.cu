// Selections: the best of a row's scored keys, exactly, by counting scores a byte at a time. Where a row may have many
// keys, chunks of them go to blocks of their own (narrow, count, place); else one block selects.
#include "kernel/csa2_index/csa2_index_gpu.h"

namespace ced {
namespace {

// Above the threshold a key is taken; of those that equal it, the first `ties`.
struct Cut {
  uint32_t threshold, ties;
};

// What is selected from a row's keys: k of n, into out. Candidate blocks or groups.
struct Choice {
  const Score *keys;
  int32_t *out;
  uint32_t n, k;
  bool blocks;

  __device__ Choice(const ced_csa2_index_args &a, const IndexLayout &at_, int32_t r, uint32_t i,
                    bool of_blocks)
      : blocks(of_blocks) {
    const auto seen = static_cast<uint32_t>(seen_of(a, r));
    n = blocks ? ceil_div(seen, a.block) : seen, k = blocks ? a.max_blocks : a.top_k;
    keys = blocks ? at_.maxima_of(a, i) : at_.scores_of(a, i);
    out = at<int32_t>(blocks ? a.candidates : a.sel) + static_cast<size_t>(r) * k;
  }
  // Eight keys at i, a multiple of 8; those past the end are 0, less than any score.
  __device__ void load(uint32_t i, Score key[8]) const {
    const uint4 v = i < n ? load16(keys + i) : make_uint4(0, 0, 0, 0);
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
    CED_UNROLL
    for (uint32_t e = 0; e < 8; e++)
      key[e] = i + e < n ? static_cast<Score>(words[e / 2] >> (16 * (e % 2))) : Score{0};
  }
  // When there are no more than k: all but masked blocks.
  __device__ Cut all() const { return {blocks ? uint32_t{kMasked} : 0u, 0}; }
  // Masked blocks are left out after the choice.
  __device__ Cut cut(uint32_t threshold, uint32_t ties) const {
    return {threshold, blocks && threshold == kMasked ? 0 : ties};
  }
};

// The largest bin whose keys, with those of the bins above, number at least *k; *k becomes what it has to give.
__device__ uint32_t cut_bin(const uint32_t *count, uint32_t *found, uint32_t *part, uint32_t *k) {
  const uint32_t bin = kBins - 1 - threadIdx.x, n = threadIdx.x < kBins ? count[bin] : 0;
  uint32_t all;
  const uint32_t above = block_scan<kSelectThreads>(n, part, &all);
  if (threadIdx.x < kBins && above < *k && above + n >= *k) found[0] = bin, found[1] = *k - above;
  __syncthreads();
  const uint32_t it = found[0];
  *k = found[1];
  __syncthreads();  // found may be used again
  return it;
}

// Counts the thread's keys by a byte: the upper one, or the lower one of those whose upper one is `high`.
__device__ void count_bytes(const Score key[8], uint32_t there, bool upper, uint32_t high, uint32_t *count) {
  CED_UNROLL
  for (uint32_t e = 0; e < 8; e++) {
    if (e >= there) break;
    const uint32_t byte = key[e] >> 8;
    if (upper) {
      atomicAdd(&count[threadIdx.x % kCopies * kBins + byte], 1u);
    } else if (byte == high) {
      atomicAdd(&count[key[e] & 255], 1u);
    }
  }
}

// Writes which of a strip's keys are taken, in order. equal, written: before the strip; after it on return.
template <class Emit>
__device__ void place(const Score key[8], uint32_t i, const Cut &cut, uint32_t *part, uint32_t *equal,
                      uint32_t *written, const Emit &emit) {
  uint32_t mine = 0, all = 0;
  CED_UNROLL
  for (uint32_t e = 0; e < 8; e++) mine += key[e] == cut.threshold ? 1 : 0;
  uint32_t tie = *equal + block_scan<kSelectThreads>(mine, part, &all);
  *equal += all;
  uint32_t mask = 0;
  CED_UNROLL
  for (uint32_t e = 0; e < 8; e++) {
    const bool even = key[e] == cut.threshold;
    mask |= static_cast<uint32_t>(key[e] > cut.threshold || (even && tie < cut.ties)) << e;
    tie += even ? 1 : 0;
  }
  uint32_t at_ = *written + block_scan<kSelectThreads>(static_cast<uint32_t>(__popc(mask)), part, &all);
  *written += all;
  CED_UNROLL
  for (uint32_t e = 0; e < 8; e++)
    if ((mask >> e & 1u) != 0) emit(at_++, i + e);
}

// The cut of a selection that is shared out, from its counts.
__device__ Cut find_cut(const Choice &c, const IndexSelection &s, uint32_t *found, uint32_t *part) {
  if (c.n <= c.k) return c.all();
  uint32_t ties = c.k;
  const uint32_t high = cut_bin(s.high, found, part, &ties), low = cut_bin(s.low, found, part, &ties);
  return c.cut(high << 8 | low, ties);
}

// Counts the lower bytes of a chunk's keys in the bin of the cut.
__global__ void __launch_bounds__(kSelectThreads, 2)
    narrow_kernel(ced_csa2_index_args a, IndexLayout at_, int32_t first) {
  SHARED(uint32_t, count, kBins);
  SHARED(uint32_t, part, kSelectThreads / 32);
  SHARED(uint32_t, found, 2);
  const int32_t r = first + static_cast<int32_t>(blockIdx.y);
  if (r >= row_count(a.rows)) return;
  const Choice c(a, at_, r, blockIdx.y, blockIdx.z != 0);
  if (c.n <= c.k || blockIdx.x * kChunk >= c.n) return;
  IndexSelection *s = at_.selection_of(a, r, blockIdx.z);
  if (threadIdx.x < kBins) count[threadIdx.x] = 0;
  uint32_t ties = c.k;
  const uint32_t high = cut_bin(s->high, found, part, &ties), i = blockIdx.x * kChunk + 8 * threadIdx.x;
  Score key[8];
  c.load(i, key);
  count_bytes(key, i < c.n ? c.n - i : 0, false, high, count);
  __syncthreads();
  if (threadIdx.x < kBins && count[threadIdx.x] > 0) atomicAdd(&s->low[threadIdx.x], count[threadIdx.x]);
}

// How many of a chunk's keys are above the cut, and equal.
__global__ void __launch_bounds__(kSelectThreads, 2)
    count_kernel(ced_csa2_index_args a, IndexLayout at_, int32_t first) {
  SHARED(uint32_t, part, kSelectThreads / 32);
  SHARED(uint32_t, found, 2);
  const int32_t r = first + static_cast<int32_t>(blockIdx.y);
  if (r >= row_count(a.rows)) return;
  const Choice c(a, at_, r, blockIdx.y, blockIdx.z != 0);
  if (blockIdx.x * kChunk >= c.n) return;
  const Cut cut = find_cut(c, *at_.selection_of(a, r, blockIdx.z), found, part);
  Score key[8];
  c.load(blockIdx.x * kChunk + 8 * threadIdx.x, key);
  uint32_t both = 0;  // at most 4,096 each
  CED_UNROLL
  for (uint32_t e = 0; e < 8; e++)
    both += key[e] > cut.threshold ? 1 : key[e] == cut.threshold ? 1u << 16 : 0;
  uint32_t all;
  block_scan<kSelectThreads>(both, part, &all);
  if (threadIdx.x == 0) at_.counts_of(a, r, blockIdx.z)[blockIdx.x] = {all & 0xFFFFu, all >> 16};
}

// Writes which of a chunk's keys are taken behind those of the chunks before; the last one adds what is missing to k.
__global__ void __launch_bounds__(kSelectThreads, 2)
    place_kernel(ced_csa2_index_args a, IndexLayout at_, int32_t first) {
  SHARED(uint32_t, part, kSelectThreads / 32);
  SHARED(uint32_t, found, 2);
  const int32_t r = first + static_cast<int32_t>(blockIdx.y);
  if (r >= row_count(a.rows)) return;
  const Choice c(a, at_, r, blockIdx.y, blockIdx.z != 0);
  const bool last = (blockIdx.x + 1) * kChunk >= c.n;
  if (blockIdx.x > 0 && blockIdx.x * kChunk >= c.n) return;
  const Cut cut = find_cut(c, *at_.selection_of(a, r, blockIdx.z), found, part);
  const IndexChunk *counts = at_.counts_of(a, r, blockIdx.z);
  uint32_t above = 0, before = 0, written, equal;
  for (uint32_t i = threadIdx.x; i < blockIdx.x; i += kSelectThreads)
    above += counts[i].above, before += counts[i].equal;
  block_scan<kSelectThreads>(above, part, &written);
  block_scan<kSelectThreads>(before, part, &equal);
  written += equal < cut.ties ? equal : cut.ties;
  if (c.n > 0 &&
      (last || counts[blockIdx.x].above > 0 || (counts[blockIdx.x].equal > 0 && equal < cut.ties))) {
    const uint32_t i = blockIdx.x * kChunk + 8 * threadIdx.x;
    Score key[8];
    c.load(i, key);
    place(key, i, cut, part, &equal, &written,
          [&](uint32_t to, uint32_t j) { c.out[to] = static_cast<int32_t>(j); });
  }
  if (last)
    for (uint32_t i = written + threadIdx.x; i < c.k; i += kSelectThreads) c.out[i] = -1;
}

// A restricted row's candidate blocks that hold visible groups: a prefix of the list, of which only the last one may hold
// others.
__device__ uint32_t listed_blocks(const ced_csa2_index_args &a, int32_t r, uint32_t seen, uint32_t *part) {
  const int32_t *blocks = at<const int32_t>(a.candidates) + static_cast<size_t>(r) * a.max_blocks;
  uint32_t n = 0, all;
  for (uint32_t i = threadIdx.x; i < a.max_blocks; i += kSelectThreads)
    n += blocks[i] >= 0 && static_cast<uint64_t>(blocks[i]) * a.block < seen ? 1 : 0;
  block_scan<kSelectThreads>(n, part, &all);
  return all;
}

// Position of group j among the keys of n candidate blocks, -1 if it is in none.
__device__ int64_t position_of(const ced_csa2_index_args &a, int32_t r, uint32_t n, uint32_t j) {
  const int32_t *blocks = at<const int32_t>(a.candidates) + static_cast<size_t>(r) * a.max_blocks;
  const auto b = static_cast<int32_t>(j / a.block);
  uint32_t low = 0, high = n;
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    if (blocks[middle] < b)
      low = middle + 1;
    else
      high = middle;
  }
  return low < n && blocks[low] == b ? static_cast<int64_t>(low) * a.block + j % a.block : -1;
}

// A block for a row, whose keys it counts twice, a byte each, and then walks over. kRestricted: fewer candidates than k
// leave room for other groups, lowest first (spec D4).
template <bool kRestricted>
__global__ void __launch_bounds__(kSelectThreads, 1)
    select_kernel(ced_csa2_index_args a, IndexLayout at_, int32_t first, bool blocks) {
  SHARED(uint32_t, count, kCopies *kBins);
  SHARED(uint32_t, part, kSelectThreads / 32);
  SHARED(uint32_t, found, 2);
  const int32_t r = first + static_cast<int32_t>(blockIdx.x);
  if (r >= row_count(a.rows)) return;
  Choice c(a, at_, r, blockIdx.x, blocks);
  const uint32_t seen = c.n;
  uint32_t listed = 0;
  if (kRestricted) {
    listed = listed_blocks(a, r, seen, part);
    const int32_t *candidates = at<const int32_t>(a.candidates) + static_cast<size_t>(r) * a.max_blocks;
    c.n = listed * a.block;
    const uint32_t end = listed > 0 ? (static_cast<uint32_t>(candidates[listed - 1]) + 1) * a.block : 0;
    if (end > seen) c.n -= end - seen;
  }
  Score key[8];
  Cut cut = c.all();
  if (c.n > c.k) {
    uint32_t ties = c.k;
    for (int pass = 0; pass < 2; pass++) {
      for (uint32_t i = threadIdx.x; i < kCopies * kBins; i += kSelectThreads) count[i] = 0;
      __syncthreads();
      for (uint32_t i = 8 * threadIdx.x; i < c.n; i += kChunk) {
        c.load(i, key);
        count_bytes(key, c.n - i, pass == 0, cut.threshold, count);
      }
      __syncthreads();
      if (pass == 0 && threadIdx.x < kBins)
        for (uint32_t copy = 1; copy < kCopies; copy++)
          count[threadIdx.x] += count[copy * kBins + threadIdx.x];
      __syncthreads();
      const uint32_t bin = cut_bin(count, found, part, &ties);
      cut.threshold = pass == 0 ? bin : cut.threshold << 8 | bin;
    }
    cut = c.cut(cut.threshold, ties);
  }
  uint32_t equal = 0, written = 0;  // before this strip
  if (kRestricted && cut.threshold <= kMasked) {
    uint32_t scored = 0, all;
    for (uint32_t i = 8 * threadIdx.x; i < c.n; i += kChunk) {
      c.load(i, key);
      CED_UNROLL
      for (uint32_t e = 0; e < 8; e++) scored += key[e] > kMasked ? 1 : 0;
    }
    block_scan<kSelectThreads>(scored, part, &all);
    for (uint32_t from = 0; from < seen && written < c.k; from += kSelectThreads) {
      const uint32_t j = from + threadIdx.x;
      const int64_t p = j < seen ? position_of(a, r, listed, j) : -1;
      const bool good = p >= 0 && c.keys[p] > kMasked, other = !good && j < seen;
      uint32_t others, taken;
      const uint32_t before = equal + block_scan<kSelectThreads>(other ? 1 : 0, part, &others);
      const bool take = good || (other && before < c.k - all);
      const uint32_t to = written + block_scan<kSelectThreads>(take ? 1 : 0, part, &taken);
      if (take) c.out[to] = static_cast<int32_t>(j);
      equal += others, written += taken;
    }
  } else {
    for (uint32_t from = 0; from < c.n; from += kChunk) {
      const uint32_t i = from + 8 * threadIdx.x;
      c.load(i, key);
      place(key, i, cut, part, &equal, &written, [&](uint32_t to, uint32_t p) {
        c.out[to] =
            kRestricted ? group_of<true>(a, r, static_cast<int32_t>(seen), p) : static_cast<int32_t>(p);
      });
    }
  }
  for (uint32_t i = written + threadIdx.x; i < c.k; i += kSelectThreads) c.out[i] = -1;
}

__global__ void __launch_bounds__(kSelectThreads)
    write_kernel(ced_csa2_index_args a, IndexLayout at_, int32_t first) {
  SHARED(uint32_t, part, kSelectThreads / 32);
  const int32_t r = first + static_cast<int32_t>(blockIdx.y);
  if (r >= row_count(a.rows)) return;
  const auto seen = static_cast<uint32_t>(seen_of(a, r));
  const uint32_t j = blockIdx.x * kSelectThreads + threadIdx.x;
  const uint32_t listed = a.restrict_ != 0 ? listed_blocks(a, r, seen, part) : 0;
  if (j >= a.score_stride) return;
  const int64_t p = j >= seen ? -1 : a.restrict_ != 0 ? position_of(a, r, listed, j) : int64_t{j};
  at<float>(a.scores)[static_cast<size_t>(r) * a.score_stride + j] =
      score_value(p >= 0 ? at_.scores_of(a, blockIdx.y)[p] : kMasked);
}

}  // namespace

int csa2_index_select(ced_stream *s, const ced_csa2_index_args &a, const IndexLayout &at_, int32_t first,
                      uint32_t rows, ced_err *err) {
  const char *name = "csa2_index";
  const Grid row{rows, kSelectThreads},
      chunk{dim3(static_cast<uint32_t>(at_.chunks), rows, a.publish != 0 ? 2 : 1), kSelectThreads};
  if (a.restrict_ != 0) {
    CED_TRY(launch(s, err, name, row, select_kernel<true>, a, at_, first, false));
  } else if (at_.split) {
    CED_TRY(launch(s, err, name, chunk, narrow_kernel, a, at_, first));
    CED_TRY(launch(s, err, name, chunk, count_kernel, a, at_, first));
    CED_TRY(launch(s, err, name, chunk, place_kernel, a, at_, first));
  } else {
    if (a.publish != 0) CED_TRY(launch(s, err, name, row, select_kernel<false>, a, at_, first, true));
    CED_TRY(launch(s, err, name, row, select_kernel<false>, a, at_, first, false));
  }
  if (a.scores == 0) return CED_OK;
  return launch(s, err, name, {dim3(ceil_div(a.score_stride, kSelectThreads), rows), kSelectThreads},
                write_kernel, a, at_, first);
}

}  // namespace ced
