// packed_gpu.h: packed experts (pack.h) on their way to the matrix instructions. A stage of the ring in shared memory is
// the next k-steps of an item, as they lie in memory: one bulk copy; before 9.0 each warp brings its own tiles. The order
// of sums is stream_gpu.h's.
#pragma once
#include "kernel/expert_gemm/pack.h"
#include "kernel/operand_gpu.h"
#include "kernel/stream_gpu.h"

namespace ced {

// The lane's rows of a tile as operands: what its 16 bytes are, and the scales of both rows in the bytes from `first` on
// of a word. kPlain: they are below 128.
template <bool kPlain>
__device__ void packed_words(const uint4 &v, uint32_t scales, uint32_t first, Words &low, Words &high) {
  unpack_word(v.x, low.w), unpack_word(v.y, low.w + 4);
  unpack_word(v.z, high.w), unpack_word(v.w, high.w + 4);
  // A code of e2m1 moved to BF16's place is its value times 2^-126.
  if (kPlain) {
    const uint32_t twice = 0x4040u + first * 0x0101u, one = 126u * 0x00800080u;
    const uint32_t times_low = ptx::pick_bytes(scales, 0, twice) * 128u + one,
                   times_high = ptx::pick_bytes(scales, 0, twice + 0x0101u) * 128u + one;
    CED_UNROLL
    for (int i = 0; i < 8; i++) {
      low.w[i] = ptx::mul_bf16x2(low.w[i], times_low);
      high.w[i] = ptx::mul_bf16x2(high.w[i], times_high);
    }
  } else {
    scale_pairs<false>(low, static_cast<uint8_t>(scales >> 8 * first), 126);
    scale_pairs<false>(high, static_cast<uint8_t>(scales >> 8 * first >> 8), 126);
  }
}

// The shape of a ring. kTiles: of an item. kSteps: a warp's in a stage.
template <uint32_t kTiles_, uint32_t kSteps_>
struct PackedRing {
  static constexpr uint32_t kTiles = kTiles_, kSteps = kSteps_, kMatrices = kTiles, kParts = 1;
  static constexpr uint32_t kWarps = 8, kConsumers = 32 * kWarps, kThreads = kConsumers + 32,
                            kStep = Pack::kStep, kPiece = kStep * kWarps * kSteps;
  static constexpr uint32_t kStepBytes = kTiles * Pack::kTile;
  __host__ __device__ static constexpr uint32_t stage_bytes(bool) { return kWarps * kSteps * kStepBytes; }
  static constexpr uint32_t kSmall = 60 * 1024, kCopyStages = kSmall / stage_bytes(false);
};

// Items must offer k, total() and open() as in stream_gpu.h, and
//   const unsigned char *packed(uint32_t step)   the item's tiles of a k-step, at a multiple of 32 bytes
template <class R, class Items, uint32_t kBytes>
class PackedStream : public StreamBase<PackedStream<R, Items, kBytes>, R, Items, kBytes> {
  using Base = StreamBase<PackedStream, R, Items, kBytes>;
  using Base::ahead_;

 public:
  static constexpr uint32_t kArrivals = 33;  // as many as in stages whose scales come by themselves
  using Base::stages;

  __device__ PackedStream(const Stages<kBytes> &s, const Items &items, uint32_t first, uint32_t last)
      : Base(s, items, first, last) {}

  // The ninth warp: everything that the block will use, as fast as stages become free.
  __device__ void produce() {
#if CED_ARCH >= 900
    for (ahead_.seek(); ahead_.more(); ahead_.step()) {
      const uint32_t step = ahead_.k0 / R::kStep, left = Pack::steps(ahead_.items.k) - step,
                     bytes = (left < R::kWarps * R::kSteps ? left : R::kWarps * R::kSteps) * R::kStepBytes;
      stages.wait_free();
      if (threadIdx.x % 32 == 0) {
        stages.expect(bytes);
        ptx::bulk_load(stages.stage(), ahead_.items.packed(step), bytes, stages.full());
      }
      ptx::mbarrier_arrive(stages.full());
      stages.step();
    }
#endif
  }

  // Before 9.0: the warp's tiles of a stage.
  __device__ void bring(unsigned char *stage) const {
    CED_UNROLL
    for (uint32_t i = 0; i < R::kSteps; i++) {
      const uint32_t in = threadIdx.x / 32 + R::kWarps * i, step = ahead_.k0 / R::kStep + in;
      if (step >= Pack::steps(ahead_.items.k)) continue;
      const unsigned char *from = ahead_.items.packed(step);
      for (uint32_t at = threadIdx.x % 32 * 16; at < R::kStepBytes; at += 512)
        ptx::cp_async16(stage + in * R::kStepBytes + at, from + at);
    }
  }
};

// The consumers' sums of an item, d[tile of weights][tile of x].
template <class R, int kTiles, class Items, uint32_t kBytes>
__device__ void packed_products(PackedStream<R, Items, kBytes> &weights, const OperandRows<R, kTiles> &x,
                                uint32_t k, float (&d)[R::kTiles][kTiles][4]) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t at = warp * R::kStepBytes + 16 * lane,
                 scales_at = warp * R::kStepBytes + Pack::scales(lane / 4, lane % 4 / 2, 0, R::kTiles);
  for (uint32_t k0 = 0; k0 < k; k0 += R::kPiece) {
    Words operand[R::kSteps][kTiles];
    x.take(operand, k0, k);
    const unsigned char *stage = weights.next();
    CED_UNROLL
    for (uint32_t i = 0; i < R::kSteps; i++) {
      if (k0 + R::kStep * (warp + R::kWarps * i) >= k) continue;
      uint32_t scales[2];
      const unsigned char *from = stage + scales_at + i * R::kWarps * R::kStepBytes;
      if constexpr (R::kTiles == 4) {
        const uint2 v = *reinterpret_cast<const uint2 *>(from);
        scales[0] = v.x, scales[1] = v.y;
      } else {
        scales[0] = scales[1] = *reinterpret_cast<const uint32_t *>(from);
      }
      const auto products = [&](auto plain) {
        CED_UNROLL
        for (uint32_t m = 0; m < R::kTiles; m++) {
          Words low, high;
          packed_words<plain.value>(load16(stage + at + i * R::kWarps * R::kStepBytes + m * Pack::kCodes),
                                    scales[m / 2], 2 * (m % 2), low, high);
          CED_UNROLL
          for (int j = 0; j < kTiles; j++) mma_step64(d[m][j], low, high, operand[i][j]);
        }
      };
      if (!__any_sync(kAllLanes, ((scales[0] | scales[1]) & 0x80808080u) != 0)) {
        products(std::true_type{});
      } else {
        products(std::false_type{});
      }
    }
    weights.done();
  }
}

}  // namespace ced
