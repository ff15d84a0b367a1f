// prefill_gpu.h: the tile of a matrix product of many rows: 128 weight rows by kRows rows of activations, by a block of
// eight warps, of which each has 16 weight rows. It adds as the decode forms do, so that a row's bits are the same in a
// step of any size: k-steps of 64 whose number has the same rest by 8 make a partial sum (there a warp's), and the
// partial sums are added in the order of the rests.
//
// Weights go from memory into registers, as BF16 operands; activations are expanded once for a block, into shared
// memory, k in the order of operand_gpu.h, in two tiles that take turns.
#pragma once
#include "kernel/operand_gpu.h"

namespace ced {

struct Prefill {
  static constexpr uint32_t kOutputs = 128, kThreads = 256, kStep = 64, kSums = 8;
  __host__ __device__ static constexpr uint32_t tile_bytes(uint32_t rows) { return rows * kStep * 2; }
  __host__ __device__ static constexpr uint32_t shared_bytes(uint32_t rows) { return 2 * tile_bytes(rows); }
};

// A row of a matrix [*, k] with its scales, one for 32 elements; data null: zeros. whole: it starts at a multiple of 16
// bytes (FP4: 8) and has a multiple of 16 elements.
struct OperandRow {
  const unsigned char *data = nullptr, *scales = nullptr;
  bool whole = true;

  template <ced_format kFormat>
  __device__ void load(Raw<kFormat> &raw, uint8_t &scale, uint32_t k0, uint32_t k) const {
    const uint32_t end = data != nullptr ? k : 0;
    if (whole) {
      raw.template load<true, false>(data, k0, end);
    } else {
      raw.template load<false, false>(data, k0, end);
    }
    scale = data != nullptr && scales != nullptr && k0 < k ? scales[k0 / 32] : 127;
  }
};

// The lane's two weight rows, lane/4 and lane/4 + 8 of the warp's 16, as they lie in a checkpoint.
template <ced_format kFormat>
struct WeightRows {
  OperandRow row[2];
  Raw<kFormat> raw[2];
  uint8_t scale[2];

  __device__ void fetch(uint32_t step, uint32_t k) {
    const uint32_t k0 = step * Prefill::kStep + 16 * (threadIdx.x % 4);
    for (int h = 0; h < 2; h++) row[h].load(raw[h], scale[h], k0, k);
  }
  __device__ void words(Words &low, Words &high) const {
    low = expand(raw[0], scale[0]), high = expand(raw[1], scale[1]);
  }
};

// The k-step after this one: 0, 8, 16 .. 1, 9 .. 7, 15 ..
__device__ inline uint32_t next_step(uint32_t step, uint32_t steps) {
  step += Prefill::kSums;
  return step < steps ? step : step % Prefill::kSums + 1;
}

template <int kRows, bool kWgmma>
struct PrefillSum;

template <int kRows>
struct PrefillSum<kRows, true> {
  ptx::Wgmma<kRows> sum;

  __device__ void start(const Words &low, const Words &high, const unsigned char *tile) {
    sum.begin();
    CED_UNROLL
    for (int s = 0; s < 4; s++) {
      const uint32_t a[4] = {low.w[2 * s], high.w[2 * s], low.w[2 * s + 1], high.w[2 * s + 1]};
      sum.step(a, tile, s);
    }
  }
  __device__ void finish(Words &low, Words &high) {
    sum.wait();
    sum.hold_operand(low.w), sum.hold_operand(high.w);
  }
  __device__ void zero() { sum.zero(); }
  __device__ float get(int j, int i) const { return sum.d[j][i]; }
};

template <int kRows>
struct PrefillSum<kRows, false> {
  float d[kRows / 8][4];

  __device__ void start(const Words &low, const Words &high, const unsigned char *tile) {
    const uint32_t lane = threadIdx.x % 32, row = lane % 8 + lane / 16 * 8, piece = lane / 8 % 2;
    CED_UNROLL
    for (uint32_t s = 0; s < 4; s++) {
      const uint32_t a[4] = {low.w[2 * s], high.w[2 * s], low.w[2 * s + 1], high.w[2 * s + 1]};
      CED_UNROLL
      for (uint32_t j = 0; j < kRows / 8; j += 2) {
        uint32_t b[4];
        ptx::ldmatrix_x4(b, tile + 128 * (8 * j + row) + 16 * ((2 * s + piece) ^ row % 8));
        ptx::mma_m16n8k16_bf16(d[j], a, b);
        ptx::mma_m16n8k16_bf16(d[j + 1], a, b + 2);
      }
    }
  }
  __device__ void finish(Words &, Words &) {}
  __device__ void zero() {
    CED_UNROLL
    for (int j = 0; j < kRows / 8; j++)
      for (int i = 0; i < 4; i++) d[j][i] = 0;
  }
  __device__ float get(int j, int i) const { return d[j][i]; }
};

// total[j][i]: weight row lane/4 (i < 2) or lane/4 + 8 of the warp's 16, activation row 8j + lane%4*2 + i%2. w: the lane's
// two weight rows (WeightRows). x(r): activation row r of the tile. All threads of the block come here; afterwards the shared memory, shared_bytes(kRows) at a multiple of 1024, is free.
template <ced_format kX, int kRows, bool kWgmma, class W, class X>
__device__ void prefill_tile(float (&total)[kRows / 8][4], W &w, const X &x, uint32_t k,
                             unsigned char *shared) {
  constexpr uint32_t kPieces = kRows * 4 / Prefill::kThreads > 0 ? kRows * 4 / Prefill::kThreads : 1;
  const uint32_t t = threadIdx.x % 4, row = threadIdx.x / 4, steps = ceil_div(k, Prefill::kStep);
  const bool brings = row < kRows;  // this thread's pieces: 16 elements of rows row, row + 64
  OperandRow source[kPieces];
  CED_UNROLL
  for (uint32_t p = 0; p < kPieces; p++)
    if (brings) source[p] = x(row + 64 * p);

  Raw<kX> x_raw[kPieces];
  uint8_t x_scale[kPieces];
  const auto fetch = [&](uint32_t step) {
    const uint32_t k0 = step * Prefill::kStep + 16 * t;
    CED_UNROLL
    for (uint32_t p = 0; p < kPieces; p++) source[p].load(x_raw[p], x_scale[p], k0, k);
    w.fetch(step, k);
  };
  const auto store = [&](unsigned char *tile) {
    CED_UNROLL
    for (uint32_t p = 0; p < kPieces; p++) {
      if (!brings) continue;
      const uint32_t r = row + 64 * p;
      const Words v = expand(x_raw[p], x_scale[p]);
      for (uint32_t i = 0; i < 8; i++)
        *reinterpret_cast<uint32_t *>(tile + 128 * r + 16 * (i ^ r % 8) + 4 * t) = v.w[i];
    }
    if (kWgmma) ptx::wgmma_visible();
  };

  CED_UNROLL
  for (int j = 0; j < kRows / 8; j++)
    for (int i = 0; i < 4; i++) total[j][i] = 0;
  PrefillSum<kRows, kWgmma> sum;
  sum.zero();
  fetch(0);
  store(shared);
  Words low, high;
  w.words(low, high);
  __syncthreads();
  uint32_t step = 0;
  for (uint32_t n = 0; n < steps; n++) {
    const uint32_t next = next_step(step, steps);
    const bool more = n + 1 < steps;
    if (more) fetch(next);
    sum.start(low, high, shared + n % 2 * Prefill::tile_bytes(kRows));
    Words next_low = low, next_high = high;
    if (more) {
      store(shared + (n + 1) % 2 * Prefill::tile_bytes(kRows));
      w.words(next_low, next_high);
    }
    sum.finish(low, high);
    low = next_low, high = next_high;
    if (!more || next % Prefill::kSums != step % Prefill::kSums) {
      CED_UNROLL
      for (int j = 0; j < kRows / 8; j++)
        for (int i = 0; i < 4; i++) total[j][i] += sum.get(j, i);
      sum.zero();
    }
    __syncthreads();
    step = next;
  }
}

}  // namespace ced
