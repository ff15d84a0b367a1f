// The form for prompts, with the bits of the other: a block has 64 heads of a row, so that each key is fetched and
// dequantised once for all of them. Its two groups of four warps take turns: one makes the probabilities of 64 keys, the
// other meanwhile dequantises most of the next 64; then each adds its half of P V and dequantises some of the rest. A block goes from row to row without a break.
//
// Keys and queries lie in tiles of 64 rows by 64 channels, rows of 128 bytes whose 16-byte pieces change places by the
// row: what ldmatrix reads without conflicts, and what wgmma wants of keys in both products.
#include "kernel/csa2_attend/csa2_attend_gpu.h"

namespace ced {
namespace {

constexpr uint32_t kHeads = 64, kWarps = 8, kThreads = 32 * kWarps, kGroup = kThreads / 2;
constexpr uint32_t kTile = 64 * 128, kProbabilities = kBlock + 8;
constexpr uint32_t kSlotBlocks = 3, kPlaces = 4;  // blocks of keys that are in use or looked up

// Piece p of row r of a set of tiles.
__device__ inline uint32_t piece(uint32_t r, uint32_t p) {
  return p / 8 * kTile + 128 * r + 16 * (p % 8 ^ r % 8);
}

// p pieces on from one whose number is a multiple of a power of two above p; all are offsets in shared memory.
__device__ inline uint32_t further(uint32_t piece, uint32_t p) {
  return (piece ^ 16 * (p % 8)) + p / 8 * kTile;
}

// A block of 64 slots, of a row's key list, in the order of a block's work. A block without any key is left out, unless
// the row has no other. No row: the end.
struct Place {
  RowKeys keys;
  int32_t row;
  uint32_t b, end;  // end: behind the row's last selected slot
  bool first;       // of its row

  // All lanes of a warp come here.
  __device__ void open(const ced_csa2_attend_args &a, int32_t r) {
    row = r < row_count(a.rows) ? r : -1, first = true, b = 0, end = a.window;
    if (row < 0) return;
    keys = RowKeys(a, static_cast<size_t>(row));
    const auto *sel = at<const int32_t>(a.sel) + static_cast<size_t>(row) * a.top_k;
    if (a.sel != 0)
      for (uint32_t i = 0; i < a.top_k; i += 32) {
        const uint32_t j = i + threadIdx.x % 32;
        end += static_cast<uint32_t>(__popc(__ballot_sync(kAllLanes, j < a.top_k && sel[j] >= 0)));
      }
    if (!find(a)) b = 0;
  }
  __device__ void advance(const ced_csa2_attend_args &a) {
    if (row < 0) return;
    b++, first = false;
    if (!find(a)) open(a, row + static_cast<int32_t>(gridDim.x));
  }
  __device__ Key key(const ced_csa2_attend_args &a, uint32_t i) const {
    if (b * kBlock + i >= width_of(a)) return {nullptr, nullptr, false};
    return keys.key(a, static_cast<size_t>(row), b * kBlock + i);
  }

 private:
  // To the first block from b on with a key.
  __device__ bool find(const ced_csa2_attend_args &a) {
    if (b * kBlock < static_cast<uint32_t>(keys.seen)) return true;
    if (b < a.window / kBlock) b = a.window / kBlock;
    return end > a.window && b * kBlock < end;
  }
};

// What a block keeps in shared memory behind the queries, in bytes.
template <uint32_t kDim>
struct Shared {
  static constexpr uint32_t kRows = kDim / 64 * kTile;  // 64 keys or queries
  static constexpr uint32_t kKeys = kRows, kP = 3 * kRows, kSlots = kP + kHeads * kProbabilities * 2,
                            kCarry = kSlots + kSlotBlocks * kBlock * sizeof(Key), kTop = kCarry + 4 * kHeads,
                            kTotal = kTop + 4 * kHeads, kPlace = kTotal + 4 * kHeads,
                            kEnd = kPlace + kPlaces * sizeof(Place);
};

// The queries of 64 heads of a row, zeros where there is no head, on their way to shared memory.
template <uint32_t kDim>
__device__ void ask_queries(const ced_csa2_attend_args &a, int32_t row, uint32_t head0, unsigned char *q) {
  const auto *from = at<const uint16_t>(a.q) + (static_cast<size_t>(row) * a.heads + head0) * kDim;
  constexpr uint32_t kPieces = kDim / 8, kAtOnce = kThreads / kPieces, kEqual = kAtOnce < 8 ? 8 : kAtOnce;
  const uint32_t thread = ptx::thread_x(), p = thread % kPieces;
  for (uint32_t first = thread / kPieces; first < kEqual; first += kAtOnce) {
    unsigned char *to = q + piece(first, p);
    CED_UNROLL
    for (uint32_t h = 0; h < kHeads; h += kEqual) {
      const bool there = head0 + first + h < a.heads;
      ptx::cp_async16_or_zero(to + 128 * h, from + (there ? (first + h) * kDim + 8 * p : 0), there);
    }
  }
}

// Dequantises 64 keys. A warp takes a unit at a time: 32 channels a lane, of kKeys keys. Eight lanes write a piece of four
// keys and of both halves of a tile's row each, which fill the 128 bytes of the banks.
template <uint32_t kDim>
struct Fill {
  static constexpr uint32_t kGroups = kDim / 32 < 8 ? kDim / 32 : 8, kKeys = 32 / kGroups;
  static constexpr uint32_t kParts = kDim / 32 / kGroups, kUnits = kBlock / kKeys * kParts;

  uint32_t key, group;  // of unit 0
  Channels<2> channels;

  __device__ Fill() {
    const uint32_t lane = ptx::thread_x() % 32;
    key = lane / 2 % 4 + 4 * (lane / 8 / (kGroups / 2)), group = lane % 2 + 2 * (lane / 8 % (kGroups / 2));
  }
  __device__ void load(const Key *slots, uint32_t unit) {
    channels.load<(kDim + kDim / 32) % 16 == 0>(slots[unit / kParts * kKeys + key],
                                                32 * (unit % kParts * kGroups + group));
  }
  __device__ void store(unsigned char *keys, uint32_t unit) const {
    const uint32_t j = unit / kParts * kKeys + key, p = 4 * (unit % kParts * kGroups + group);
    channels.expand_to([&](uint32_t i, const uint4 *v) {
      store16(keys + piece(j, p + 2 * i), v[0]), store16(keys + piece(j, p + 2 * i + 1), v[1]);
    });
  }
};

// A warp's 16 heads with 64 keys along the whole head. A lane gets heads g and g + 8, keys 8n + 2t and 8n + 2t + 1.
template <uint32_t kDim, bool kWgmma>
struct Scores;

template <uint32_t kDim>
struct Scores<kDim, true> {
  ptx::Wgmma<static_cast<int>(kBlock)> sum;

  __device__ void start(const unsigned char *memory, uint32_t keys) {
    sum.zero();
    sum.begin();
    CED_UNROLL
    for (uint32_t tile = 0; tile < kDim / 64; tile++)
      for (int part = 0; part < 4; part++)
        sum.step_shared(memory + tile * kTile, memory + keys + tile * kTile, part);
  }
  __device__ void finish() { sum.wait(); }
  __device__ float get(uint32_t n, uint32_t i) const { return sum.d[n][i]; }
};

template <uint32_t kDim>
struct Scores<kDim, false> {
  float d[kBlock / 8][4];

  __device__ void start(const unsigned char *memory, uint32_t keys) {
    const uint32_t lane = ptx::thread_x() % 32;
    const uint32_t q = piece(ptx::thread_x() / 32 % 4 * 16 + lane % 16, lane / 16);
    keys += piece(lane % 8, lane / 8);
    CED_UNROLL
    for (uint32_t n = 0; n < kBlock / 8; n++)
      for (uint32_t i = 0; i < 4; i++) d[n][i] = 0;
    for (uint32_t p = 0; p < kDim / 8; p += 4) {
      uint32_t x[4], y[4];
      ptx::ldmatrix_x4(x, memory + further(q, p)), ptx::ldmatrix_x4(y, memory + further(q, p + 2));
      const unsigned char *row = memory + further(keys, p);
      CED_UNROLL
      for (uint32_t n = 0; n < kBlock / 8; n++) {
        uint32_t k[4];
        ptx::ldmatrix_x4(k, row + 1024 * n);
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
  const uint32_t lane = ptx::thread_x() % 32, g = lane / 4, t = lane % 4;
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
    const uint32_t h = ptx::thread_x() / 32 % 4 * 16 + g + 8 * i;
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
      p[4 * n] = ptx::round_bf16x2(low, high);
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
  const uint32_t lane = ptx::thread_x() % 32;
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

  __device__ static uint32_t head() { return ptx::thread_x() / 32 % 4 * 16; }
  __device__ static uint32_t channel() { return ptx::thread_x() / kGroup * (kDim / 2); }
  __device__ float &at(uint32_t, uint32_t n, uint32_t i) {
    return sum[n / (kColumns / 8)].d[n % (kColumns / 8)][i];
  }
  __device__ void start(const unsigned char *memory, uint32_t keys) {
    uint32_t weights[4][4];
    CED_UNROLL
    for (uint32_t k = 0; k < 4; k++) load_weights(memory + Shared<kDim>::kP, head(), k, weights[k]);
    CED_UNROLL
    for (uint32_t part = 0; part < kParts; part++) sum[part].begin();
    CED_UNROLL
    for (int k = 0; k < 4; k++)
      for (uint32_t part = 0; part < kParts; part++)
        sum[part].step_transposed(weights[k], memory + keys + (channel() + part * kColumns) / 64 * kTile, k);
  }
  __device__ void finish() {
    CED_UNROLL
    for (uint32_t part = 0; part < kParts; part++) sum[part].wait();
  }
};

template <uint32_t kDim>
struct Values<kDim, false> {
  static constexpr uint32_t kMatrices = 2, kTiles = kDim / 32;
  float sum[kMatrices][kTiles][4];

  __device__ static uint32_t head() { return ptx::thread_x() / 32 % 2 * 32; }
  __device__ static uint32_t channel() { return ptx::thread_x() / 64 * (kDim / 4); }
  __device__ float &at(uint32_t m, uint32_t n, uint32_t i) { return sum[m][n][i]; }
  __device__ void start(const unsigned char *memory, uint32_t keys) {
    keys += piece(ptx::thread_x() % 32, channel() / 8);
    for (uint32_t half = 0; half < 2; half++) {
      uint32_t weights[kMatrices][2][4];
      CED_UNROLL
      for (uint32_t i = 0; i < 2 * kMatrices; i++)
        load_weights(memory + Shared<kDim>::kP, head() + i / 2 * 16, 2 * half + i % 2, weights[i / 2][i % 2]);
      CED_UNROLL
      for (uint32_t n = 0; n < kTiles; n++) {
        uint32_t v[4];
        ptx::ldmatrix_x4_trans(v, memory + further(keys + 4096 * half, n));
        CED_UNROLL
        for (uint32_t m = 0; m < kMatrices; m++) {
          ptx::mma_m16n8k16_bf16(sum[m][n], weights[m][0], v);
          ptx::mma_m16n8k16_bf16(sum[m][n], weights[m][1], v + 2);
        }
      }
    }
  }
  __device__ void finish() {}
};

template <class V>
__device__ void clear(V &values) {
  CED_UNROLL
  for (uint32_t m = 0; m < V::kMatrices; m++)
    for (uint32_t n = 0; n < V::kTiles; n++)
      for (uint32_t i = 0; i < 4; i++) values.at(m, n, i) = 0;
}

// Another block of keys.
template <uint32_t kDim, class V>
__device__ void start_values(V &values, const unsigned char *memory, uint32_t keys) {
  const uint32_t g = ptx::thread_x() % 32 / 4;
  const auto *carry = reinterpret_cast<const float *>(memory + Shared<kDim>::kCarry);
  CED_UNROLL
  for (uint32_t m = 0; m < V::kMatrices; m++) {
    const float low = carry[V::head() + 16 * m + g], high = carry[V::head() + 16 * m + g + 8];
    if (!__any_sync(kAllLanes, low != 1 || high != 1)) continue;
    CED_UNROLL
    for (uint32_t n = 0; n < V::kTiles; n++)
      for (uint32_t i = 0; i < 4; i++) values.at(m, n, i) *= i < 2 ? low : high;
  }
  values.start(memory, keys);
}

// A row's output; the sinks join the denominators.
template <uint32_t kDim, class V>
__device__ void put_values(V &values, const ced_csa2_attend_args &a, int32_t row, uint32_t head0,
                           const unsigned char *memory) {
  const auto *top = reinterpret_cast<const float *>(memory + Shared<kDim>::kTop),
             *total = reinterpret_cast<const float *>(memory + Shared<kDim>::kTotal);
  const Weights sinks(a.sink, CED_F32);
  const uint32_t lane = ptx::thread_x() % 32, g = lane / 4, t = lane % 4;
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
          ptx::round_bf16x2(values.at(m, n, 2 * i) * share, values.at(m, n, 2 * i + 1) * share);
  }
}

template <uint32_t kDim, bool kWgmma>
__global__ void __launch_bounds__(kThreads, 1)
    csa2_attend_prefill_kernel(ced_csa2_attend_args a, float scale) {
  DYN_SMEM(unsigned char, memory);
  using S = Shared<kDim>;
  const int32_t count = row_count(a.rows);
  if (count <= static_cast<int32_t>(kSplitRows) || static_cast<int32_t>(blockIdx.x) >= count) return;
  const uint32_t head0 = blockIdx.y * kHeads;
  // What one group dequantises; wgmma leaves time for the last eight units beside P V.
  constexpr int kUnits = static_cast<int>(Fill<kDim>::kUnits - (kWgmma ? kWarps : 0));
  const auto keys = [](uint32_t n) { return S::kKeys + n % 2 * S::kRows; };
  const auto slots = [&](uint32_t n) {
    return reinterpret_cast<Key *>(memory + S::kSlots) + n % kSlotBlocks * kBlock;
  };

  const auto place = [&](uint32_t n) -> Place & {
    return reinterpret_cast<Place *>(memory + S::kPlace)[n % kPlaces];
  };

  if (threadIdx.x < 32) {
    Place p;
    p.open(a, static_cast<int32_t>(blockIdx.x));
    Place q = p;
    q.advance(a);
    if (threadIdx.x == 0) place(0).row = -1, place(1) = p, place(2) = q;
  }
  __syncthreads();
  if (threadIdx.x < kBlock) slots(1)[threadIdx.x] = place(1).key(a, threadIdx.x);
  __syncthreads();

  Values<kDim, kWgmma> values;
  clear(values);
  for (uint32_t n = 0; place(n).row >= 0 || place(n + 1).row >= 0; n++) {
    const uint32_t thread = ptx::thread_x() % kGroup;
    if (ptx::thread_x() / kGroup == n % 2) {
      Scores<kDim, kWgmma> scores;
      if (place(n).row >= 0) scores.start(memory, keys(n));
      if (thread < 32) {
        Place p = place(n + 2);
        p.advance(a);
        if (thread == 0) place(n + 3) = p;
      }
      if (place(n).row >= 0) {
        scores.finish();
        soften<kDim>(scores, scale, slots(n), place(n).first, memory);
      }
    } else if (place(n + 1).row >= 0) {
      const int first = static_cast<int>(thread / 32);
      Fill<kDim> even, odd;
      if (first < kUnits) even.load(slots(n + 1), first), odd.load(slots(n + 1), first + 4);
      if (thread < kBlock && place(n + 2).row >= 0) slots(n + 2)[thread] = place(n + 2).key(a, thread);
      for (int unit = first; unit < kUnits; unit += 8) {
        even.store(memory + keys(n + 1), unit);
        if (unit + 8 < kUnits) even.load(slots(n + 1), unit + 8);
        odd.store(memory + keys(n + 1), unit + 4);
        if (unit + 8 < kUnits) odd.load(slots(n + 1), unit + 12);
      }
      ptx::wgmma_visible();
    }
    __syncthreads();
    const int32_t row = place(n).row, next = place(n + 1).row;
    Fill<kDim> rest;
    const uint32_t unit = kUnits + ptx::thread_x() / 32;
    if (kWgmma && next >= 0) rest.load(slots(n + 1), unit);
    if (next >= 0 && next != row) ask_queries<kDim>(a, next, head0, memory);
    if (row >= 0) start_values<kDim>(values, memory, keys(n));
    if (kWgmma && next >= 0) rest.store(memory + keys(n + 1), unit);
    if (row >= 0) values.finish();
    if (next != row) {
      if (row >= 0) put_values<kDim>(values, a, row, head0, memory);
      clear(values);
      ptx::cp_async_commit(), ptx::cp_async_wait<0>();
    }
    ptx::wgmma_visible();
    __syncthreads();
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
