#include "kernel/expert_gemm/packed_gpu.h"
#include "kernel/expert_gemm/tile_gpu.h"
#include "kernel/operand_gpu.h"
#include "kernel/row_gpu.h"
#include "kernel/stream_gpu.h"

namespace ced {
namespace {

constexpr uint32_t kStep = 64, kWarps = 8, kThreads = 32 * kWarps, kGroupThreads = 512;
constexpr uint32_t kArrivals = 33;  // of a stage, whatever it has
constexpr uint32_t kGroup = 32;     // channels of an item between the halves: a quantisation group

// The first block: the assignments of experts that are computed here by expert, each expert's in ascending order, and the
// tiles of rows that they make.
__device__ void group(const ced_expert_gemm_args &a, const ExpertWorkspace &work, uint32_t tile_rows,
                      uint32_t *part) {
  const auto *idx = at<const int32_t>(a.idx);
  auto *order = at<int32_t>(work.order);
  auto *list = at<unsigned char>(work.list);
  const int32_t routed = row_count(a.rows) * static_cast<int32_t>(a.top_k),
                experts = static_cast<int32_t>(a.experts_count), rows = static_cast<int32_t>(tile_rows);
  uint32_t placed = 0, tiled = 0;
  for (int32_t base = 0; base < experts; base += kGroupThreads) {
    const int32_t e = base + static_cast<int32_t>(threadIdx.x);
    uint32_t n = 0, all = 0;
    for (int32_t i = 0; i < routed; i++) n += idx[i] == e;
    if (n > 0 && !has_expert(a, e)) n = 0;
    uint32_t to = placed + block_scan<kGroupThreads>(n, part, &all);
    placed += all;
    uint32_t tile = tiled + block_scan<kGroupThreads>(ceil_div(n, tile_rows), part, &all);
    tiled += all;
    if (n == 0) continue;
    for (auto left = static_cast<int32_t>(n); left > 0; left -= rows, tile++) {
      store16(list + 16 * tile, make_uint4(static_cast<uint32_t>(e), to + n - static_cast<uint32_t>(left),
                                           static_cast<uint32_t>(left < rows ? left : rows), 0));
      at<uint32_t>(work.progress)[2 + tile] = 0;
    }
    for (int32_t i = 0; i < routed; i++)
      if (idx[i] == e) order[to++] = i;
  }
  if (threadIdx.x == 0)
    *at<int32_t>(work.tiles) = static_cast<int32_t>(tiled), at<uint32_t>(work.progress)[0] = 0,
    at<uint32_t>(work.progress)[1] = 0;
}

// The others, if there are any: x in the order of operands.
__global__ void __launch_bounds__(kGroupThreads, 1)
    group_kernel(ced_expert_gemm_args a, ExpertWorkspace work, uint32_t tile_rows) {
  SHARED(uint32_t, part, kGroupThreads / 32);
  if (blockIdx.x == 0) return group(a, work, tile_rows, part);
  const int32_t count = row_count(a.rows);
  const uint32_t pieces = 4 * Pack::steps(a.dim);
  for (auto row = static_cast<int32_t>(blockIdx.x) - 1; row < count;
       row += static_cast<int32_t>(gridDim.x) - 1) {
    const auto r = static_cast<size_t>(row);
    const auto *x = at<const unsigned char>(a.x) + r * a.dim,
               *scales = at<const unsigned char>(a.x_scales) + r * (a.dim / 32);
    for (uint32_t i = threadIdx.x; i < pieces; i += kGroupThreads) {
      Raw<CED_FP8> raw;
      raw.load<true, false>(x, 16 * i, a.dim);
      const Words o = expand(raw, 16 * i < a.dim ? scales[i / 2] : 127);
      auto *to = at<unsigned char>(work.x_words) + (r * pieces + i) * 32;
      store16(to, make_uint4(o.w[0], o.w[1], o.w[2], o.w[3]));
      store16(to + 16, make_uint4(o.w[4], o.w[5], o.w[6], o.w[7]));
    }
  }
}

// Quantises a group of 32 channels, and back, between the two halves of a packed expert: a lane for a channel.
__device__ inline void store_words(const ced_expert_gemm_args &a, const ExpertWorkspace &work, size_t place,
                                   uint32_t i0, float v) {
  const float s = act_scale(f32_of(warp_max(f32_bits(v) & 0x7FFFFFFFu)));
  const uint32_t lane = threadIdx.x % 32, quad = lane % 4;
  auto *to = at<uint16_t>(work.activation) + place * Pack::steps(a.inter) * 64 + i0 + lane - quad +
             (quad % 2 * 2 + quad / 2);
  to[0] = f32_to_bf16(e4m3_to_f32(f32_to_e4m3(v * (1.0f / s))) * s);
  if (i0 % 64 == 0 && i0 + 32 == a.inter) to[32] = 0;
}

// How an expert lies in memory.
enum class ExpertForm { kFp8, kFp4, kPacked };

using LargestRing = Ring<CED_FP8, 2, 2>;
constexpr uint32_t kStageBytes = LargestRing::stage_bytes(true);

// The work of a block: 32 channels of gate and up of a tile of rows, a quantisation group, or 16 of down (packed: 32).
// kOperands: x and activations are operands already.
template <ExpertForm kWeights, bool kDown_, bool kOperands_ = kWeights == ExpertForm::kPacked>
struct ExpertItems {
  static constexpr bool kPacked = kWeights == ExpertForm::kPacked, kDown = kDown_, kOperands = kOperands_;
  static constexpr ced_format kW = kWeights == ExpertForm::kFp8 ? CED_FP8 : CED_FP4;
  using R = std::conditional_t<kPacked, PackedRing<kDown ? Pack::kDownTiles : Pack::kUpTiles, kDown ? 2 : 1>,
                               Ring<kW, kDown ? 1 : 2, kDown ? 1 : 2>>;
  static_assert(R::stage_bytes(true) <= kStageBytes, "a stage has room for all rings");
  using Stream = std::conditional_t<kPacked, PackedStream<R, ExpertItems, kStageBytes>,
                                    WeightStream<R, ExpertItems, kStageBytes>>;
  static constexpr uint32_t kSums = R::kParts * R::kMatrices,  // 16 outputs each
      kChannels = kDown ? 16 * kSums : kGroup;

  const ced_expert_gemm_args &a;
  const ExpertWorkspace &work;
  uint32_t k, i0 = 0, tile_rows;
  int32_t number = -1;
  ExpertTile tile = {};

  __device__ ExpertItems(const ced_expert_gemm_args &args, const ExpertWorkspace &space, uint32_t rows)
      : a(args), work(space), k(kDown ? args.inter : args.dim), tile_rows(rows) {}
  __device__ uint32_t per_tile() const { return (kDown ? a.dim : a.inter) / kChannels; }
  __device__ uint32_t tiles() const {
    if (kW != CED_FP8) return static_cast<uint32_t>(*at<const int32_t>(work.tiles));
    return a.shared.w1 != 0 ? ceil_div(static_cast<uint32_t>(row_count(a.rows)), tile_rows) : 0;
  }
  __device__ uint32_t total() const { return tiles() * per_tile(); }
  // Experts start at any byte of a checkpoint; the ring wants them where copies can begin.
  __device__ bool open(uint32_t item) {
    uint32_t tile_number = item / per_tile(), channels = item % per_tile();
    if (kW == CED_FP8) {  // tiles of rows that share weights are neighbours
      const uint32_t n = tiles();
      tile_number = item % n, channels = item / n;
    }
    const auto t = static_cast<int32_t>(tile_number);
    i0 = channels * kChannels;
    if (t != number) {
      number = t;
      tile.find(a, work, t, static_cast<int32_t>(tile_rows), kW == CED_FP8 ? &a.shared : nullptr);
    }
    const ced_expert &e = *tile.expert;
    if (kPacked) return true;
    return k % 128 == 0 && (kDown ? aligned(e.w2, 16) && aligned(e.w2_scales, 4)
                                  : aligned(e.w1 | e.w3, 16) && aligned(e.w1_scales | e.w3_scales, 4));
  }
  // How many groups of activations there are of the rows that the item belongs to: a tile's, or all of the shared expert.
  __device__ uint32_t *groups() const {
    return at<uint32_t>(work.progress) + (kW == CED_FP8 ? 1 : 2 + number);
  }
  // Of the warp that stored a row's group, when it has.
  __device__ void group_done() const {
    __syncwarp();
    if (threadIdx.x % 32 != 0) return;
    __threadfence();
    atomicAdd(groups(), 1u);
  }
  // Returns when the rows that the item belongs to have all their activations.
  __device__ void await_groups() const {
    const int32_t rows = kW == CED_FP8 ? row_count(a.rows) : tile.n;
    const uint32_t all = static_cast<uint32_t>(rows) * (a.inter / kGroup);
    while (ptx::load_acquire(groups()) < all) __nanosleep(50);
  }
  __device__ const unsigned char *packed(uint32_t step) const {
    return at<const unsigned char>(kDown ? tile.expert->w2 : tile.expert->w1) +
           Pack::step(i0 / Pack::kChannels, step, k, R::kMatrices);
  }
  // Of gate (matrix 0) or up, and where its rows begin.
  __device__ const unsigned char *matrix(uint32_t m) const {
    return at<const unsigned char>(kDown ? tile.expert->w2 : m == 0 ? tile.expert->w1 : tile.expert->w3);
  }
  __device__ const unsigned char *matrix_scales(uint32_t m) const {
    return at<const unsigned char>(kDown    ? tile.expert->w2_scales
                                   : m == 0 ? tile.expert->w1_scales
                                            : tile.expert->w3_scales);
  }
  __device__ const unsigned char *row(uint32_t part, uint32_t r) const {
    return matrix(r / 16) + static_cast<size_t>(i0 + 16 * part + r % 16) * (k / 16) * bytes16(kW);
  }
  __device__ const unsigned char *scales(uint32_t part, uint32_t s) const {
    const uint32_t m = kW == CED_FP8 ? s : s / 16, i = i0 + 16 * part + (kW == CED_FP8 ? 0 : s % 16);
    return matrix_scales(m) + static_cast<size_t>(kW == CED_FP8 ? i / 32 : i) * (k / 32);
  }
};

// The sums of an item whose weights are read straight from memory, in the same order.
template <class Items, int kTiles, class X>
__device__ void direct_products(const Items &items, const X &x, float (&d)[Items::kSums][kTiles][4]) {
  using R = typename Items::R;
  const uint32_t lane = threadIdx.x % 32, g = lane / 4, k = items.k;
  CED_UNROLL
  for (uint32_t m = 0; m < R::kParts * R::kMatrices; m++) {
    for (uint32_t step = threadIdx.x / 32 * kStep; step < k; step += kWarps * kStep) {
      const uint32_t k0 = step + 16 * (lane % 4);
      Words w[2];
      CED_UNROLL
      for (uint32_t h = 0; h < 2; h++) {
        const uint32_t part = m / R::kMatrices, r = 16 * (m % R::kMatrices) + g + 8 * h;
        Raw<Items::kW> raw;
        raw.template load<false, true>(items.row(part, r), k0, k);
        w[h] = expand(raw, k0 < k ? items.scales(part, Items::kW == CED_FP8 ? r / 16 : r)[k0 / 32] : 127);
      }
      CED_UNROLL
      for (int j = 0; j < kTiles; j++) {
        Words operand;
        if constexpr (Items::kOperands) {
          load_words(operand, x.x[j] + 2 * k0);
        } else {
          Raw<CED_FP8> raw;
          raw.template load<true, false>(x.x[j], k0, x.x[j] != nullptr ? k : 0);
          operand = expand(raw, x.x[j] != nullptr && k0 < k ? x.scales[j][k0 / 32] : 127);
        }
        mma_step64(d[m][j], w[0], w[1], operand);
      }
    }
  }
}

// The four kinds of items in the order in which they are worked on: of gate and up, then of down, the shared expert's first.
template <ExpertForm kForm>
struct Kinds {
  static constexpr bool kOperands = kForm == ExpertForm::kPacked;
  ExpertItems<ExpertForm::kFp8, false, kOperands> shared_up;
  ExpertItems<kForm, false> up;
  ExpertItems<ExpertForm::kFp8, true, kOperands> shared_down;
  ExpertItems<kForm, true> down;

  __device__ Kinds(const ced_expert_gemm_args &a, const ExpertWorkspace &work, uint32_t tile_rows)
      : shared_up(a, work, tile_rows),
        up(a, work, tile_rows),
        shared_down(a, work, tile_rows),
        down(a, work, tile_rows) {}

  // From 9.0 on the ninth warp takes one item after the other, in the order of all, as fast as stages become free, and
  // labels their stages; what does not come through the ring has an empty one, and so has the end. It fills none for an item
  // of down before that item's activations are there: items of gate and up were all taken earlier, those of its tile long
  // ago, as a rule. Who finds the stage full finds them, too.
  __device__ void produce(Stages<kStageBytes> stages, uint32_t *taken) {
#if CED_ARCH >= 900
    const uint32_t n1 = shared_up.total(), n2 = n1 + up.total(), n3 = n2 + shared_down.total(),
                   all = n3 + down.total();
    for (uint32_t item = blockIdx.x; item < all;) {
      uint32_t after = 0;
      if (threadIdx.x % 32 == 0) after = gridDim.x + atomicAdd(taken, 1u);
      stages.label = item;
      if (item < n1) {
        fill(stages, shared_up, item);
      } else if (item < n2) {
        fill(stages, up, item - n1);
      } else if (item < n3) {
        fill(stages, shared_down, item - n2);
      } else {
        fill(stages, down, item - n3);
      }
      item = __shfl_sync(kAllLanes, after, 0);
    }
    stages.label = all;
    empty(stages);
#endif
  }

 private:
#if CED_ARCH >= 900
  template <class Items>
  __device__ static void fill(Stages<kStageBytes> &stages, Items &items, uint32_t item) {
    const bool ring = items.open(item);
    if (Items::kDown) {
      if (threadIdx.x % 32 == 0) items.await_groups();
      __syncwarp();
    }
    if (!ring) return empty(stages);
    typename Items::Stream weights(stages, items, item, item + 1);
    weights.produce();
    stages = weights.stages;
  }
  __device__ static void empty(Stages<kStageBytes> &stages) {
    stages.wait_free();
    if (threadIdx.x % 32 == 0) stages.expect(0);
    ptx::mbarrier_arrive(stages.full());
    stages.step();
  }
#endif
};

// Where the warps' sums of an item meet. From an item to the next one the places take turns, if there are two, and so do
// the warps that go on with the sums of a row.
template <int kTiles>
struct Sums {
  static constexpr uint32_t kPlaces = kTiles == 1 ? 2 : 1, kPlace = kWarps * 4 * kTiles * 4 * 32;
  float *part;
  uint32_t turn = 0;

  __device__ float *place() const { return part + turn % kPlaces * kPlace; }
  __device__ uint32_t thread() const { return (threadIdx.x + 32 * turn) % kThreads; }
};

// The consumers: items of one kind, before 9.0 the block's share of them, else those that the stages are labelled with,
// from `first` on. source(n, x, scales): the row of an assignment and its scales; packed: as operands. result(items): the
// sums of an item are there.
template <int kTiles, class Items, class Source, class Result>
__device__ void run_items(Stages<kStageBytes> &stages, Items items, uint32_t first, Sums<kTiles> &sums,
                          const Source &source, const Result &result) {
  using R = typename Items::R;
  const uint32_t total = items.total();
  uint32_t item = share(total, blockIdx.x);
  const uint32_t end = share(total, blockIdx.x + 1);
  if (!ptx::has_bulk() && item == end) return;
  typename Items::Stream weights(stages, items, item, end);
  std::conditional_t<Items::kOperands, OperandRows<R, kTiles>, Activations<R, CED_FP8, kTiles>> x;
  for (int32_t number = -1;; item++) {
#if CED_ARCH >= 900
    if (ptx::has_bulk()) {
      item = weights.stages.peek() - first;
      if (item >= total) break;
    }
#endif
    if (!ptx::has_bulk() && item == end) break;
    const bool ring = items.open(item);
    if (items.number != number) {
      number = items.number;
      if (Items::kDown && !ptx::has_bulk()) {
        if (threadIdx.x == 0) items.await_groups();
        ptx::named_barrier(1, R::kConsumers);
      }
      CED_UNROLL
      for (uint32_t j = 0; j < kTiles; j++) {
        const uint32_t i = 8 * j + threadIdx.x % 32 / 4, n = static_cast<uint32_t>(items.tile.n);
        if constexpr (Items::kOperands) {  // nobody asks for the sums of rows that there are not
          source(items.tile.assignment(i < n ? i : 0), x.x[j]);
        } else {
          x.x[j] = nullptr;
          if (i < n) source(items.tile.assignment(i), x.x[j], x.scales[j]);
        }
      }
      x.load(0, items.k);
    }
    float d[Items::kSums][kTiles][4] = {};
    if constexpr (Items::kPacked) {
      packed_products(weights, x, items.k, d);
    } else if (ring) {
      stream_products(weights, x, items.k, d);
    } else {
      direct_products<Items, kTiles>(items, x, d);
      if (ptx::has_bulk()) weights.done();
    }
    put_sums(sums.place(), d);
    ptx::named_barrier(1, R::kConsumers);
    result(items);
    if (sums.kPlaces == 1) ptx::named_barrier(1, R::kConsumers);  // before the next sums
    sums.turn++;
  }
  stages = weights.stages;
}

// Gate and up, the activation, and its quantisation.
template <int kTiles, class Items>
__device__ void run_up(Stages<kStageBytes> &stages, const Items &all, uint32_t first, Sums<kTiles> &sums) {
  const ced_expert_gemm_args &a = all.a;
  const ExpertWorkspace &work = all.work;
  constexpr bool kShared = Items::kW == CED_FP8;
  const auto source = [&](int32_t n, const unsigned char *&x, auto &...scales) {
    const auto row = static_cast<size_t>(kShared ? n : n / static_cast<int32_t>(a.top_k));
    x = Items::kOperands ? at<const unsigned char>(work.x_words) + row * Pack::steps(a.dim) * 128
                         : at<const unsigned char>(a.x) + row * a.dim;
    ((scales = at<const unsigned char>(a.x_scales) + row * (a.dim / 32)), ...);
  };
  const auto result = [&](const Items &items) {
    const uint32_t lane = threadIdx.x % 32, h = lane / 16 * 2, o = lane % 16;  // a lane for a channel
    const float *part = sums.place();
    for (uint32_t r = sums.thread() / 32; r < static_cast<uint32_t>(items.tile.n); r += kWarps) {
      const int32_t n = items.tile.assignment(r);
      const float weight = kShared ? 1.0f : at<const float>(a.weights)[n];
      const float v = swiglu(bf16_round(whole_sum<4, kTiles>(part, h, o, r)),
                             bf16_round(whole_sum<4, kTiles>(part, h + 1, o, r)), a.limit, weight);
      const size_t place = expert_place(a, n, kShared);
      if (Items::kOperands) {
        store_words(a, work, place, items.i0, v);
      } else {
        store_activation(a, work, place, items.i0, v);
      }
      items.group_done();
    }
  };
  run_items<kTiles>(stages, all, first, sums, source, result);
}

// The second half: the result, rounded.
template <int kTiles, class Items>
__device__ void run_down(Stages<kStageBytes> &stages, const Items &all, uint32_t first, Sums<kTiles> &sums) {
  const ced_expert_gemm_args &a = all.a;
  const ExpertWorkspace &work = all.work;
  constexpr bool kShared = Items::kW == CED_FP8;
  const auto source = [&](int32_t n, const unsigned char *&x, auto &...scales) {
    const size_t from = expert_place(a, n, kShared);
    x = Items::kOperands ? at<const unsigned char>(work.activation) + from * Pack::steps(a.inter) * 128
                         : at<const unsigned char>(work.codes) + from * a.inter;
    ((scales = at<const unsigned char>(work.scales) + from * (a.inter / 32)), ...);
  };
  const auto result = [&](const Items &items) {
    const float *part = sums.place();
    for (uint32_t e = sums.thread(); e < 8 * kTiles * Items::kChannels; e += kThreads) {
      const uint32_t r = e / Items::kChannels, o = e % Items::kChannels;
      if (r >= static_cast<uint32_t>(items.tile.n)) continue;
      const size_t to = expert_place(a, items.tile.assignment(r), kShared);
      at<uint16_t>(work.out)[to * a.dim + items.i0 + o] =
          f32_to_bf16(whole_sum<Items::kSums, kTiles>(part, o / 16, o % 16, r));
    }
  };
  run_items<kTiles>(stages, all, first, sums, source, result);
}

// Both halves of the routed experts and of the shared one. Nobody waits for all of the first half: an item of down waits for
// the activations of its own rows, so that memory goes on reading from one half to the other.
template <ExpertForm kForm, int kTiles>
__global__ void __launch_bounds__(kThreads + 32, kForm == ExpertForm::kPacked ? ring_blocks(kTiles) : 1)
    experts_kernel(ced_expert_gemm_args a, ExpertWorkspace work, uint32_t stage_count) {
  DYN_SMEM(unsigned char, shared);
  SHARED(float, part, Sums<kTiles>::kPlaces *Sums<kTiles>::kPlace);
  Stages<kStageBytes> stages(shared, stage_count, kArrivals, kWarps);
  Kinds<kForm> kinds(a, work, 8 * kTiles);
  if (threadIdx.x >= kThreads) return kinds.produce(stages, at<uint32_t>(work.progress));
  Sums<kTiles> sums{part};
  uint32_t first = 0;
  run_up(stages, kinds.shared_up, first, sums);
  run_up(stages, kinds.up, first += kinds.shared_up.total(), sums);
  run_down(stages, kinds.shared_down, first += kinds.up.total(), sums);
  run_down(stages, kinds.down, first += kinds.shared_down.total(), sums);
}

// A row's experts in ascending id, then the addend, then the shared one.
__global__ void __launch_bounds__(kThreads) combine_kernel(ced_expert_gemm_args a, ExpertWorkspace work) {
  SHARED(int32_t, order, 64);
  const int32_t count = row_count(a.rows);
  const uint32_t d = 2 * (blockIdx.y * kThreads + threadIdx.x);
  for (int32_t row = static_cast<int32_t>(blockIdx.x); row < count; row += static_cast<int32_t>(gridDim.x)) {
    const auto r = static_cast<size_t>(row);
    const int32_t *idx = at<const int32_t>(a.idx) + r * a.top_k;
    if (threadIdx.x < a.top_k) {
      uint32_t place = 0;
      for (uint32_t j = 0; j < a.top_k; j++)
        place += idx[j] < idx[threadIdx.x] || (idx[j] == idx[threadIdx.x] && j < threadIdx.x);
      order[place] = static_cast<int32_t>(threadIdx.x);
    }
    __syncthreads();
    if (d < a.dim) {
      const auto *out = at<const uint16_t>(work.out);
      float low = 0, high = 0;
      const auto add = [&](size_t assignment) {
        const uint32_t v = *reinterpret_cast<const uint32_t *>(out + assignment * a.dim + d);
        low += low_bf16(v), high += high_bf16(v);
      };
      for (uint32_t k = 0; k < a.top_k; k++)
        if (has_expert(a, idx[order[k]])) add(r * a.top_k + static_cast<size_t>(order[k]));
      if (a.addend != 0) {
        const float2 v = *reinterpret_cast<const float2 *>(at<const float>(a.addend) + r * a.dim + d);
        low += v.x, high += v.y;
      }
      if (a.shared.w1 != 0) add(static_cast<size_t>(a.max_rows) * a.top_k + r);
      if (a.y_format == CED_F32)
        *reinterpret_cast<float2 *>(at<float>(a.y) + r * a.dim + d) = make_float2(low, high);
      else
        *reinterpret_cast<uint32_t *>(at<uint16_t>(a.y) + r * a.dim + d) = pack_bf16(low, high);
    }
    __syncthreads();  // before the next row's order
  }
}

// tiles: of routed and of shared experts, at most.
template <ExpertForm kForm, int kTiles>
int launch_experts(ced_stream *s, const ced_expert_gemm_args &a, const ExpertWorkspace &work, uint32_t tiles,
                   ced_err *err) {
  const CudaStream &c = cuda_of(s);
  RingShape<LargestRing> shape(c);
  const bool two = kForm == ExpertForm::kPacked && kTiles == 1 && c.capability == 90;
  if (two) shape.stages = 4, shape.shared_bytes = 4 * (kStageBytes + 32);
  const uint32_t blocks = (two ? 2 : 1) * static_cast<uint32_t>(c.processors);
  return launch(s, err, "expert_gemm",
                {std::min(blocks, ceil_div(a.dim, 16) * tiles), shape.threads, shape.shared_bytes, true},
                experts_kernel<kForm, kTiles>, a, work, shape.stages);
}

// Tiles of 16 rows where there are many; the bits are the same.
template <ExpertForm kForm>
int launch_tiles(ced_stream *s, const ced_expert_gemm_args &a, const ExpertWorkspace &work,
                 uint32_t tile_rows, uint32_t tiles, ced_err *err) {
  return tile_rows == 8 ? launch_experts<kForm, 1>(s, a, work, tiles, err)
                        : launch_experts<kForm, 2>(s, a, work, tiles, err);
}

// Rows of a tile: as many as an expert of these may have. The bits are the same.
uint32_t tile_rows(uint32_t rows) {
  return rows <= 8 ? 8 : rows <= 16 ? 16 : rows <= 32 ? 32 : rows <= 64 ? 64 : 128;
}

}  // namespace

int expert_gemm_cuda(ced_stream *s, const ced_expert_gemm_args &a, ced_err *err) {
  const ExpertWorkspace work = expert_workspace(a);
  const uint32_t routed = a.max_rows * a.top_k;
  const bool few = a.max_rows <= 16, has_shared = a.shared.w1 != 0;
  if ((a.flags & CED_EXPERTS_SUM) == 0 && (routed > 0 || (few && has_shared))) {
    // In long steps what an expert has on average; in short ones hardly any has more than 8.
    // Experts that are not packed have the form for few rows only.
    const bool packed = a.layout == CED_EXPERTS_PACKED;
    const uint32_t many = std::max(16u, packed && routed > 0 ? routed / a.experts_count : 0),
                   rows = few ? 8 : tile_rows(many),
                   tiles = std::min(routed, a.experts_count) + routed / rows;
    const uint32_t expanded = packed && rows <= 16 ? std::min(a.max_rows, 64u) : 0;  // blocks for x
    CED_TRY(launch(s, err, "expert_gemm", {1 + expanded, kGroupThreads}, group_kernel, a, work, rows));
    ced_expert_gemm_args with = a;  // the shared expert's rows are as few
    if (!few) with.shared = {};
    const uint32_t all = tiles + (few && has_shared ? ceil_div(a.max_rows, rows) : 0);
    CED_TRY(rows > 16 ? expert_gemm_prefill(s, a, work, CED_FP4, rows, tiles, err)
            : packed  ? launch_tiles<ExpertForm::kPacked>(s, with, work, rows, all, err)
                      : launch_tiles<ExpertForm::kFp4>(s, with, work, rows, all, err));
  }
  if ((a.flags & CED_EXPERTS_SUM) == 0 && !few && has_shared) {
    const uint32_t rows = tile_rows(a.max_rows);
    CED_TRY(expert_gemm_prefill(s, a, work, CED_FP8, rows, ceil_div(a.max_rows, rows), err));
  }
  if ((a.flags & CED_EXPERTS_PRODUCTS) != 0) return CED_OK;
  return launch(s, err, "expert_gemm",
                {dim3(row_blocks(a.max_rows).x, ceil_div(a.dim, 2 * kThreads)), kThreads}, combine_kernel, a,
                work);
}

}  // namespace ced
