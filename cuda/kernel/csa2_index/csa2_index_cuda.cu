// A row's keys are scored by blocks that walk over them; then the best are selected, exactly, by counting scores a byte at
// a time. Where a row may have many keys, they are counted while they are scored, and chunks of them go to blocks of their
// own (narrow, count, place); else one block selects. A restricted row has the keys of its candidate blocks, in their
// order, and nothing else is looked at.
#include "kernel/csa2_index/csa2_index.h"
#include "kernel/row_gpu.h"
#include "num/quant.h"

namespace ced {
namespace {

constexpr uint32_t kHeadTile = 16;                                      // rows of an mma
constexpr uint32_t kWarpKeys = 32, kWarps = 8, kThreads = 32 * kWarps;  // keys of a warp; of a block: 256
constexpr uint32_t kBlockKeys = kWarpKeys * kWarps;
constexpr uint32_t kOffset = 12;  // added to twice a key's value: 0..24
constexpr uint32_t kSelectThreads = 512, kChunk = 8 * kSelectThreads;
constexpr uint32_t kOneBlock = 4 * kChunk;            // the most keys of a row that one block selects from
constexpr uint32_t kBins = 256, kCopies = 4;          // copies of a count, for lanes that count alike
constexpr uint64_t kScoreBytes = uint64_t{64} << 20;  // of the scores that are kept at a time
constexpr int32_t kFloatBits = 0x4B400000;            // 1.5 * 2^23: of an integer added to them, the float
constexpr float kFloatZero = 12582912.0f;             // less this is the integer

__host__ __device__ constexpr uint64_t padded(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

// What blocks tell each other when they select from a row's keys. high is counted with the scores.
struct Selection {
  uint32_t high[kBins],
      low[kBins];  // keys by their upper byte; by the lower one, of those in the bin of the cut
};
struct ChunkCount {
  uint32_t above, equal;  // keys of a chunk, against the cut
};

// The workspace: prepared queries of all rows, then their selections, then scores and block maxima of `rows` rows at a
// time.
//   words   [tiles][blocks][32 lanes][4]  operand A of mma_m16n8k32_s8u8: twice the FP4 values
//   scales  [heads, blocks]   a quarter of the scale: both sides are doubled
//   offsets [heads, blocks]   -kOffset times the sum of the block's values
//   w       [heads]
struct Layout {
  uint32_t heads, blocks;  // heads: padded to whole tiles
  uint64_t words, scales, offsets, w, query;
  uint64_t keys, maxima;  // a row's, at most
  bool split;             // many keys: selections are shared out
  uint64_t chunks, selection, scores;
  uint32_t rows;

  __host__ __device__ explicit Layout(const ced_csa2_index_args &a)
      : heads(static_cast<uint32_t>(padded(a.heads, kHeadTile))),
        blocks(a.kv.index_dim / 32),
        words(0),
        scales(uint64_t{heads} * a.kv.index_dim),
        offsets(scales + uint64_t{heads} * blocks * 4),
        w(offsets + uint64_t{heads} * blocks * 4),
        query(padded(w + uint64_t{heads} * 4, 64)) {
    const uint64_t some = a.max_groups > 0 ? a.max_groups : 1;
    const uint64_t groups = padded(a.block > 0 ? padded(some, a.block) : some, kBlockKeys);
    const uint64_t listed = padded(uint64_t{a.max_blocks} * a.block, kBlockKeys);
    keys = a.restrict_ != 0 && listed < groups ? listed : groups;
    maxima = a.publish != 0 ? padded(a.max_groups / a.block + 1, 64) : 0;
    split = a.restrict_ == 0 && groups > kOneBlock;
    chunks = groups > kOneBlock ? ceil_div(static_cast<uint32_t>(groups), kChunk) : 0;
    selection = padded(chunks > 0 ? sizeof(Selection) + chunks * sizeof(ChunkCount) : 0, 64);
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
  __device__ Selection *selection_of(const ced_csa2_index_args &a, int32_t r, uint32_t which) const {
    return reinterpret_cast<Selection *>(at<unsigned char>(a.workspace) + query * a.max_rows +
                                         (2 * static_cast<uint64_t>(r) + which) * selection);
  }
  __device__ ChunkCount *counts_of(const ced_csa2_index_args &a, int32_t r, uint32_t which) const {
    return reinterpret_cast<ChunkCount *>(selection_of(a, r, which) + 1);
  }
  // i: the row within those kept at a time.
  __device__ Score *scores_of(const ced_csa2_index_args &a, uint32_t i) const {
    return reinterpret_cast<Score *>(at<unsigned char>(a.workspace) + scores) + i * keys;
  }
  __device__ Score *maxima_of(const ced_csa2_index_args &a, uint32_t i) const {
    return scores_of(a, rows) + i * maxima;
  }
};

__device__ int32_t seen_of(const ced_csa2_index_args &a, int32_t r) {
  const int32_t n = visible_groups(a.kv, at<const int32_t>(at<const ced_rows>(a.rows)->pos)[r]);
  return n < static_cast<int32_t>(a.max_groups) ? n : static_cast<int32_t>(a.max_groups);
}

// A block for a head of a row: RoPE, FP4, and its place in operand A. Padding heads are zero.
__global__ void __launch_bounds__(128, 1) query_kernel(ced_csa2_index_args a, Layout at_) {
  SHARED(float, x, kMaxIndexDim);
  const auto &rows = *at<const ced_rows>(a.rows);
  const uint32_t h = blockIdx.y, dim = a.kv.index_dim;
  for (int32_t r = static_cast<int32_t>(blockIdx.x); r < rows.count; r += static_cast<int32_t>(gridDim.x)) {
    const bool real = h < a.heads;
    for (uint32_t i = threadIdx.x; i < dim; i += 128)
      x[i] = real ? bf16_to_f32(at<const uint16_t>(a.q)[(static_cast<size_t>(r) * a.heads + h) * dim + i])
                  : 0.0f;
    __syncthreads();
    float *rotary = x + (dim - a.rope_dim);
    for (uint32_t i = threadIdx.x; i < a.rope_dim / 2; i += 128) {
      float cosine, sine;
      rope_angle(at<const float>(a.freqs)[i], at<const int32_t>(rows.pos)[r], cosine, sine);
      rotate_pair(rotary[2 * i], rotary[2 * i + 1], cosine, sine);
    }
    __syncthreads();
    if (h == 0 && at_.split)
      for (uint32_t i = threadIdx.x; i < 2 * 2 * kBins; i += 128)
        reinterpret_cast<uint32_t *>(at_.selection_of(a, r, i / (2 * kBins)))[i % (2 * kBins)] = 0;
    unsigned char *q = at_.query_of(a, r);
    for (uint32_t i = threadIdx.x; i < dim; i += 128) {  // a multiple of 32: whole warps
      const float largest = f32_of(warp_max(f32_bits(x[i]) & 0x7FFFFFFFu));
      const float s = pow2_ceil(f32_max(largest, 6 * 0x1p-126f) * 0x1.555556p-3f);
      const auto twice = static_cast<int>(2.0f * e2m1_to_f32(f32_to_e2m1(x[i] * (1.0f / s))));
      int sum = twice;
      for (int m = 16; m > 0; m /= 2) sum += __shfl_xor_sync(kAllLanes, sum, m);
      const uint32_t block = i / 32, c = i % 32, row = h % kHeadTile;
      const uint32_t word =
          ((h / kHeadTile * at_.blocks + block) * 32 + row % 8 * 4 + c / 8) * 4 + c % 8 / 4 * 2 + row / 8;
      q[word * 4 + c % 4] = static_cast<unsigned char>(twice);
      if (c == 0) {
        reinterpret_cast<float *>(q + at_.scales)[h * at_.blocks + block] = real ? 0.25f * s : 0.0f;
        reinterpret_cast<int32_t *>(q + at_.offsets)[h * at_.blocks + block] =
            -static_cast<int32_t>(kOffset) * sum;
      }
    }
    if (threadIdx.x == 0)
      reinterpret_cast<float *>(q + at_.w)[h] =
          real ? bf16_round(bf16_to_f32(at<const uint16_t>(a.w)[static_cast<size_t>(r) * a.heads + h]) *
                            a.scale)
               : 0.0f;
    __syncthreads();  // before the next row
  }
}

// Four codes to twice their values plus kOffset, a byte each. A table is looked up by magnitude, a second one by the whole
// code: its bytes have their upper bit set, so that a negative code gets all ones. Exclusive or makes 12 + b or 12 - b.
__device__ uint32_t decode(uint32_t codes) {
  return ptx::pick_bytes(0xF6F5F4F3u, 0xFFFBF9F7u, codes) ^
         ptx::pick_bytes_or_signs(0xF9FBF9FFu, 0xE7EFEBE7u, codes);
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

// Keys of a warp, one a lane. As operands they are 8 a tile: lane 4g + t reads codes of key g of each tile, and uses the
// scales of keys 2t and 2t + 1.
struct KeyTiles {
  static constexpr int kTiles = kWarpKeys / 8, kAhead = 4;  // blocks of 32 channels that are loaded at a time
  int32_t group;                                            // the lane's own; -1 is none
  uint32_t code[kTiles][kAhead], scales[kTiles][2];         // scales: a byte a block

  __device__ void load(const ced_kv &kv, int32_t slot, uint32_t from, uint32_t blocks) {
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const uint8_t *codes = nullptr;
    uint32_t word = 0;
    if (group >= 0) {
      const KvRow row = kv_row(kv, slot, group);
      codes = row.index_codes;
      if (blocks % kAhead == 0) {
        word = *reinterpret_cast<const uint32_t *>(row.index_scales + from);
      } else {
        for (uint32_t i = 0; i < kAhead && from + i < blocks; i++)
          word |= static_cast<uint32_t>(row.index_scales[from + i]) << (8 * i);
      }
    }
    CED_UNROLL
    for (uint32_t n = 0; n < kTiles; n++) {
      const auto *p = reinterpret_cast<const uint8_t *>(
          __shfl_sync(kAllLanes, reinterpret_cast<uint64_t>(codes), static_cast<int>(8 * n + g)));
      CED_UNROLL
      for (uint32_t i = 0; i < kAhead; i++)
        code[n][i] = p != nullptr && from + i < blocks
                         ? *reinterpret_cast<const uint32_t *>(p + 16 * (from + i) + 4 * t)
                         : 0;
      scales[n][0] = __shfl_sync(kAllLanes, word, static_cast<int>(8 * n + 2 * t));
      scales[n][1] = __shfl_sync(kAllLanes, word, static_cast<int>(8 * n + 2 * t + 1));
    }
  }
  // Of block i; 2^-127, which no quantiser writes, counts as 0.
  __device__ float scale(int n, int key, uint32_t i) const {
    const uint32_t word = scales[n][key];
    return f32_of((i < 3 ? word << (23 - 8 * i) : word >> 1) & 0x7F800000u);
  }
};

// Scores of a warp's 32 keys with all heads, of keys 2t and 2t + 1 of each tile: products of codes in integers, block by
// block of 32 channels, then dot = sum over blocks in order of integer * (query scale * key scale), whose products are
// exact. Of the heads, a lane adds its own in ascending order (g, g+8, g+16, ...), then the lanes of a key in the order of
// the shuffles 4, 8, 16. kPair tiles of heads share a decoded key; two are all that there are, of 128 channels or fewer.
template <int kPair>
__device__ void score_keys(const Layout &at_, const unsigned char *q, const ced_kv &kv, int32_t slot,
                           KeyTiles &keys, float total[KeyTiles::kTiles][2]) {
  constexpr int kTiles = KeyTiles::kTiles;
  const auto *q_scales = reinterpret_cast<const float *>(q + at_.scales);
  const auto *offsets = reinterpret_cast<const int32_t *>(q + at_.offsets);
  const auto *w = reinterpret_cast<const float *>(q + at_.w);
  const uint32_t lane = threadIdx.x % 32, g = lane / 4;
  constexpr bool kOnce = kPair == 2;
  const uint32_t tiles = kOnce ? kPair : at_.heads / kHeadTile,
                 all = kOnce ? uint32_t{KeyTiles::kAhead} : at_.blocks;
  for (uint32_t m = 0; m < tiles; m += kPair) {
    float dot[kPair][kTiles][4] = {};
    for (uint32_t from = 0; from < all; from += KeyTiles::kAhead) {
      keys.load(kv, slot, from, at_.blocks);
      CED_UNROLL
      for (uint32_t i = 0; i < KeyTiles::kAhead; i++) {
        const uint32_t b = from + i;
        if (b >= at_.blocks) break;  // the same for all lanes
        CED_UNROLL
        for (int n = 0; n < kTiles; n++) {
          const uint32_t columns[2] = {decode(keys.code[n][i]), decode(keys.code[n][i] >> 16)};
          const float s0 = keys.scale(n, 0, i), s1 = keys.scale(n, 1, i);
          CED_UNROLL
          for (uint32_t e = 0; e < kPair; e++) {
            const uint32_t h = (m + e) * kHeadTile + g;
            const uint4 words = load16(q + (((m + e) * at_.blocks + b) * 32 + lane) * 16);
            const uint32_t operand[4] = {words.x, words.y, words.z, words.w};
            const float low = q_scales[h * at_.blocks + b], high = q_scales[(h + 8) * at_.blocks + b];
            const int32_t zero = kFloatBits + offsets[h * at_.blocks + b],
                          high_zero = kFloatBits + offsets[(h + 8) * at_.blocks + b];
            const int32_t zeros[4] = {zero, zero, high_zero, high_zero};
            int32_t d[4];
            ptx::mma_m16n8k32_s8u8(d, operand, columns, zeros);
            float *sum = dot[e][n];
            const auto product = [&](int c) { return f32_of(static_cast<uint32_t>(d[c])) - kFloatZero; };
            sum[0] = fmaf(product(0), low * s0, sum[0]), sum[1] = fmaf(product(1), low * s1, sum[1]);
            sum[2] = fmaf(product(2), high * s0, sum[2]), sum[3] = fmaf(product(3), high * s1, sum[3]);
          }
        }
      }
    }
    CED_UNROLL
    for (uint32_t e = 0; e < kPair; e++)
      for (uint32_t half = 0; half < 2; half++) {
        const float weight = w[(m + e) * kHeadTile + g + 8 * half];
        const uint32_t pair = pack_bf16(weight, weight);
        CED_UNROLL
        for (int n = 0; n < kTiles; n++) {
          const float *sum = dot[e][n] + 2 * half;
          const uint32_t v = ptx::mul_bf16x2(ptx::positive_bf16x2(sum[0], sum[1]), pair);
          total[n][0] += low_bf16(v), total[n][1] += high_bf16(v);
        }
      }
  }
  CED_UNROLL
  for (int n = 0; n < kTiles; n++)
    for (int i = 0; i < 2; i++)
      for (int lanes = 4; lanes < 32; lanes *= 2)
        total[n][i] += __shfl_xor_sync(kAllLanes, total[n][i], lanes);
}

// Blocks walk over a row's keys, 256 at a time, and write their scores, maxima of candidate blocks (whose size divides
// 256) and, for selections that are shared out, counts by the upper byte. Positions without a group score 0.
template <bool kRestricted, int kPair>
__global__ void __launch_bounds__(kThreads, 2)
    score_kernel(ced_csa2_index_args a, Layout at_, int32_t first) {
  DYN_SMEM(unsigned char, q);
  SHARED(float, sums, kBlockKeys);
  SHARED(Score, kept, kBlockKeys);
  SHARED(uint32_t, bins, (kCopies + 1) * kBins);  // the last one is of maxima
  const int32_t r = first + static_cast<int32_t>(blockIdx.y);
  if (r >= row_count(a.rows)) return;
  const int32_t seen = seen_of(a, r), slot = at<const int32_t>(at<const ced_rows>(a.rows)->slot)[r];
  const bool maxima = !kRestricted && a.publish != 0 && kBlockKeys % a.block == 0;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  Score *scores = at_.scores_of(a, blockIdx.y), *most = at_.maxima_of(a, blockIdx.y);
  for (uint64_t i = 16 * threadIdx.x; i < at_.query; i += 16 * kThreads)
    store16(q + i, load16(at_.query_of(a, r) + i));
  for (uint32_t i = threadIdx.x; i < (kCopies + 1) * kBins; i += kThreads) bins[i] = 0;
  __syncthreads();
  for (uint32_t p0 = blockIdx.x * kBlockKeys; p0 < at_.keys; p0 += gridDim.x * kBlockKeys) {
    if (group_of<kRestricted>(a, r, seen, p0) < 0)
      break;  // the same for all threads, and no later one has any
    KeyTiles keys;
    keys.group = group_of<kRestricted>(a, r, seen, p0 + threadIdx.x);
    float total[KeyTiles::kTiles][2] = {};
    score_keys<kPair>(at_, q, a.kv, slot, keys, total);
    CED_UNROLL
    for (uint32_t n = 0; n < KeyTiles::kTiles; n++)
      for (uint32_t i = 0; i < 2; i++)
        if (g == 0) sums[warp * kWarpKeys + 8 * n + 2 * t + i] = total[n][i];
    __syncthreads();
    const bool there = keys.group >= 0;
    const Score score = there ? score_of(f32_to_bf16(sums[threadIdx.x])) : Score{0};
    kept[threadIdx.x] = score;
    if (maxima) __syncthreads();
    scores[p0 + threadIdx.x] = score;
    if (at_.split && there) atomicAdd(&bins[lane % kCopies * kBins + (score >> 8)], 1u);
    const auto block = p0 + threadIdx.x * a.block;
    if (maxima && threadIdx.x * a.block < kBlockKeys && static_cast<int64_t>(block) < seen) {
      Score best = kForced;  // the block of the newest group
      if (static_cast<int64_t>(block) + a.block < seen) {
        best = 0;
        for (uint32_t i = 0; i < a.block; i++) {
          const Score v = kept[threadIdx.x * a.block + i];
          best = v > best ? v : best;
        }
      }
      most[block / a.block] = best;
      if (at_.split) atomicAdd(&bins[kCopies * kBins + (best >> 8)], 1u);
    }
    __syncthreads();  // sums and kept may be used again
  }
  if (!at_.split) return;
  __syncthreads();  // blocks without keys
  uint32_t n = 0;
  for (uint32_t c = 0; c < kCopies; c++) n += bins[c * kBins + threadIdx.x];
  if (n > 0) atomicAdd(&at_.selection_of(a, r, 0)->high[threadIdx.x], n);
  if (bins[kCopies * kBins + threadIdx.x] > 0)
    atomicAdd(&at_.selection_of(a, r, 1)->high[threadIdx.x], bins[kCopies * kBins + threadIdx.x]);
}

// Maxima of candidate blocks of any size, out of the scores.
__global__ void __launch_bounds__(kThreads) maxima_kernel(ced_csa2_index_args a, Layout at_, int32_t first) {
  const int32_t r = first + static_cast<int32_t>(blockIdx.y);
  if (r >= row_count(a.rows)) return;
  const auto seen = static_cast<uint32_t>(seen_of(a, r));
  const uint32_t b = blockIdx.x * kThreads + threadIdx.x;
  if (uint64_t{b} * a.block >= seen) return;
  const Score *scores = at_.scores_of(a, blockIdx.y);
  Score most = 0;
  for (uint32_t j = b * a.block; j < (b + 1) * a.block && j < seen; j++)
    most = scores[j] > most ? scores[j] : most;
  if ((b + 1) * a.block >= seen) most = kForced;  // the block of the newest group
  at_.maxima_of(a, blockIdx.y)[b] = most;
  if (at_.split) atomicAdd(&at_.selection_of(a, r, 1)->high[most >> 8], 1u);
}

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

  __device__ Choice(const ced_csa2_index_args &a, const Layout &at_, int32_t r, uint32_t i, bool of_blocks)
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
__device__ Cut find_cut(const Choice &c, const Selection &s, uint32_t *found, uint32_t *part) {
  if (c.n <= c.k) return c.all();
  uint32_t ties = c.k;
  const uint32_t high = cut_bin(s.high, found, part, &ties), low = cut_bin(s.low, found, part, &ties);
  return c.cut(high << 8 | low, ties);
}

// Counts the lower bytes of a chunk's keys in the bin of the cut.
__global__ void __launch_bounds__(kSelectThreads, 2)
    narrow_kernel(ced_csa2_index_args a, Layout at_, int32_t first) {
  SHARED(uint32_t, count, kBins);
  SHARED(uint32_t, part, kSelectThreads / 32);
  SHARED(uint32_t, found, 2);
  const int32_t r = first + static_cast<int32_t>(blockIdx.y);
  if (r >= row_count(a.rows)) return;
  const Choice c(a, at_, r, blockIdx.y, blockIdx.z != 0);
  if (c.n <= c.k || blockIdx.x * kChunk >= c.n) return;
  Selection *s = at_.selection_of(a, r, blockIdx.z);
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
    count_kernel(ced_csa2_index_args a, Layout at_, int32_t first) {
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
    place_kernel(ced_csa2_index_args a, Layout at_, int32_t first) {
  SHARED(uint32_t, part, kSelectThreads / 32);
  SHARED(uint32_t, found, 2);
  const int32_t r = first + static_cast<int32_t>(blockIdx.y);
  if (r >= row_count(a.rows)) return;
  const Choice c(a, at_, r, blockIdx.y, blockIdx.z != 0);
  const bool last = (blockIdx.x + 1) * kChunk >= c.n;
  if (blockIdx.x > 0 && blockIdx.x * kChunk >= c.n) return;
  const Cut cut = find_cut(c, *at_.selection_of(a, r, blockIdx.z), found, part);
  const ChunkCount *counts = at_.counts_of(a, r, blockIdx.z);
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
    select_kernel(ced_csa2_index_args a, Layout at_, int32_t first, bool blocks) {
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
    write_kernel(ced_csa2_index_args a, Layout at_, int32_t first) {
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

// Blocks enough to fill the device twice.
template <bool kRestricted>
int launch_scores(ced_stream *s, const ced_csa2_index_args &a, const Layout &at_, int32_t first,
                  uint32_t rows, ced_err *err) {
  const uint32_t pieces = static_cast<uint32_t>(at_.keys / kBlockKeys),
                 share = ceil_div(4 * static_cast<uint32_t>(cuda_of(s).processors), rows);
  const Grid grid{dim3(std::min(pieces, share), rows), kThreads, at_.query};
  return at_.heads == 2 * kHeadTile && at_.blocks <= KeyTiles::kAhead
             ? launch(s, err, "csa2_index", grid, score_kernel<kRestricted, 2>, a, at_, first)
             : launch(s, err, "csa2_index", grid, score_kernel<kRestricted, 1>, a, at_, first);
}

}  // namespace

uint64_t csa2_index_cuda_workspace(const ced_csa2_index_args &a) { return Layout(a).bytes(a.max_rows); }

int csa2_index_cuda(ced_stream *s, const ced_csa2_index_args &a, ced_err *err) {
  const char *name = "csa2_index";
  const Layout at_(a);
  CED_TRY(launch(s, err, name, {dim3(row_blocks(a.max_rows).x, at_.heads), 128}, query_kernel, a, at_));
  for (uint32_t from = 0; from < a.max_rows; from += at_.rows) {
    const uint32_t rows = a.max_rows - from < at_.rows ? a.max_rows - from : at_.rows;
    const auto first = static_cast<int32_t>(from);
    const Grid row{rows, kSelectThreads},
        chunk{dim3(static_cast<uint32_t>(at_.chunks), rows, a.publish != 0 ? 2 : 1), kSelectThreads};
    if (a.restrict_ != 0) {
      CED_TRY(launch_scores<true>(s, a, at_, first, rows, err));
      CED_TRY(launch(s, err, name, row, select_kernel<true>, a, at_, first, false));
    } else {
      CED_TRY(launch_scores<false>(s, a, at_, first, rows, err));
      if (a.publish != 0 && kBlockKeys % a.block != 0) {
        const dim3 pieces(ceil_div(static_cast<uint32_t>(at_.maxima), kThreads), rows);
        CED_TRY(launch(s, err, name, {pieces, kThreads}, maxima_kernel, a, at_, first));
      }
      if (at_.split) {
        CED_TRY(launch(s, err, name, chunk, narrow_kernel, a, at_, first));
        CED_TRY(launch(s, err, name, chunk, count_kernel, a, at_, first));
        CED_TRY(launch(s, err, name, chunk, place_kernel, a, at_, first));
      } else {
        if (a.publish != 0) CED_TRY(launch(s, err, name, row, select_kernel<false>, a, at_, first, true));
        CED_TRY(launch(s, err, name, row, select_kernel<false>, a, at_, first, false));
      }
    }
    if (a.scores != 0)
      CED_TRY(launch(s, err, name, {dim3(ceil_div(a.score_stride, kSelectThreads), rows), kSelectThreads},
                     write_kernel, a, at_, first));
  }
  return CED_OK;
}

}  // namespace ced
