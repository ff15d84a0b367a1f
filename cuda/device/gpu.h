// gpu.h: the only header through which a CUDA body sees CUDA. The same text is compiled by nvcc for a device and by the
// host compiler for the simulated one (sim/sim.h); docs/kernels.md tells how to write it.
#pragma once
#include <tuple>

#include "device/runtime.h"
#include "internal.h"

#ifdef CED_SIM
#define CED_UNROLL
#else
#define CED_UNROLL _Pragma("unroll")
// Block-wide storage: name points to n elements.
#define SHARED(T, name, n) __shared__ __align__(128) T name[n]
#define DYN_SMEM(T, name)                                        \
  extern __shared__ __align__(1024) unsigned char ced_dynamic[]; \
  T *const name = reinterpret_cast<T *>(ced_dynamic)
#endif

#include "device/ptx.h"

namespace ced {

constexpr unsigned kAllLanes = 0xFFFFFFFFu;

// The shape of a launch. resident: all blocks run at once, so that they may wait for each other.
struct Grid {
  dim3 blocks, threads;
  size_t shared_bytes = 0;
  bool resident = false;
};

// Enqueues a kernel. No blocks: nothing. name is the ced_ kernel's, for messages.
template <class... P, class... A>
int launch(ced_stream *s, ced_err *err, const char *name, const Grid &g, void (*kernel)(P...),
           const A &...args) {
  static_assert(sizeof...(P) == sizeof...(A), "a kernel needs all its arguments");
  if (g.blocks.x == 0 || g.blocks.y == 0 || g.blocks.z == 0) return CED_OK;
  const CudaStream &c = cuda_of(s);
  CED_CUDA_TRY(cudaSetDevice(c.device), name);
  if (g.shared_bytes > 32 * 1024)  // more than 48 KB with what the kernel declares has to be asked for
    CED_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(g.shared_bytes)),
                 name);
  std::tuple<P...> values(static_cast<P>(args)...);
#ifdef CED_SIM
  const int rc = sim::enqueue(c.stream, {name, reinterpret_cast<const void *>(kernel), g.blocks, g.threads,
                                         g.shared_bytes, g.resident, [=] { std::apply(kernel, values); }});
  CED_CUDA_TRY(static_cast<cudaError_t>(rc), name);
#else
  return std::apply(
      [&](auto &...v) -> int {
        void *pointers[] = {&v...};
        const auto *f = reinterpret_cast<const void *>(kernel);
        CED_CUDA_TRY(
            g.resident
                ? cudaLaunchCooperativeKernel(f, g.blocks, g.threads, pointers, g.shared_bytes, c.stream)
                : cudaLaunchKernel(f, g.blocks, g.threads, pointers, g.shared_bytes, c.stream),
            name);
        return CED_OK;
      },
      values);
#endif
  return CED_OK;
}

__host__ __device__ inline bool aligned(uint64_t addr, uint64_t to) { return addr % to == 0; }
__host__ __device__ constexpr unsigned ceil_div(unsigned a, unsigned b) { return (a + b - 1) / b; }

__device__ inline int lane_id() { return static_cast<int>(threadIdx.x) & 31; }
__device__ inline int warp_id() { return static_cast<int>(threadIdx.x) / 32; }

// Sums and maxima of a warp in a fixed order (16, 8, 4, 2, 1); every lane gets the same bits.
__device__ inline float warp_sum(float v) {
  for (int m = 16; m > 0; m /= 2) v += __shfl_xor_sync(kAllLanes, v, m);
  return v;
}
__device__ inline uint32_t warp_max(uint32_t v) {
  for (int m = 16; m > 0; m /= 2) {
    const uint32_t other = __shfl_xor_sync(kAllLanes, v, m);
    v = other > v ? other : v;
  }
  return v;
}

// Sum of a block of kThreads in a fixed order; part has a float for every warp. Every thread gets it.
template <int kThreads>
__device__ float block_sum(float v, float *part) {
  v = warp_sum(v);
  if (lane_id() == 0) part[warp_id()] = v;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < kThreads / 32; i++) sum += part[i];
  __syncthreads();  // part may be used again
  return sum;
}

// Exclusive sums over a block of kThreads in the order of its threads; *all gets the whole. part has a word for every warp.
template <int kThreads>
__device__ uint32_t block_scan(uint32_t v, uint32_t *part, uint32_t *all) {
  uint32_t sum = v;
  for (unsigned d = 1; d < 32; d *= 2) {
    const uint32_t below = __shfl_up_sync(kAllLanes, sum, d);
    if (static_cast<unsigned>(lane_id()) >= d) sum += below;
  }
  if (lane_id() == 31) part[warp_id()] = sum;
  __syncthreads();
  uint32_t before = 0, whole = 0;
  for (int i = 0; i < kThreads / 32; i++) {
    if (i < warp_id()) before += part[i];
    whole += part[i];
  }
  __syncthreads();  // part may be used again
  *all = whole;
  return before + sum - v;
}

// 16 bytes at once.
#ifdef CED_SIM
inline uint4 load16(const void *p, CED_SIM_HERE) {
  if (!aligned(reinterpret_cast<uint64_t>(p), 16))
    sim::fault(file, line, "load16 at %p, which is not aligned", p);
  return *static_cast<const uint4 *>(p);
}
inline void store16(void *p, const uint4 &v, CED_SIM_HERE) {
  if (!aligned(reinterpret_cast<uint64_t>(p), 16))
    sim::fault(file, line, "store16 at %p, which is not aligned", p);
  *static_cast<uint4 *>(p) = v;
}
#else
__device__ inline uint4 load16(const void *p) { return *static_cast<const uint4 *>(p); }
__device__ inline void store16(void *p, const uint4 &v) { *static_cast<uint4 *>(p) = v; }
#endif

}  // namespace ced
