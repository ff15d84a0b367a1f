// Scores: a row's keys are scored by blocks that walk over them; csa2_index_select_cuda.cu then selects the best. Where a
// row may have many keys, they are counted by the upper byte of their score on the way. A restricted row has the keys of
// its candidate blocks, in their order, and nothing else is looked at.
#include "kernel/csa2_index/csa2_index_gpu.h"
#include "num/quant.h"

namespace ced {
namespace {

constexpr uint32_t kOffset = 12;            // added to twice a key's value: 0..24
constexpr int32_t kFloatBits = 0x4B400000;  // 1.5 * 2^23: of an integer added to them, the float
constexpr float kFloatZero = 12582912.0f;   // less this is the integer

// A block for a head of a row: RoPE, FP4, and its place in operand A. Padding heads are zero.
__global__ void __launch_bounds__(128, 1) query_kernel(ced_csa2_index_args a, IndexLayout at_) {
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
__device__ void score_keys(const IndexLayout &at_, const unsigned char *q, const ced_kv &kv, int32_t slot,
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
    score_kernel(ced_csa2_index_args a, IndexLayout at_, int32_t first) {
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
__global__ void __launch_bounds__(kThreads)
    maxima_kernel(ced_csa2_index_args a, IndexLayout at_, int32_t first) {
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

// Blocks enough to fill the device twice.
template <bool kRestricted>
int launch_scores(ced_stream *s, const ced_csa2_index_args &a, const IndexLayout &at_, int32_t first,
                  uint32_t rows, ced_err *err) {
  const uint32_t pieces = static_cast<uint32_t>(at_.keys / kBlockKeys),
                 share = ceil_div(4 * static_cast<uint32_t>(cuda_of(s).processors), rows);
  const Grid grid{dim3(std::min(pieces, share), rows), kThreads, at_.query};
  return at_.heads == 2 * kHeadTile && at_.blocks <= KeyTiles::kAhead
             ? launch(s, err, "csa2_index", grid, score_kernel<kRestricted, 2>, a, at_, first)
             : launch(s, err, "csa2_index", grid, score_kernel<kRestricted, 1>, a, at_, first);
}

}  // namespace

uint64_t csa2_index_cuda_workspace(const ced_csa2_index_args &a) { return IndexLayout(a).bytes(a.max_rows); }

int csa2_index_cuda(ced_stream *s, const ced_csa2_index_args &a, ced_err *err) {
  const char *name = "csa2_index";
  const IndexLayout at_(a);
  CED_TRY(launch(s, err, name, {dim3(row_blocks(a.max_rows).x, at_.heads), 128}, query_kernel, a, at_));
  for (uint32_t from = 0; from < a.max_rows; from += at_.rows) {
    const uint32_t rows = a.max_rows - from < at_.rows ? a.max_rows - from : at_.rows;
    const auto first = static_cast<int32_t>(from);
    if (a.restrict_ != 0) {
      CED_TRY(launch_scores<true>(s, a, at_, first, rows, err));
    } else {
      CED_TRY(launch_scores<false>(s, a, at_, first, rows, err));
      if (a.publish != 0 && kBlockKeys % a.block != 0) {
        const dim3 pieces(ceil_div(static_cast<uint32_t>(at_.maxima), kThreads), rows);
        CED_TRY(launch(s, err, name, {pieces, kThreads}, maxima_kernel, a, at_, first));
      }
    }
    CED_TRY(csa2_index_select(s, a, at_, first, rows, err));
  }
  return CED_OK;
}

}  // namespace ced
