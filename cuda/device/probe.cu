#include "device/gpu.h"
#include "device/probe.h"

namespace ced {
namespace {

constexpr int kThreads = 256, kLoads = 4, kBlocks = 8;  // blocks a processor
constexpr int kSums = 8;                                // products under way in a warp
constexpr uint32_t kF32Sums = 16;                       // of a thread
constexpr int kProductBlocks = 2;
constexpr int kColumns = 128, kTile = kColumns * 128;  // bytes

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

// The tile of 64 by 128 in shared memory is the same for all rounds.
__global__ void __launch_bounds__(kThreads) group_kernel(uint32_t rounds, uint64_t out) {
  DYN_SMEM(unsigned char, tile);
  for (uint32_t i = threadIdx.x; i < kTile / 4; i += kThreads)
    *reinterpret_cast<uint32_t *>(tile + 4 * i) = bf16_pair(5000 + i);
  ptx::wgmma_visible();
  __syncthreads();
  uint32_t a[4];
  for (uint32_t i = 0; i < 4; i++) a[i] = bf16_pair(threadIdx.x * 4 + i);
  ptx::Wgmma<kColumns> d;
  d.zero();
  for (uint32_t r = 0; r < rounds; r++) {
    d.begin();
    CED_UNROLL
    for (int i = 0; i < kSums; i++) d.step(a, tile, i % 4);
    d.wait();
  }
  float sum = 0;
  CED_UNROLL
  for (int i = 0; i < kColumns / 2; i++) sum += d.d[i / 4][i % 4];
  at<float>(out)[blockIdx.x * kThreads + threadIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads) f32_kernel(uint32_t rounds, uint64_t out) {
  const float a = static_cast<float>(small_integer(threadIdx.x));
  float b[kF32Sums], d[kF32Sums] = {};
  for (uint32_t i = 0; i < kF32Sums; i++)
    b[i] = static_cast<float>(small_integer(5000 + threadIdx.x * kF32Sums + i));
  for (uint32_t r = 0; r < rounds; r++) {
    CED_UNROLL
    for (uint32_t i = 0; i < kF32Sums; i++) d[i] = fmaf(a, b[i], d[i]);
  }
  float sum = 0;
  for (float x : d) sum += x;
  at<float>(out)[blockIdx.x * kThreads + threadIdx.x] = sum;
}

unsigned product_blocks(const ced_stream *s) {
  return static_cast<unsigned>(cuda_of(s).processors * kProductBlocks);
}

}  // namespace

int device_read(ced_stream *s, uint64_t addr, uint64_t bytes, uint64_t sum, ced_err *err) {
  const auto blocks = static_cast<unsigned>(cuda_of(s).processors * kBlocks);
  return launch(s, err, "probe_read", {blocks, kThreads}, read_kernel, addr, bytes / 16, sum);
}

bool has_groups(const ced_stream *s) { return cuda_of(s).capability == 90; }
bool uses_groups(const ced_stream *s) { return cuda_of(s).wgmma; }

uint64_t product_threads(const ced_stream *s) { return uint64_t{product_blocks(s)} * kThreads; }

int device_products(ced_stream *s, Product kind, uint32_t rounds, uint64_t out, double *ops, ced_err *err) {
  const struct {
    void (*kernel)(uint32_t, uint64_t);
    double rows, columns, k, threads;  // of an instruction
    size_t shared_bytes;
  } forms[] = {{bf16_kernel, 16, 8, 16, 32, 0},
               {group_kernel, 64, kColumns, 16, 128, kTile},
               {int8_kernel, 16, 8, 32, 32, 0},
               {f32_kernel, 1, 1, 1, 1.0 * kSums / kF32Sums, 0}};
  const auto &f = forms[static_cast<int>(kind)];
  *ops = 2 * f.rows * f.columns * f.k * kSums * rounds * static_cast<double>(product_threads(s)) / f.threads;
  return launch(s, err, "probe_multiply", {product_blocks(s), kThreads, f.shared_bytes}, f.kernel, rounds,
                out);
}

namespace {

// Rounds of a call: a fraction of a millisecond.
uint32_t rounds_of(Product kind) {
#ifdef CED_SIM
  static_cast<void>(kind);
  return 1;
#else
  switch (kind) {
    case Product::kBf16Group:
      return 256;
    case Product::kF32:
      return 8192;
    default:
      return 2048;
  }
#endif
}

}  // namespace

int cuda_probe_read(ced_stream *s, uint64_t addr, uint64_t bytes, uint64_t *sum, ced_err *err) {
  if (addr % 16 != 0 || bytes % 16 != 0)
    return fail(err, CED_EINVAL, "probe_read: addr = 0x%llx or bytes = %llu is not a multiple of 16",
                static_cast<unsigned long long>(addr), static_cast<unsigned long long>(bytes));
  const auto total = reinterpret_cast<uint64_t>(cuda_of(s).scratch);
  if (sum != nullptr) CED_TRY(cuda_fill(s, total, 0, 4, err));
  CED_TRY(device_read(s, addr, bytes, total, err));
  if (sum == nullptr) return CED_OK;
  *sum = 0;
  return cuda_download(s, sum, total, 4, err);
}

int cuda_probe_multiply(ced_stream *s, bool bf16, uint32_t calls, double *flops, ced_err *err) {
  static_assert(kProductThreads * sizeof(float) <= CudaStream::kScratch, "a number a thread");
  const Product kind = !bf16 ? Product::kF32 : uses_groups(s) ? Product::kBf16Group : Product::kBf16;
  return device_products(s, kind, calls * rounds_of(kind), reinterpret_cast<uint64_t>(cuda_of(s).scratch),
                         flops, err);
}

}  // namespace ced
