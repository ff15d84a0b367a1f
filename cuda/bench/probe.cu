#include "bench/probe.h"
#include "device/gpu.h"

namespace ced::bench {
namespace {

constexpr int kThreads = 256, kLoads = 4, kBlocks = 8;  // blocks a processor
constexpr int kSums = 8;                                // products under way in a warp
constexpr int kMatrixBlocks = 2;

__device__ uint32_t sum_of(const uint4 &v) { return v.x + v.y + v.z + v.w; }

__global__ void __launch_bounds__(kThreads) read_kernel(uint64_t addr, uint64_t pieces, uint64_t sum) {
  const auto *p = at<const unsigned char>(addr);
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * kThreads;
  uint64_t i = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x;
  uint32_t total = 0;
  for (; i + (kLoads - 1) * stride < pieces; i += kLoads * stride) {
    uint4 v[kLoads];
    CED_UNROLL
    for (int j = 0; j < kLoads; j++)
      v[j] = ptx::load16_once(p + (i + static_cast<uint64_t>(j) * stride) * 16);
    CED_UNROLL
    for (int j = 0; j < kLoads; j++) total += sum_of(v[j]);
  }
  for (; i < pieces; i += stride) total += sum_of(ptx::load16_once(p + i * 16));
  total = __reduce_add_sync(kAllLanes, total);
  if (lane_id() == 0) atomicAdd(at<uint32_t>(sum), total);
}

// Integers of -8..7, other ones in every register of every lane, so that the units' inputs change as those of a real
// product do.
__device__ int small_integer(uint32_t i) { return static_cast<int>((i * 2654435761u) >> 28) - 8; }

__device__ uint32_t bf16_pair(uint32_t seed) {
  return f32_to_bf16(static_cast<float>(small_integer(2 * seed))) |
         static_cast<uint32_t>(f32_to_bf16(static_cast<float>(small_integer(2 * seed + 1)))) << 16;
}

__global__ void __launch_bounds__(kThreads) bf16_kernel(uint32_t rounds, uint64_t out) {
  uint32_t a[4], b[kSums][2];
  for (uint32_t i = 0; i < 4; i++) a[i] = bf16_pair(threadIdx.x * 4 + i);
  for (uint32_t i = 0; i < kSums * 2; i++) b[i / 2][i % 2] = bf16_pair(5000 + threadIdx.x * 2 * kSums + i);
  float d[kSums][4] = {};
  for (uint32_t r = 0; r < rounds; r++) {
    CED_UNROLL
    for (int i = 0; i < kSums; i++) ptx::mma_m16n8k16_bf16(d[i], a, b[i]);
  }
  float sum = 0;
  for (int i = 0; i < kSums * 4; i++) sum += d[i / 4][i % 4];
  at<float>(out)[blockIdx.x * kThreads + threadIdx.x] = sum;
}

__device__ uint32_t small_bytes(uint32_t seed, int offset) {
  uint32_t v = 0;
  for (uint32_t i = 0; i < 4; i++)
    v |= (static_cast<uint32_t>(small_integer(4 * seed + i) + offset) & 0xFFu) << (8 * i);
  return v;
}

__global__ void __launch_bounds__(kThreads) int8_kernel(uint32_t rounds, uint64_t out) {
  uint32_t a[4], b[kSums][2];
  for (uint32_t i = 0; i < 4; i++) a[i] = small_bytes(threadIdx.x * 4 + i, 0);
  for (uint32_t i = 0; i < kSums * 2; i++)
    b[i / 2][i % 2] = small_bytes(5000 + threadIdx.x * 2 * kSums + i, 8);
  int32_t d[kSums][4] = {};
  for (uint32_t r = 0; r < rounds; r++) {
    CED_UNROLL
    for (int i = 0; i < kSums; i++) ptx::mma_m16n8k32_s8u8(d[i], a, b[i]);
  }
  int32_t sum = 0;
  for (int i = 0; i < kSums * 4; i++) sum += d[i / 4][i % 4];
  at<int32_t>(out)[blockIdx.x * kThreads + threadIdx.x] = sum;
}

unsigned matrix_blocks(const ced_stream *s) {
  return static_cast<unsigned>(cuda_of(s).processors * kMatrixBlocks);
}

}  // namespace

int probe_read(ced_stream *s, uint64_t addr, uint64_t bytes, uint64_t sum, ced_err *err) {
  const auto blocks = static_cast<unsigned>(cuda_of(s).processors * kBlocks);
  return launch(s, err, "probe_read", {blocks, kThreads}, read_kernel, addr, bytes / 16, sum);
}

uint64_t matrix_threads(const ced_stream *s) { return uint64_t{matrix_blocks(s)} * kThreads; }

int probe_matrix(ced_stream *s, Matrix kind, uint32_t rounds, uint64_t out, double *ops, ced_err *err) {
  const bool bf16 = kind == Matrix::kBf16;
  *ops = 2.0 * 16 * 8 * (bf16 ? 16 : 32) * kSums * rounds * static_cast<double>(matrix_threads(s)) / 32;
  return launch(s, err, "probe_matrix", {matrix_blocks(s), kThreads}, bf16 ? bf16_kernel : int8_kernel,
                rounds, out);
}

}  // namespace ced::bench
