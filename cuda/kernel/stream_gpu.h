// stream_gpu.h: the weights of a product of few rows, on their way from memory through a ring in shared memory. The eight
// warps of a block take the k-steps of 64 in turn (warp w: w, w + 8, ...); a stage of the ring has the next 8 * kSteps
// steps of 16 * kMatrices weight rows, and their scales. Stages are asked for long before they are used, those of the
// block's next item too, so that a processor has tens of kilobytes under way.
//
// From 9.0 on a ninth warp asks, by a bulk copy for each row of a stage, and mbarriers say what has landed and what is free
// again. Before that each warp asks by cp.async for what it will read itself, and nobody waits for another warp.
//
// An item is a set of weight rows whose products one block computes; blocks take neighbouring items. Items must offer
//   uint32_t k                       elements of a row, all items alike: a multiple of 128, without scales of 64
//   uint32_t total()                 items of the grid
//   bool open(uint32_t item)         goes to an item; false: not through the ring
//   const unsigned char *row(uint32_t part, uint32_t r)    row r of 16 * kMatrices, at a multiple of 16 bytes; or null
//   const unsigned char *scales(uint32_t part, uint32_t s) scales of row s (FP4) or of rows 16s..16s+15 (FP8), at a
//                                                          multiple of 4 bytes; or null
#pragma once
#include "kernel/operand_gpu.h"

namespace ced {

// kParts: stages of the same k, one after the other, each with other rows.
template <ced_format kFormat, uint32_t kMatrices_, uint32_t kParts_>
struct Ring {
  static constexpr ced_format kW = kFormat;
  static constexpr uint32_t kMatrices = kMatrices_, kParts = kParts_, kRows = 16 * kMatrices;
  static constexpr uint32_t kWarps = 8, kConsumers = 32 * kWarps, kThreads = kConsumers + 32, kStep = 64;
  static constexpr uint32_t kStepBytes = 4 * bytes16(kW), kRowBytes = kW == CED_BF16 ? 1024 : 512;
  static constexpr uint32_t kSteps = kRowBytes / (kWarps * kStepBytes), kPiece = kSteps * kWarps * kStep;
  // The lanes of a warp read 4 rows (FP4) or 2 at once, side by side in the 128 bytes of the banks.
  static constexpr uint32_t kPitch = kRowBytes + (kW == CED_FP4 ? 32 : kW == CED_FP8 ? 64 : 16);
  // Scales: words of four, of two steps; a word has the scales of all rows side by side. Without bulk copies two warps
  // have a copy each.
  static constexpr uint32_t kScaleRows = kW == CED_FP4 ? kRows : kW == CED_FP8 ? kMatrices : 0;
  static constexpr uint32_t kScales = kPitch * kRows;  // where they begin
  __host__ __device__ static constexpr uint32_t stage_bytes(bool bulk) {
    return (kScales + kScaleRows * 4 * kSteps * (bulk ? kWarps / 2 : kWarps) + 15) / 16 * 16;
  }
  static constexpr uint32_t kSmall = 60 * 1024, kCopyStages = kSmall / stage_bytes(false);
};

// The shape of a block for a device; of several rings in the same stages that of the largest. Two blocks on a processor that
// has 228 KB, one where it has 100.
template <class R>
struct RingShape {
  bool bulk;
  uint32_t stages, threads;
  size_t shared_bytes;

  explicit RingShape(const CudaStream &c)
      : bulk(c.capability >= 90),
        stages((c.shared_bytes > 128 * 1024 ? 92 * 1024 : R::kSmall) / R::stage_bytes(true)),
        threads(bulk ? R::kThreads : R::kConsumers),
        shared_bytes(bulk ? stages * (R::stage_bytes(true) + 32) : R::kSmall) {}
};

// Blocks that a processor has to hold: two of 288 threads leave each thread 96 registers, enough on 9.0 alone.
__host__ __device__ constexpr int ring_blocks(int tiles) { return tiles == 1 && CED_ARCH == 900 ? 2 : 1; }

// The first item of a block: it has those up to the next block's.
__device__ inline uint32_t share(uint32_t total, uint32_t block) {
  return static_cast<uint32_t>(static_cast<uint64_t>(total) * block / gridDim.x);
}

// The stages of a block from 9.0 on, of kBytes each, and which one is next for this thread.
template <uint32_t kBytes>
struct Stages {
  unsigned char *shared;
  uint32_t count, slot = 0, parity = 0;
  uint32_t label = 0;  // of the stages that are filled next: what they are for

  // All threads of the block. memory: at a multiple of 16. arrivals: that make a stage full.
  __device__ Stages(unsigned char *memory, uint32_t stages, uint32_t arrivals, uint32_t readers)
      : shared(memory), count(stages) {
#if CED_ARCH >= 900
    if (threadIdx.x == 0) {
      for (uint32_t i = 0; i < count; i++)
        ptx::mbarrier_init(barrier(i), static_cast<int>(arrivals)),
            ptx::mbarrier_init(barrier(i) + 1, static_cast<int>(readers));
      ptx::mbarrier_visible();
    }
    __syncthreads();
    parity = threadIdx.x >= 32 * readers;  // who fills: a wait for the phase before the first ends at once
#endif
  }
  __device__ uint64_t *barrier(uint32_t i) const {
    return reinterpret_cast<uint64_t *>(shared + count * kBytes) + 2 * i;
  }
  __device__ uint64_t *full() const { return barrier(slot); }
  __device__ uint64_t *empty() const { return barrier(slot) + 1; }
  __device__ unsigned char *stage() const { return shared + slot * kBytes; }
  __device__ uint32_t *labels() const { return reinterpret_cast<uint32_t *>(barrier(count)); }
#if CED_ARCH >= 900
  // The consumers: the label of the next stage, once it is there.
  __device__ uint32_t peek() const {
    ptx::mbarrier_wait(full(), parity);
    return labels()[slot];
  }
  // Who fills: waits until the next stage is free, for bulk copies too, whatever its bytes were before.
  __device__ void wait_free() const {
    ptx::mbarrier_wait(empty(), parity);
    ptx::mbarrier_visible();
  }
  // One lane of who fills the next stage, once it is free.
  __device__ void expect(uint32_t bytes_to_come) const {
    labels()[slot] = label;
    ptx::mbarrier_arrive_expect(full(), bytes_to_come);
  }
#endif
  __device__ void step() {
    if (++slot == count) slot = 0, parity ^= 1;
  }
};

// The stages of a block in the order of their use.
template <class R, class Items>
struct Cursor {
  Items items;
  uint32_t item, end, k0 = 0, part = 0;

  // Items [first, last).
  __device__ Cursor(const Items &all, uint32_t first, uint32_t last) : items(all), item(first), end(last) {}
  __device__ bool more() const { return item < end; }
  // To the first item from here that comes through the ring.
  __device__ void seek() {
    while (item < end && !items.open(item)) item++;
  }
  __device__ void step() {
    if (++part < R::kParts) return;
    part = 0, k0 += R::kPiece;
    if (k0 < items.k) return;
    k0 = 0, item++;
    seek();
  }
};

// The part of both streams that is alike. D: the stream, whose ask() brings what its warp reads of the stage after those
// under way, before 9.0.
template <class D, class R, class Items, uint32_t kBytes>
class StreamBase {
 public:
  // The consumers: the next stage, once it is there. done() gives it back.
  __device__ const unsigned char *next() {
    if (ptx::has_bulk()) {
#if CED_ARCH >= 900
      ptx::mbarrier_wait(stages.full(), stages.parity);
      return stages.stage();
#endif
    }
    ptx::cp_async_wait<static_cast<int>(R::kCopyStages) - 2>();
    __syncwarp();  // what the other lanes brought, and nobody reads the stage before this one any more
    ask();
    return stages.shared + slot_ * R::stage_bytes(false);
  }
  __device__ void done() {
    if (ptx::has_bulk()) {
#if CED_ARCH >= 900
      __syncwarp();
      if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(stages.empty());
#endif
      stages.step();
    } else if (++slot_ == R::kCopyStages) {
      slot_ = 0;
    }
  }

  Stages<kBytes> stages;

 protected:
  __device__ StreamBase(const Stages<kBytes> &s, const Items &items, uint32_t first, uint32_t last)
      : stages(s), ahead_(items, first, last) {
    if (ptx::has_bulk() || threadIdx.x >= R::kConsumers) return;
    ahead_.seek();
    for (uint32_t i = 0; i + 1 < R::kCopyStages; i++) ask();
  }

  Cursor<R, Items> ahead_;

 private:
  // At the end nothing, which is counted all the same.
  __device__ void ask() {
    if (ahead_.more()) {
      static_cast<D *>(this)->bring(stages.shared + ahead_slot_ * R::stage_bytes(false));
      ahead_.step();
    }
    ptx::cp_async_commit();
    if (++ahead_slot_ == R::kCopyStages) ahead_slot_ = 0;
  }

  uint32_t slot_ = 0, ahead_slot_ = 0;
};

// kBytes: of a stage of the ring; other rings of the kernel may have larger ones.
template <class R, class Items, uint32_t kBytes = R::stage_bytes(true)>
class WeightStream : public StreamBase<WeightStream<R, Items, kBytes>, R, Items, kBytes> {
  using Base = StreamBase<WeightStream, R, Items, kBytes>;
  using Base::ahead_;

 public:
  static constexpr uint32_t kArrivals = R::kScaleRows > 0 ? 33 : 1;
  using Base::stages;

  // Of a kernel that has no other: shared is a RingShape's, count its stages. All threads of the block make one; then those
  // from R::kConsumers on call produce() and are done.
  __device__ WeightStream(unsigned char *shared, uint32_t count, const Items &items)
      : WeightStream(Stages<kBytes>(shared, count, kArrivals, R::kWarps), items,
                     share(items.total(), blockIdx.x), share(items.total(), blockIdx.x + 1)) {}
  // Items [first, last), in stages that go on.
  __device__ WeightStream(const Stages<kBytes> &s, const Items &items, uint32_t first, uint32_t last)
      : Base(s, items, first, last) {}

  // The ninth warp: everything that the block will use, as fast as stages become free.
  __device__ void produce() {
#if CED_ARCH >= 900
    const uint32_t lane = threadIdx.x % 32;
    for (ahead_.seek(); ahead_.more(); ahead_.step()) {
      const Items &items = ahead_.items;
      const uint32_t k0 = ahead_.k0, n = items.k - k0 < R::kPiece ? items.k - k0 : R::kPiece,
                     bytes = n / 16 * bytes16(R::kW);
      const unsigned char *row = lane < R::kRows ? items.row(ahead_.part, lane) : nullptr;
      const auto rows = static_cast<uint32_t>(__popc(__ballot_sync(kAllLanes, row != nullptr)));
      unsigned char *stage = stages.stage();
      stages.wait_free();
      if (lane == 0) stages.expect(rows * bytes);
      if (row != nullptr)
        ptx::bulk_load(stage + lane * R::kPitch, row + k0 / 16 * bytes16(R::kW), bytes, stages.full());
      if constexpr (R::kScaleRows > 0) {
        constexpr uint32_t kWords = R::kPiece / 128;
        CED_UNROLL
        for (uint32_t i = lane; i < R::kScaleRows * kWords; i += 32) {
          const uint32_t s = i / kWords, word = i % kWords;
          const unsigned char *p = items.scales(ahead_.part, s);
          if (p != nullptr && 128 * word < n)
            ptx::cp_async4(stage + R::kScales + 4 * (word * R::kScaleRows + s), p + k0 / 32 + 4 * word);
        }
        ptx::cp_async_arrive(stages.full());
      }
      stages.step();
    }
#endif
  }

  // Whether all scales of the warp's i-th step in a stage are at most 1: then one product scales a pair.
  __device__ static bool plain(const unsigned char *stage, uint32_t i) {
    if constexpr (R::kScaleRows == 0) {
      return true;
    } else {
      const uint32_t lane = threadIdx.x % 32, step = threadIdx.x / 32 + R::kWarps * i;
      const uint32_t word = ptx::has_bulk() ? step / 2 : step;
      uint32_t codes = 0;
      if (lane < R::kScaleRows)
        codes = *reinterpret_cast<const uint32_t *>(stage + R::kScales + 4 * (word * R::kScaleRows + lane));
      return !__any_sync(kAllLanes, (codes & 0x80808080u) != 0);
    }
  }
  // Row r of a stage as this lane's operand of the warp's i-th step there.
  template <bool kPlain>
  __device__ static Words words(const unsigned char *stage, uint32_t r, uint32_t i) {
    const uint32_t step = threadIdx.x / 32 + R::kWarps * i, t = threadIdx.x % 4;
    const unsigned char *p = stage + r * R::kPitch + step * R::kStepBytes + t * bytes16(R::kW);
    Raw<R::kW> raw;
    if constexpr (R::kW == CED_FP4) {
      const uint2 v = *reinterpret_cast<const uint2 *>(p);
      raw.word[0] = v.x, raw.word[1] = v.y;
    } else {
      CED_UNROLL
      for (uint32_t j = 0; j < bytes16(R::kW) / 16; j++) {
        const uint4 v = load16(p + 16 * j);
        raw.word[4 * j] = v.x, raw.word[4 * j + 1] = v.y, raw.word[4 * j + 2] = v.z,
                     raw.word[4 * j + 3] = v.w;
      }
    }
    uint8_t scale = 127;
    if constexpr (R::kScaleRows > 0) {
      const uint32_t word = ptx::has_bulk() ? step / 2 : step, s = R::kW == CED_FP4 ? r : r / 16;
      scale = stage[R::kScales + 4 * (word * R::kScaleRows + s) + step % 2 * 2 + t / 2];
    }
    return expand<kPlain>(raw, scale);
  }

  // Before 9.0: the warp's part of a stage.
  __device__ void bring(unsigned char *stage) const {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    CED_UNROLL
    for (uint32_t i = 0; i < R::kSteps; i++) {
      const uint32_t step = warp + R::kWarps * i, k = ahead_.k0 + R::kStep * step;
      if (k >= ahead_.items.k) continue;
      constexpr uint32_t kPieces = R::kStepBytes / 16;
      CED_UNROLL
      for (uint32_t j = 0; j < R::kRows * kPieces / 32; j++) {
        const uint32_t r = (lane + 32 * j) / kPieces, piece = lane % kPieces;
        const unsigned char *p = ahead_.items.row(ahead_.part, r);
        if (p != nullptr)
          ptx::cp_async16(stage + r * R::kPitch + step * R::kStepBytes + 16 * piece,
                          p + k / 16 * bytes16(R::kW) + 16 * piece);
      }
      if constexpr (R::kScaleRows > 0) {
        const unsigned char *p = lane < R::kScaleRows ? ahead_.items.scales(ahead_.part, lane) : nullptr;
        if (p != nullptr)
          ptx::cp_async4(stage + R::kScales + 4 * (step * R::kScaleRows + lane), p + k / 128 * 4);
      }
    }
  }
};

// This lane's row of each tile of eight rows of x, and its operands of the steps of a stage, which are read a stage
// before their use. Null: zeros.
template <class R, ced_format kX, int kTiles>
struct Activations {
  const unsigned char *x[kTiles] = {}, *scales[kTiles] = {};
  Raw<kX> raw[kTiles][R::kSteps] = {};
  uint8_t scale[kTiles][R::kSteps] = {};

  __device__ void load(uint32_t k_first, uint32_t k) {
    CED_UNROLL
    for (int j = 0; j < kTiles; j++) CED_UNROLL
    for (uint32_t i = 0; i < R::kSteps; i++) {
      const uint32_t k0 = k_first + R::kStep * (threadIdx.x / 32 + R::kWarps * i) + 16 * (threadIdx.x % 4);
      raw[j][i].template load<true, false>(x[j], k0, x[j] != nullptr ? k : 0);
      scale[j][i] = kX == CED_FP8 && x[j] != nullptr && k0 < k ? scales[j][k0 / 32] : 127;
    }
  }
  // The operands of the stage at k0, while the next one's are read.
  __device__ void take(Words (&operand)[R::kSteps][kTiles], uint32_t k0, uint32_t k) {
    CED_UNROLL
    for (uint32_t i = 0; i < R::kSteps; i++) CED_UNROLL
    for (int j = 0; j < kTiles; j++) operand[i][j] = expand(raw[j][i], scale[j][i]);
    load(k - k0 > R::kPiece ? k0 + R::kPiece : 0, k);
  }
};

// The same of rows that are operands already: BF16 in their order, zeros up to a multiple of 64. There is no null.
template <class R, int kTiles>
struct OperandRows {
  const unsigned char *x[kTiles] = {};

  __device__ void load(uint32_t, uint32_t) const {}
  __device__ void take(Words (&operand)[R::kSteps][kTiles], uint32_t k0, uint32_t k) const {
    CED_UNROLL
    for (uint32_t i = 0; i < R::kSteps; i++) {
      const uint32_t at = k0 + R::kStep * (threadIdx.x / 32 + R::kWarps * i);
      if (at >= k) continue;
      CED_UNROLL
      for (int j = 0; j < kTiles; j++) load_words(operand[i][j], x[j] + 2 * at + 32 * (threadIdx.x % 4));
    }
  }
};

// The consumers' sums of an item, d[part * kMatrices + matrix][tile]. x: Activations, which hold the first stage's operands
// and afterwards do again, or OperandRows.
template <class R, class X, int kTiles, class Items, uint32_t kBytes>
__device__ void stream_products(WeightStream<R, Items, kBytes> &weights, X &x, uint32_t k,
                                float (&d)[R::kParts * R::kMatrices][kTiles][4]) {
  const uint32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4;
  for (uint32_t k0 = 0; k0 < k; k0 += R::kPiece) {
    Words operand[R::kSteps][kTiles];
    x.take(operand, k0, k);
    CED_UNROLL
    for (uint32_t part = 0; part < R::kParts; part++) {
      const unsigned char *stage = weights.next();
      CED_UNROLL
      for (uint32_t i = 0; i < R::kSteps; i++) {
        if (k0 + R::kStep * (warp + R::kWarps * i) >= k) continue;
        const auto products = [&](auto plain) {
          CED_UNROLL
          for (uint32_t m = 0; m < R::kMatrices; m++) {
            const Words low = weights.template words<plain.value>(stage, 16 * m + g, i),
                        high = weights.template words<plain.value>(stage, 16 * m + g + 8, i);
            CED_UNROLL
            for (int j = 0; j < kTiles; j++)
              mma_step64(d[part * R::kMatrices + m][j], low, high, operand[i][j]);
          }
        };
        if (weights.plain(stage, i)) {
          products(std::true_type{});
        } else {
          products(std::false_type{});
        }
      }
      weights.done();
    }
  }
}

// The warps' sums meet in part [8 warps][kMatrices][kTiles][4][32].
template <int kMatrices, int kTiles>
__device__ void put_sums(float *part, const float (&d)[kMatrices][kTiles][4]) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  CED_UNROLL
  for (uint32_t m = 0; m < kMatrices; m++) CED_UNROLL
  for (uint32_t j = 0; j < kTiles; j++) CED_UNROLL
  for (uint32_t i = 0; i < 4; i++)
    part[(((warp * kMatrices + m) * kTiles + j) * 4 + i) * 32 + lane] = d[m][j][i];
}
// Output o of 16 for row r of 8 * kTiles of matrix m: the warps in ascending order.
template <int kMatrices, int kTiles>
__device__ float whole_sum(const float *part, uint32_t m, uint32_t o, uint32_t r) {
  const uint32_t lane = o % 8 * 4 + r % 8 / 2, i = o / 8 * 2 + r % 2;
  float sum = 0;
  CED_UNROLL
  for (uint32_t w = 0; w < 8; w++) sum += part[(((w * kMatrices + m) * kTiles + r / 8) * 4 + i) * 32 + lane];
  return sum;
}

}  // namespace ced
