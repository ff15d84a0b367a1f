// The form for prompts, with the bits of the other: a block has 64 heads of a row, so that each key is fetched and
// dequantised once for all of them. Its two groups of four warps take turns: one makes the probabilities of 64 keys, the
// other meanwhile dequantises the next 64; then each adds its half of P V. A block goes from row to row without a break.
//
// Keys and queries lie in tiles of 64 rows by 64 channels, rows of 128 bytes whose 16-byte pieces change places by the
// row: what ldmatrix reads without conflicts, and what wgmma wants of keys in both products.
#include "kernel/csa2_attend/csa2_attend_gpu.h"

namespace ced {
namespace {

constexpr uint32_t kHeads = 64, kWarps = 8, kThreads = 32 * kWarps, kGroup = kThreads / 2;
constexpr uint32_t kTile = 64 * 128, kProbabilities = kBlock + 8;
constexpr uint32_t kSlotBlocks = 3;  // blocks of keys whose places are known: in use, next, the one after

// What a block keeps in shared memory, in bytes.
template <uint32_t kDim>
struct Shared {
  static constexpr uint32_t kRows = kDim / 64 * kTile;  // 64 keys or queries
  static constexpr uint32_t kQueries = 0, kKeys = kRows, kP = 3 * kRows,
                            kSlots = kP + kHeads * kProbabilities * 2,
                            kCarry = kSlots + kSlotBlocks * kBlock * sizeof(Key), kTop = kCarry + 4 * kHeads,
                            kTotal = kTop + 4 * kHeads, kEnd = kTotal + 4 * kHeads;
};

// Piece p of row r of a set of tiles.
__device__ inline uint32_t place(uint32_t r, uint32_t p) {
  return p / 8 * kTile + 128 * r + 16 * (p % 8 ^ r % 8);
}

// A block of 64 slots in a block's work: of which row, and whether it is the row's first or last. No row: the end.
struct Step {
  int32_t row;
  bool first, last;
};

// The blocks of slots that hold keys, row by row; a row without any has one that holds none.
class Walk {
 public:
  __device__ Walk(const ced_csa2_attend_args &a, int32_t count)
      : count_(count), row_(static_cast<int32_t>(blockIdx.x)), keys_(a, blockIdx.x) {
    open(a);
  }
  // Fills the places of the 64 slots and goes on; threads from kBlock on help with the latter only.
  __device__ Step take(const ced_csa2_attend_args &a, uint32_t thread, Key *slots) {
    if (row_ >= count_) return {-1, false, false};
    if (thread < kBlock) {
      const uint32_t i = b_ * kBlock + thread;
      slots[thread] =
          i < width_of(a) ? keys_.key(a, static_cast<size_t>(row_), i) : Key{nullptr, nullptr, false};
    }
    Step step{row_, first_, false};
    b_ = next(a, b_ + 1), first_ = false;
    if (b_ * kBlock < width_of(a)) return step;
    step.last = true;
    row_ += static_cast<int32_t>(gridDim.x);
    if (row_ < count_) keys_ = RowKeys(a, static_cast<size_t>(row_)), open(a);
    return step;
  }

 private:
  __device__ void open(const ced_csa2_attend_args &a) {
    const auto *sel = at<const int32_t>(a.sel) + static_cast<size_t>(row_) * a.top_k;
    end_ = a.window;
    if (a.sel != 0)
      for (uint32_t i = 0; i < a.top_k; i += 32) {
        const uint32_t j = i + threadIdx.x % 32;
        end_ += static_cast<uint32_t>(__popc(__ballot_sync(kAllLanes, j < a.top_k && sel[j] >= 0)));
      }
    b_ = next(a, 0), first_ = true;
    if (b_ * kBlock >= width_of(a)) b_ = 0;
  }
  // The first block from b on with a key.
  __device__ uint32_t next(const ced_csa2_attend_args &a, uint32_t b) const {
    if (b * kBlock < static_cast<uint32_t>(keys_.seen)) return b;
    if (b < a.window / kBlock) b = a.window / kBlock;
    return end_ > a.window && b * kBlock < end_ ? b : ceil_div(width_of(a), kBlock);
  }

  int32_t count_, row_;
  RowKeys keys_;
  uint32_t b_ = 0, end_ = 0;  // end_: behind the last selected slot
  bool first_ = true;
};

// The queries of 64 heads of a row, zeros where there is no head, on their way to shared memory.
template <uint32_t kDim>
__device__ void ask_queries(const ced_csa2_attend_args &a, int32_t row, uint32_t head0, unsigned char *q) {
  const auto *from = at<const uint16_t>(a.q) + (static_cast<size_t>(row) * a.heads + head0) * kDim;
  CED_UNROLL
  for (uint32_t i = 0; i < kHeads * kDim / 8 / kThreads; i++) {
    const uint32_t piece = i * kThreads + threadIdx.x, h = piece / (kDim / 8), p = piece % (kDim / 8);
    const bool there = head0 + h < a.heads;
    ptx::cp_async16_or_zero(q + place(h, p), from + (there ? h * kDim + 8 * p : 0), there);
  }
}

// Dequantises 64 keys, with kWorkers warps of which this is one. A warp takes kGroups groups of 16 channels of kKeys keys
// at a time; eight lanes write pieces of both parities, which fill the 128 bytes of the banks.
template <uint32_t kDim, uint32_t kWorkers>
class Fill {
  static constexpr uint32_t kGroups = kDim / 16 < 16 ? kDim / 16 : 16, kKeys = 32 / kGroups;
  static constexpr uint32_t kParts = kDim / 16 / kGroups, kItems = kBlock / kKeys * kParts / kWorkers;
  static constexpr uint32_t kAhead = kItems < 4 ? kItems : 4;

 public:
  __device__ Fill(const Key *slots, uint32_t worker) : slots_(slots), worker_(worker) {
    const uint32_t lane = threadIdx.x % 32;
    key_ = lane / 4 % 2 + 2 * (lane / 8 / (kGroups / 4)), group_ = lane % 4 + 4 * (lane / 8 % (kGroups / 4));
  }
  // Asks for the first items; finish() needs them.
  __device__ void start() {
    CED_UNROLL
    for (uint32_t i = 0; i < kAhead; i++) load(i);
  }
  __device__ void finish(unsigned char *keys) {
    CED_UNROLL
    for (uint32_t i = 0; i < kItems; i++) {
      uint4 v[2];
      channels_[i % kAhead].expand_to(v);
      const uint32_t j = key(i), p = 2 * group(i);
      store16(keys + place(j, p), v[0]), store16(keys + place(j, p + 1), v[1]);
      if (i + kAhead < kItems) load(i + kAhead);
    }
  }

 private:
  __device__ uint32_t key(uint32_t i) const { return (i / kParts * kWorkers + worker_) * kKeys + key_; }
  __device__ uint32_t group(uint32_t i) const { return i % kParts * kGroups + group_; }
  __device__ void load(uint32_t i) {
    channels_[i % kAhead].template load<(kDim + kDim / 32) % 16 == 0>(slots_[key(i)], 16 * group(i));
  }

  const Key *slots_;
  uint32_t worker_, key_, group_;
  Channels channels_[kAhead];
};

// A warp's 16 heads with 64 keys along the whole head. A lane gets heads g and g + 8, keys 8n + 2t and 8n + 2t + 1.
template <uint32_t kDim, bool kWgmma>
struct Scores;

template <uint32_t kDim>
struct Scores<kDim, true> {
  ptx::Wgmma<static_cast<int>(kBlock)> sum;

  __device__ void start(const unsigned char *q, const unsigned char *keys) {
    sum.zero();
    sum.begin();
    CED_UNROLL
    for (uint32_t tile = 0; tile < kDim / 64; tile++)
      for (int part = 0; part < 4; part++) sum.step_shared(q + tile * kTile, keys + tile * kTile, part);
  }
  __device__ void finish() { sum.wait(); }
  __device__ float get(uint32_t n, uint32_t i) const { return sum.d[n][i]; }
};

template <uint32_t kDim>
struct Scores<kDim, false> {
  float d[kBlock / 8][4];

  __device__ void start(const unsigned char *q, const unsigned char *keys) {
    const uint32_t lane = threadIdx.x % 32, head = threadIdx.x / 32 % 4 * 16 + lane % 16;
    CED_UNROLL
    for (uint32_t n = 0; n < kBlock / 8; n++)
      for (uint32_t i = 0; i < 4; i++) d[n][i] = 0;
    for (uint32_t p = 0; p < kDim / 8; p += 4) {
      uint32_t x[4], y[4];
      ptx::ldmatrix_x4(x, q + place(head, p + lane / 16)),
          ptx::ldmatrix_x4(y, q + place(head, p + 2 + lane / 16));
      CED_UNROLL
      for (uint32_t n = 0; n < kBlock / 8; n++) {
        uint32_t k[4];
        ptx::ldmatrix_x4(k, keys + place(8 * n + lane % 8, p + lane / 8));
        ptx::mma_m16n8k16_bf16(d[n], x, k);
        ptx::mma_m16n8k16_bf16(d[n], y, k + 2);
      }
    }
  }
  __device__ void finish() {}
  __device__ float get(uint32_t n, uint32_t i) const { return d[n][i]; }
};

// A block's part of the softmax for a warp's 16 heads: probabilities, rounded, what earlier sums are to be multiplied by,
// and the running maximum and sum. Sums go as a warp_sum does over lanes that have two neighbouring keys each.
template <uint32_t kDim, class S>
__device__ void soften(const S &scores, float scale, const Key *slots, bool first, unsigned char *memory) {
  const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  auto *carry = reinterpret_cast<float *>(memory + Shared<kDim>::kCarry),
       *top = reinterpret_cast<float *>(memory + Shared<kDim>::kTop),
       *total = reinterpret_cast<float *>(memory + Shared<kDim>::kTotal);
  uint32_t there = 0;
  CED_UNROLL
  for (uint32_t n = 0; n < kBlock / 8; n++)
    for (uint32_t c = 0; c < 2; c++)
      there |= (slots[8 * n + 2 * t + c].codes != nullptr ? 1u : 0u) << (2 * n + c);
  CED_UNROLL
  for (uint32_t i = 0; i < 2; i++) {
    const uint32_t h = threadIdx.x / 32 % 4 * 16 + g + 8 * i;
    float l[kBlock / 8][2], most = -INFINITY;
    CED_UNROLL
    for (uint32_t n = 0; n < kBlock / 8; n++)
      for (uint32_t c = 0; c < 2; c++) {
        l[n][c] = (there >> (2 * n + c) & 1) != 0 ? scores.get(n, 2 * i + c) * scale : -INFINITY;
        most = f32_max(most, l[n][c]);
      }
    for (int m = 2; m > 0; m /= 2) most = f32_max(most, __shfl_xor_sync(kAllLanes, most, m));
    const float before = first ? kNoKeyYet : top[h], next = f32_max(before, most);
    float sum[kBlock / 8];
    auto *p = reinterpret_cast<uint32_t *>(memory + Shared<kDim>::kP) + h * (kProbabilities / 2) + t;
    CED_UNROLL
    for (uint32_t n = 0; n < kBlock / 8; n++) {
      const float low = expf(l[n][0] - next), high = expf(l[n][1] - next);
      p[4 * n] = pack_bf16(low, high);
      sum[n] = low + high;
    }
    CED_UNROLL
    for (uint32_t m = 4; m > 0; m /= 2)
      for (uint32_t n = 0; n < m; n++) sum[n] += sum[n + m];
    for (int m = 2; m > 0; m /= 2) sum[0] += __shfl_xor_sync(kAllLanes, sum[0], m);
    const float factor = expf(before - next);
    __syncwarp();  // all have read
    if (t == 0) {
      carry[h] = factor, top[h] = next;
      total[h] = (first ? 0 : total[h]) * factor + sum[0];
    }
  }
}

// The probabilities of 16 heads from `head` on, with keys 16k.. of a block, as operand A.
__device__ inline void load_weights(const unsigned char *p, uint32_t head, uint32_t k, uint32_t weights[4]) {
  const uint32_t lane = threadIdx.x % 32;
  ptx::ldmatrix_x4(weights, reinterpret_cast<const uint16_t *>(p) + (head + lane % 16) * kProbabilities +
                                16 * k + lane / 16 * 8);
}

// A warp's part of the output: kMatrices times 16 heads from head() on, kTiles times 8 channels from channel() on. Of each
// block of keys the sums so far are scaled to the new maximum, then P V is added.
template <uint32_t kDim, bool kWgmma>
struct Values;

template <uint32_t kDim>
struct Values<kDim, true> {
  static constexpr uint32_t kMatrices = 1, kTiles = kDim / 16;
  static constexpr uint32_t kColumns = kDim < 256 ? kDim / 2 : 128, kParts = kDim / 2 / kColumns;
  ptx::Wgmma<static_cast<int>(kColumns)> sum[kParts];

  __device__ static uint32_t head() { return threadIdx.x / 32 % 4 * 16; }
  __device__ static uint32_t channel() { return threadIdx.x / kGroup * (kDim / 2); }
  __device__ float &at(uint32_t, uint32_t n, uint32_t i) {
    return sum[n / (kColumns / 8)].d[n % (kColumns / 8)][i];
  }
  __device__ void add(const unsigned char *p, const unsigned char *keys) {
    uint32_t weights[4][4];
    CED_UNROLL
    for (uint32_t k = 0; k < 4; k++) load_weights(p, head(), k, weights[k]);
    CED_UNROLL
    for (uint32_t part = 0; part < kParts; part++) sum[part].begin();
    CED_UNROLL
    for (int k = 0; k < 4; k++)
      for (uint32_t part = 0; part < kParts; part++)
        sum[part].step_transposed(weights[k], keys + (channel() + part * kColumns) / 64 * kTile, k);
    CED_UNROLL
    for (uint32_t part = 0; part < kParts; part++) sum[part].wait();
  }
};

template <uint32_t kDim>
struct Values<kDim, false> {
  static constexpr uint32_t kMatrices = 2, kTiles = kDim / 32;
  float sum[kMatrices][kTiles][4];

  __device__ static uint32_t head() { return threadIdx.x / 32 % 2 * 32; }
  __device__ static uint32_t channel() { return threadIdx.x / 64 * (kDim / 4); }
  __device__ float &at(uint32_t m, uint32_t n, uint32_t i) { return sum[m][n][i]; }
  __device__ void add(const unsigned char *p, const unsigned char *keys) {
    for (uint32_t half = 0; half < 2; half++) {
      uint32_t weights[kMatrices][2][4];
      CED_UNROLL
      for (uint32_t i = 0; i < 2 * kMatrices; i++)
        load_weights(p, head() + i / 2 * 16, 2 * half + i % 2, weights[i / 2][i % 2]);
      CED_UNROLL
      for (uint32_t n = 0; n < kTiles; n++) {
        uint32_t v[4];
        ptx::ldmatrix_x4_trans(v, keys + place(32 * half + threadIdx.x % 32, channel() / 8 + n));
        CED_UNROLL
        for (uint32_t m = 0; m < kMatrices; m++) {
          ptx::mma_m16n8k16_bf16(sum[m][n], weights[m][0], v);
          ptx::mma_m16n8k16_bf16(sum[m][n], weights[m][1], v + 2);
        }
      }
    }
  }
};

template <class V>
__device__ void clear(V &values) {
  CED_UNROLL
  for (uint32_t m = 0; m < V::kMatrices; m++)
    for (uint32_t n = 0; n < V::kTiles; n++)
      for (uint32_t i = 0; i < 4; i++) values.at(m, n, i) = 0;
}

// Another block of keys.
template <class V>
__device__ void add_values(V &values, const unsigned char *p, const float *carry, const unsigned char *keys) {
  const uint32_t g = threadIdx.x % 32 / 4;
  CED_UNROLL
  for (uint32_t m = 0; m < V::kMatrices; m++) {
    const float low = carry[V::head() + 16 * m + g], high = carry[V::head() + 16 * m + g + 8];
    if (!__any_sync(kAllLanes, low != 1 || high != 1)) continue;
    CED_UNROLL
    for (uint32_t n = 0; n < V::kTiles; n++)
      for (uint32_t i = 0; i < 4; i++) values.at(m, n, i) *= i < 2 ? low : high;
  }
  values.add(p, keys);
}

// A row's output; the sinks join the denominators.
template <uint32_t kDim, class V>
__device__ void put_values(V &values, const ced_csa2_attend_args &a, int32_t row, uint32_t head0,
                           const unsigned char *memory) {
  const auto *top = reinterpret_cast<const float *>(memory + Shared<kDim>::kTop),
             *total = reinterpret_cast<const float *>(memory + Shared<kDim>::kTotal);
  const Weights sinks(a.sink, CED_F32);
  const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  CED_UNROLL
  for (uint32_t m = 0; m < V::kMatrices; m++) CED_UNROLL
  for (uint32_t i = 0; i < 2; i++) {
    const uint32_t h = V::head() + 16 * m + g + 8 * i;
    if (head0 + h >= a.heads) continue;
    const float share = 1 / (total[h] + expf(sinks[head0 + h] - top[h]));
    uint16_t *o =
        at<uint16_t>(a.o) + (static_cast<size_t>(row) * a.heads + head0 + h) * kDim + V::channel() + 2 * t;
    CED_UNROLL
    for (uint32_t n = 0; n < V::kTiles; n++)
      *reinterpret_cast<uint32_t *>(o + 8 * n) =
          pack_bf16(values.at(m, n, 2 * i) * share, values.at(m, n, 2 * i + 1) * share);
  }
}

template <uint32_t kDim, bool kWgmma>
__global__ void __launch_bounds__(kThreads, 1)
    csa2_attend_prefill_kernel(ced_csa2_attend_args a, float scale) {
  DYN_SMEM(unsigned char, memory);
  using S = Shared<kDim>;
  const int32_t count = row_count(a.rows);
  if (count <= static_cast<int32_t>(kSplitRows) || static_cast<int32_t>(blockIdx.x) >= count) return;
  const uint32_t head0 = blockIdx.y * kHeads, group = threadIdx.x / kGroup, thread = threadIdx.x % kGroup;
  unsigned char *q = memory + S::kQueries;
  const auto keys = [&](uint32_t n) { return memory + S::kKeys + n % 2 * S::kRows; };
  const auto slots = [&](uint32_t n) {
    return reinterpret_cast<Key *>(memory + S::kSlots) + n % kSlotBlocks * kBlock;
  };
  const auto *carry = reinterpret_cast<const float *>(memory + S::kCarry);

  Walk walk(a, count);
  Step now = walk.take(a, threadIdx.x, slots(0)), next = walk.take(a, threadIdx.x, slots(1));
  ask_queries<kDim>(a, now.row, head0, q);
  __syncthreads();
  {
    Fill<kDim, kWarps> fill(slots(0), threadIdx.x / 32);
    fill.start(), fill.finish(keys(0));
  }
  ptx::cp_async_commit(), ptx::cp_async_wait<0>(), ptx::wgmma_visible();
  __syncthreads();

  Values<kDim, kWgmma> values;
  clear(values);
  for (uint32_t n = 0; now.row >= 0; n++) {
    Step after{-1, false, false};
    if (group == n % 2) {
      Scores<kDim, kWgmma> scores;
      scores.start(q, keys(n));
      if (next.row >= 0) after = walk.take(a, kBlock, nullptr);
      scores.finish();
      soften<kDim>(scores, scale, slots(n), now.first, memory);
    } else if (next.row >= 0) {
      Fill<kDim, kWarps / 2> fill(slots(n + 1), thread / 32);
      fill.start();
      after = walk.take(a, thread, slots(n + 2));
      fill.finish(keys(n + 1));
      ptx::wgmma_visible();
    }
    __syncthreads();
    if (now.last && next.row >= 0) ask_queries<kDim>(a, next.row, head0, q);
    add_values(values, memory + S::kP, carry, keys(n));
    if (now.last) {
      put_values<kDim>(values, a, now.row, head0, memory);
      clear(values);
      ptx::cp_async_commit(), ptx::cp_async_wait<0>(), ptx::wgmma_visible();
    }
    __syncthreads();
    now = next, next = after;
  }
}

template <uint32_t kDim>
int launch_rows(ced_stream *s, const ced_csa2_attend_args &a, float scale, ced_err *err) {
  const CudaStream &c = cuda_of(s);
  const uint32_t groups = ceil_div(a.heads, kHeads),
                 most = ceil_div(static_cast<unsigned>(c.processors), groups);
  const Grid grid{dim3(a.max_rows < most ? a.max_rows : most, groups), kThreads, Shared<kDim>::kEnd};
  return c.wgmma ? launch(s, err, "csa2_attend", grid, csa2_attend_prefill_kernel<kDim, true>, a, scale)
                 : launch(s, err, "csa2_attend", grid, csa2_attend_prefill_kernel<kDim, false>, a, scale);
}

}  // namespace

bool csa2_attend_prefills(const ced_stream *s, const ced_csa2_attend_args &a) {
  // With few heads a block would work for rows that are not there.
  if (a.max_rows <= kSplitRows || a.heads <= 16) return false;
  return (a.head_dim == 128 && cuda_of(s).shared_bytes >= Shared<128>::kEnd) ||
         (a.head_dim == 512 && cuda_of(s).shared_bytes >= Shared<512>::kEnd);
}

int csa2_attend_prefill_cuda(ced_stream *s, const ced_csa2_attend_args &a, float scale, ced_err *err) {
  return a.head_dim == 128 ? launch_rows<128>(s, a, scale, err) : launch_rows<512>(s, a, scale, err);
}

}  // namespace ced
