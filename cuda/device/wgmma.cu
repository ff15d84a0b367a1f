// wgmma.cu: whether this device's warpgroup instructions add as its warp instructions do. Where they do not, or where
// there are none, prefill uses those of the warps, which give the bits of decode by construction. CEDRUN_WGMMA=0 does too.
#include <cstdlib>
#include <cstring>

#include "device/gpu.h"

namespace ced {
namespace {

#ifdef CED_SIM  // which adds in one way only, and slowly
constexpr unsigned kChain = 2, kRounds = 2;
#else
constexpr unsigned kChain = 16, kRounds = 8;
#endif
constexpr int kColumns = 64;

__device__ uint32_t draw(uint32_t n) {
  n = (n ^ 61u ^ n >> 16) * 9u;
  n = (n ^ n >> 4) * 0x27D4EB2Du;
  return n ^ n >> 15;
}

// Pairs of BF16 of both signs, over `spread` powers of two around 1: their sums cancel and lose bits.
__device__ uint32_t draw_pair(uint32_t n, uint32_t spread) {
  uint32_t pair = 0;
  for (uint32_t i = 0; i < 2; i++) {
    const uint32_t u = draw(2 * n + i);
    pair |= ((u & 0x807Fu) | (127u - spread / 2 + (u >> 16) % spread) << 7) << (16 * i);
  }
  return pair;
}

__device__ const unsigned char *element(const unsigned char *tile, uint32_t row, uint32_t column) {
  return tile + 128 * row + 16 * ((column / 8) ^ row % 8) + 2 * (column % 8);
}

// The next k's of both sides, as all warps of the block see them.
__device__ void draw_tiles(unsigned char *tile, uint32_t bytes, uint32_t seed, uint32_t spread) {
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < bytes / 4; i += 128)
    *reinterpret_cast<uint32_t *>(tile + 4 * i) = draw_pair(seed + i, spread);
  ptx::wgmma_visible();
  __syncthreads();
}
__device__ void draw_operand(uint32_t (&a)[4][4], uint32_t seed, uint32_t spread) {
  for (uint32_t s = 0; s < 4; s++)
    for (uint32_t i = 0; i < 4; i++)
      a[s][i] = draw_pair(0x40000000u + (seed * 16 + 4 * s + i) * 128 + threadIdx.x, spread);
}

template <int kTiles>
__device__ void count_wrong(const float (&d)[kTiles][4], const float (&group)[kTiles][4], uint32_t *differ) {
  uint32_t wrong = 0;
  for (int j = 0; j < kTiles; j++)
    for (int i = 0; i < 4; i++) wrong += f32_bits(d[j][i]) != f32_bits(group[j][i]);
  if (wrong > 0) atomicAdd(differ, wrong);
}

// differ: the number of sums whose bits are not the same. Weights in registers, activations in shared memory.
__global__ void __launch_bounds__(128) compare_kernel(uint32_t *differ) {
  DYN_SMEM(unsigned char, tile);
  const uint32_t lane = threadIdx.x % 32, round = blockIdx.x, spread = 1 + 5 * round;
  ptx::Wgmma<kColumns> group;
  float d[kColumns / 8][4] = {};
  group.zero();
  for (uint32_t n = 0; n < kChain; n++) {
    draw_tiles(tile, kColumns * 128, (round * kChain + n) * 4096, spread);
    uint32_t a[4][4];
    draw_operand(a, round * kChain + n, spread);
    group.begin();
    for (int s = 0; s < 4; s++) group.step(a[s], tile, s);
    group.wait();
    for (uint32_t s = 0; s < 4; s++)
      for (uint32_t j = 0; j < kColumns / 8; j++) {
        uint32_t b[2];
        for (uint32_t h = 0; h < 2; h++)
          b[h] = *reinterpret_cast<const uint32_t *>(
              element(tile, 8 * j + lane / 4, 16 * s + 8 * h + lane % 4 * 2));
        ptx::mma_m16n8k16_bf16(d[j], a[s], b);
      }
  }
  count_wrong(d, group.d, differ);
}

// The forms of attention: both operands in shared memory.
__global__ void __launch_bounds__(128) compare_shared_kernel(uint32_t *differ) {
  DYN_SMEM(unsigned char, tile);  // two of 64 by 64
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, round = blockIdx.x, spread = 1 + 5 * round;
  ptx::Wgmma<64> group;
  float d[8][4] = {};
  group.zero();
  for (uint32_t n = 0; n < kChain; n++) {
    draw_tiles(tile, 2 * 8192, 0x20000000u + (round * kChain + n) * 4096, spread);
    group.begin();
    for (int s = 0; s < 4; s++) group.step_shared(tile, tile + 8192, s);
    group.wait();
    for (uint32_t s = 0; s < 4; s++) {
      uint32_t a[4], b[4];
      ptx::ldmatrix_x4(a, element(tile, 16 * warp + lane % 16, 16 * s + lane / 16 * 8));
      CED_UNROLL
      for (uint32_t j = 0; j < 8; j += 2) {
        ptx::ldmatrix_x4(b,
                         element(tile + 8192, 8 * j + lane / 16 * 8 + lane % 8, 16 * s + lane / 8 % 2 * 8));
        ptx::mma_m16n8k16_bf16(d[j], a, b), ptx::mma_m16n8k16_bf16(d[j + 1], a, b + 2);
      }
    }
  }
  count_wrong(d, group.d, differ);
}

// And keys that lie across.
__global__ void __launch_bounds__(128) compare_transposed_kernel(uint32_t *differ) {
  DYN_SMEM(unsigned char, tile);  // two of 64 by 64
  const uint32_t lane = threadIdx.x % 32, round = blockIdx.x, spread = 1 + 5 * round;
  ptx::Wgmma<128> group;
  float d[16][4] = {};
  group.zero();
  for (uint32_t n = 0; n < kChain; n++) {
    draw_tiles(tile, 2 * 8192, 0x30000000u + (round * kChain + n) * 4096, spread);
    uint32_t a[4][4];
    draw_operand(a, 0x100000u + round * kChain + n, spread);
    group.begin();
    for (int s = 0; s < 4; s++) group.step_transposed(a[s], tile, s);
    group.wait();
    CED_UNROLL
    for (uint32_t s = 0; s < 4; s++) CED_UNROLL
    for (uint32_t j = 0; j < 16; j += 2) {
      uint32_t b[4];
      ptx::ldmatrix_x4_trans(b, element(tile + j / 8 * 8192, 16 * s + lane % 16, j % 8 * 8 + lane / 16 * 8));
      ptx::mma_m16n8k16_bf16(d[j], a[s], b), ptx::mma_m16n8k16_bf16(d[j + 1], a[s], b + 2);
    }
  }
  count_wrong(d, group.d, differ);
}

}  // namespace

int try_wgmma(CudaStream &c, ced_err *err) {
  c.wgmma = false;
  const char *asked = getenv("CEDRUN_WGMMA");
  if (c.capability != 90 || (asked != nullptr && strcmp(asked, "0") == 0)) return CED_OK;
  ced_stream s{};
  s.cuda = &c;
  auto *differ = static_cast<uint32_t *>(c.scratch);
  CED_CUDA_TRY(cudaMemsetAsync(differ, 0, sizeof(uint32_t), c.stream),
               "stream: trying its matrix instructions");
  CED_TRY(launch(&s, err, "wgmma", {kRounds, 128, kColumns * 128}, compare_kernel, differ));
  CED_TRY(launch(&s, err, "wgmma", {kRounds, 128, 2 * 8192}, compare_shared_kernel, differ));
  CED_TRY(launch(&s, err, "wgmma", {kRounds, 128, 2 * 8192}, compare_transposed_kernel, differ));
  uint32_t n = 1;
  CED_CUDA_TRY(cudaMemcpyAsync(&n, differ, sizeof n, cudaMemcpyDeviceToHost, c.stream),
               "stream: trying its matrix instructions");
  CED_CUDA_TRY(cudaStreamSynchronize(c.stream), "stream: trying its matrix instructions");
  c.wgmma = n == 0;
  return CED_OK;
}

}  // namespace ced
