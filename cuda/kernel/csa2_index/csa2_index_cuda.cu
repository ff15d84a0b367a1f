#include "kernel/csa2_index/csa2_index.h"
#include "kernel/row_gpu.h"
#include "num/quant.h"

namespace ced {
namespace {

constexpr uint32_t kHeadTile = 16;                                      // rows of an mma
constexpr uint32_t kWarpKeys = 32, kWarps = 8, kThreads = 32 * kWarps;  // keys of a warp; of a block: 256
constexpr uint32_t kBlockKeys = kWarpKeys * kWarps;
constexpr uint32_t kOffset = 12;  // added to twice a key's value: 0..24
constexpr uint32_t kSelectThreads = 512;
constexpr uint64_t kScoreBytes = uint64_t{64} << 20;  // of the scores that are kept at a time

__host__ __device__ constexpr uint64_t padded(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

// The workspace: prepared queries of all rows, then scores and block maxima of `rows` rows at a time.
//   words   [tiles][blocks][32 lanes][4]  operand A of mma_m16n8k32_s8u8: twice the FP4 values
//   scales  [heads, blocks]   a quarter of the scale: both sides are doubled
//   offsets [heads, blocks]   -kOffset times the sum of the block's values
//   w       [heads]
struct Layout {
  uint32_t heads, blocks;  // heads: padded to whole tiles
  uint64_t words, scales, offsets, w, query, groups, maxima;
  uint32_t rows;

  __host__ __device__ explicit Layout(const ced_csa2_index_args &a)
      : heads(static_cast<uint32_t>(padded(a.heads, kHeadTile))),
        blocks(a.kv.index_dim / 32),
        words(0),
        scales(uint64_t{heads} * a.kv.index_dim),
        offsets(scales + uint64_t{heads} * blocks * 4),
        w(offsets + uint64_t{heads} * blocks * 4),
        query(padded(w + uint64_t{heads} * 4, 64)),
        groups(padded(a.max_groups > 0 ? a.max_groups : 1, 64)),
        maxima(a.publish ? padded(a.max_groups / a.block + 1, 64) : 0),
        rows(0) {
    const uint64_t fit = kScoreBytes / (2 * (groups + maxima));
    rows = static_cast<uint32_t>(fit < 1 ? 1 : fit < a.max_rows ? fit : a.max_rows > 0 ? a.max_rows : 1);
  }
  __host__ __device__ uint64_t bytes(uint32_t max_rows) const {
    return query * max_rows + 2 * uint64_t{rows} * (groups + maxima);
  }
  __device__ unsigned char *query_of(const ced_csa2_index_args &a, int32_t r) const {
    return at<unsigned char>(a.workspace) + static_cast<uint64_t>(r) * query;
  }
  // i: the row within those kept at a time.
  __device__ Score *scores_of(const ced_csa2_index_args &a, uint32_t i) const {
    return reinterpret_cast<Score *>(at<unsigned char>(a.workspace) + query * a.max_rows) + i * groups;
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
__global__ void __launch_bounds__(128, 1) query_kernel(ced_csa2_index_args a) {
  SHARED(float, x, kMaxIndexDim);
  const Layout at_(a);
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

// Scores that nobody computes, of restricted rows: all are outside the candidate blocks until shown otherwise.
__global__ void __launch_bounds__(kThreads) mask_kernel(ced_csa2_index_args a, int32_t first) {
  const Layout at_(a);
  const int32_t r = first + static_cast<int32_t>(blockIdx.y);
  if (r >= row_count(a.rows)) return;
  const uint64_t i = 8 * (uint64_t{blockIdx.x} * kThreads + threadIdx.x);
  if (i < at_.groups)
    store16(at_.scores_of(a, blockIdx.y) + i, make_uint4(0x007F007F, 0x007F007F, 0x007F007F, 0x007F007F));
}

// Four codes to twice their values plus kOffset, a byte each: b and -b to 12+b and 12-b without borrows.
__device__ uint32_t decode(uint32_t codes) {
  const uint32_t magnitude = ptx::pick_bytes(0x03020100u, 0x0C080604u, codes);
  const uint32_t negative = ptx::pick_bytes(0x00000000u, 0x0F0F0F0Fu, (codes & 0x8888u) >> 1);
  return 0x0C0C0C0Cu + magnitude - ((magnitude & negative) << 1);
}

// A warp scores 32 keys with all heads: products of codes in integers, block by block of 32 channels, then
// dot = sum over blocks in order of integer * (query scale * key scale). Of the heads, a lane adds its own in ascending
// order (g, g+8, g+16, ...), then the lanes of a key in the order of the shuffles 4, 8, 16.
template <bool kRestricted>
__global__ void __launch_bounds__(kThreads) score_kernel(ced_csa2_index_args a, int32_t first) {
  DYN_SMEM(unsigned char, q);
  const Layout at_(a);
  const int32_t r = first + static_cast<int32_t>(blockIdx.y);
  if (r >= row_count(a.rows)) return;
  const int32_t seen = seen_of(a, r), slot = at<const int32_t>(at<const ced_rows>(a.rows)->slot)[r];
  const int32_t *blocks =
      kRestricted ? at<const int32_t>(a.candidates) + static_cast<size_t>(r) * a.max_blocks : nullptr;
  // Position p of the scan is group p, or place p % block of the candidate block p / block; -1 is none.
  const auto group = [&](uint32_t p) -> int32_t {
    if (!kRestricted) return static_cast<int64_t>(p) < seen ? static_cast<int32_t>(p) : -1;
    if (p / a.block >= a.max_blocks || blocks[p / a.block] < 0) return -1;
    const int64_t j = static_cast<int64_t>(blocks[p / a.block]) * a.block + p % a.block;
    return j < seen ? static_cast<int32_t>(j) : -1;
  };
  const uint32_t p0 = blockIdx.x * kBlockKeys;
  if (kRestricted ? p0 / a.block >= a.max_blocks || blocks[p0 / a.block] < 0
                  : p0 >= static_cast<uint32_t>(seen))
    return;
  for (uint64_t i = 16 * threadIdx.x; i < at_.query; i += 16 * kThreads)
    store16(q + i, load16(at_.query_of(a, r) + i));
  __syncthreads();
  const auto *q_scales = reinterpret_cast<const float *>(q + at_.scales);
  const auto *offsets = reinterpret_cast<const int32_t *>(q + at_.offsets);
  const auto *w = reinterpret_cast<const float *>(q + at_.w);

  constexpr int kTiles = kWarpKeys / 8;
  const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, p = p0 + threadIdx.x / 32 * kWarpKeys;
  const uint8_t *codes[kTiles], *scales[kTiles];  // of key g of each tile
  for (uint32_t n = 0; n < kTiles; n++) {
    const int32_t j = group(p + 8 * n + g);
    codes[n] = scales[n] = nullptr;
    if (j < 0) continue;
    const KvRow row = kv_row(a.kv, slot, j);
    codes[n] = row.index_codes + 4 * t, scales[n] = row.index_scales;
  }
  float total[kTiles][2] = {};
  for (uint32_t m = 0; m < at_.heads / kHeadTile; m++) {
    float dot[kTiles][4] = {};
    const uint32_t h = m * kHeadTile + g;
    for (uint32_t b = 0; b < at_.blocks; b++) {
      const uint4 words = load16(q + ((m * at_.blocks + b) * 32 + lane) * 16);
      const uint32_t operand[4] = {words.x, words.y, words.z, words.w};
      const float low = q_scales[h * at_.blocks + b], high = q_scales[(h + 8) * at_.blocks + b];
      const int32_t low_offset = offsets[h * at_.blocks + b], high_offset = offsets[(h + 8) * at_.blocks + b];
      for (uint32_t n = 0; n < kTiles; n++) {
        const uint32_t key = codes[n] != nullptr ? *reinterpret_cast<const uint32_t *>(codes[n] + 16 * b) : 0;
        const uint32_t scale = codes[n] != nullptr ? scales[n][b] : 0;
        const uint32_t columns[2] = {decode(key), decode(key >> 16)};
        int32_t d[4] = {};
        ptx::mma_m16n8k32_s8u8(d, operand, columns);
        const float s0 =
            e8m0_to_f32(static_cast<uint8_t>(__shfl_sync(kAllLanes, scale, static_cast<int>(8 * t))));
        const float s1 =
            e8m0_to_f32(static_cast<uint8_t>(__shfl_sync(kAllLanes, scale, static_cast<int>(8 * t + 4))));
        dot[n][0] += static_cast<float>(d[0] + low_offset) * (low * s0);
        dot[n][1] += static_cast<float>(d[1] + low_offset) * (low * s1);
        dot[n][2] += static_cast<float>(d[2] + high_offset) * (high * s0);
        dot[n][3] += static_cast<float>(d[3] + high_offset) * (high * s1);
      }
    }
    for (int n = 0; n < kTiles; n++)
      for (int i = 0; i < 4; i++)
        total[n][i % 2] +=
            bf16_round(f32_max(bf16_round(dot[n][i]), 0) * w[h + 8 * static_cast<uint32_t>(i / 2)]);
  }
  for (uint32_t n = 0; n < kTiles; n++)
    for (uint32_t i = 0; i < 2; i++) {
      for (int lanes = 4; lanes < 32; lanes *= 2)
        total[n][i] += __shfl_xor_sync(kAllLanes, total[n][i], lanes);
      const int32_t j = g == 0 ? group(p + 8 * n + 2 * t + i) : -1;
      if (j >= 0) at_.scores_of(a, blockIdx.y)[j] = score_of(f32_to_bf16(total[n][i]));
    }
}

__global__ void __launch_bounds__(kThreads) maxima_kernel(ced_csa2_index_args a, int32_t first) {
  const Layout at_(a);
  const int32_t r = first + static_cast<int32_t>(blockIdx.y);
  if (r >= row_count(a.rows)) return;
  const auto seen = static_cast<uint32_t>(seen_of(a, r));
  const uint32_t b = blockIdx.x * kThreads + threadIdx.x;
  if (uint64_t{b} * a.block >= seen) return;
  const Score *scores = at_.scores_of(a, blockIdx.y);
  Score most = 0;
  for (uint32_t j = b * a.block; j < (b + 1) * a.block && j < seen; j++)
    most = scores[j] > most ? scores[j] : most;
  const bool newest = (b + 1) * a.block >= seen;
  at_.maxima_of(a, blockIdx.y)[b] = newest ? kForced : most;
}

// The largest bin whose keys, with those of the bins above, number at least *k; *k becomes what it has to give. The
// block's first 256 threads have a bin each.
__device__ uint32_t cut(const uint32_t *count, uint32_t *found, uint32_t *k) {
  if (threadIdx.x < 256) {
    uint32_t above = 0;
    for (uint32_t b = 255; b > threadIdx.x; b--) above += count[b];
    if (above < *k && above + count[threadIdx.x] >= *k) found[0] = threadIdx.x, found[1] = *k - above;
  }
  __syncthreads();
  *k = found[1];
  return found[0];
}

// A block for a row: the k largest of its keys, ties to the lower index, in ascending order; then -1. Two passes count by
// a byte each, a third one writes. kBlocks: candidate blocks from maxima, of which masked ones are left out after the
// choice; else groups from scores.
template <bool kBlocks>
__global__ void __launch_bounds__(kSelectThreads, 1) select_kernel(ced_csa2_index_args a, int32_t first) {
  SHARED(uint32_t, count, 256);
  SHARED(uint32_t, part, kSelectThreads / 32);
  SHARED(uint32_t, found, 2);
  const Layout at_(a);
  const int32_t r = first + static_cast<int32_t>(blockIdx.x);
  if (r >= row_count(a.rows)) return;
  const auto seen = static_cast<uint32_t>(seen_of(a, r));
  const uint32_t n = kBlocks ? ceil_div(seen, a.block) : seen, k = kBlocks ? a.max_blocks : a.top_k;
  const Score *keys = kBlocks ? at_.maxima_of(a, blockIdx.x) : at_.scores_of(a, blockIdx.x);
  int32_t *out = at<int32_t>(kBlocks ? a.candidates : a.sel) + static_cast<size_t>(r) * k;
  // Eight keys at i; those past the end are 0, less than any score.
  const auto load = [&](uint32_t i, Score key[8]) {
    const uint4 v = i < n ? load16(keys + i) : make_uint4(0, 0, 0, 0);
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
    for (uint32_t e = 0; e < 8; e++)
      key[e] = i + e < n ? static_cast<Score>(words[e / 2] >> (16 * (e % 2))) : Score{0};
  };
  Score key[8];
  uint32_t threshold = 0, ties = n;  // all, if there are no more than k
  if (n > k) {
    ties = k;
    for (int pass = 0; pass < 2; pass++) {
      if (threadIdx.x < 256) count[threadIdx.x] = 0;
      __syncthreads();
      for (uint32_t i = 8 * threadIdx.x; i < n; i += 8 * kSelectThreads) {
        load(i, key);
        for (uint32_t e = 0; e < 8 && i + e < n; e++) {
          if (pass == 0) {
            atomicAdd(&count[key[e] >> 8], 1u);
          } else if (key[e] >> 8 == threshold) {
            atomicAdd(&count[key[e] & 255], 1u);
          }
        }
      }
      __syncthreads();
      const uint32_t bin = cut(count, found, &ties);
      threshold = pass == 0 ? bin : threshold << 8 | bin;
      __syncthreads();  // found has been read
    }
  }
  uint32_t equal = 0, written = 0;  // before this piece
  for (uint32_t from = 0; from < n; from += 8 * kSelectThreads) {
    const uint32_t i = from + 8 * threadIdx.x;
    load(i, key);
    uint32_t mine = 0, all = 0;
    for (const Score v : key) mine += v == threshold && n > k;
    uint32_t tie = equal + block_scan<kSelectThreads>(mine, part, &all);
    equal += all;
    uint32_t taken = 0, mask = 0;
    for (uint32_t e = 0; e < 8; e++) {
      bool take = i + e < n;
      if (n > k) {
        const bool even = key[e] == threshold;
        take = take && (key[e] > threshold || (even && tie < ties));
        tie += even ? 1 : 0;
      }
      if (kBlocks) take = take && key[e] != kMasked;
      mask |= static_cast<uint32_t>(take) << e, taken += take ? 1 : 0;
    }
    uint32_t place = written + block_scan<kSelectThreads>(taken, part, &all);
    written += all;
    for (uint32_t e = 0; e < 8; e++)
      if ((mask >> e & 1u) != 0) out[place++] = static_cast<int32_t>(i + e);
  }
  for (uint32_t i = written + threadIdx.x; i < k; i += kSelectThreads) out[i] = -1;
}

__global__ void __launch_bounds__(kThreads) write_kernel(ced_csa2_index_args a, int32_t first) {
  const Layout at_(a);
  const int32_t r = first + static_cast<int32_t>(blockIdx.y);
  if (r >= row_count(a.rows)) return;
  const auto seen = static_cast<uint32_t>(seen_of(a, r));
  const uint32_t j = blockIdx.x * kThreads + threadIdx.x;
  if (j >= a.score_stride) return;
  at<float>(a.scores)[static_cast<size_t>(r) * a.score_stride + j] =
      score_value(j < seen ? at_.scores_of(a, blockIdx.y)[j] : kMasked);
}

}  // namespace

uint64_t csa2_index_cuda_workspace(const ced_csa2_index_args &a) { return Layout(a).bytes(a.max_rows); }

int csa2_index_cuda(ced_stream *s, const ced_csa2_index_args &a, ced_err *err) {
  const char *name = "csa2_index";
  const Layout at_(a);
  CED_TRY(launch(s, err, name, {dim3(row_blocks(a.max_rows).x, at_.heads), 128}, query_kernel, a));
  for (uint32_t from = 0; from < a.max_rows; from += at_.rows) {
    const uint32_t rows = a.max_rows - from < at_.rows ? a.max_rows - from : at_.rows;
    const auto first = static_cast<int32_t>(from);
    const auto pieces = [&](uint64_t n, uint32_t of) {
      return dim3(static_cast<uint32_t>((n + of - 1) / of), rows);
    };
    if (a.restrict_ != 0) {
      const uint64_t scan =
          std::min<uint64_t>(uint64_t{a.max_blocks} * a.block, padded(a.max_groups, a.block));
      CED_TRY(launch(s, err, name, {pieces(at_.groups, 8 * kThreads), kThreads}, mask_kernel, a, first));
      CED_TRY(launch(s, err, name, {pieces(scan, kBlockKeys), kThreads, at_.query}, score_kernel<true>, a,
                     first));
    } else {
      CED_TRY(launch(s, err, name, {pieces(a.max_groups, kBlockKeys), kThreads, at_.query},
                     score_kernel<false>, a, first));
    }
    if (a.publish != 0) {
      CED_TRY(launch(s, err, name, {pieces(at_.maxima, kThreads), kThreads}, maxima_kernel, a, first));
      CED_TRY(launch(s, err, name, {rows, kSelectThreads}, select_kernel<true>, a, first));
    }
    CED_TRY(launch(s, err, name, {rows, kSelectThreads}, select_kernel<false>, a, first));
    if (a.scores != 0)
      CED_TRY(launch(s, err, name, {pieces(a.score_stride, kThreads), kThreads}, write_kernel, a, first));
  }
  return CED_OK;
}

}  // namespace ced
