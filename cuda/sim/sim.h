// sim.h: a simulated device for the text of CUDA kernels, compiled by the host compiler. One fiber per thread; what the
// hardware leaves open is drawn from a seed: the order of threads and blocks, when asynchronous copies land, how
// streams interleave. Memory nobody wrote is NaN. Rules that the hardware does not enforce are: a fault names
// kernel, file, line, block and thread, and ends the process with status 86.
//   CED_SIM_SEED     0 threads in order and copies as late as may be, 1 in reverse order, others at random (2)
//   CED_SIM_THREADS  host threads that run blocks (one per processor)
//   CED_SIM_DEVICES  devices (1)      CED_SIM_MEMORY  MiB of each (16384)
//   CED_SIM_FAULT    N: the N-th launch fails as an illegal address does, and everything after it
//   CED_SIM_NOMEM    N: the N-th launch is refused for lack of memory, and no other
//   CED_SIM_CAPABILITY  compute capability (90); 8.x takes the forms without bulk copies, others have no kernels
//   CED_SIM_UNIFIED  1: devices say that their memory is the host's
//   CED_SIM_AUTO     1: cedrun takes such a device without being asked to
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
// Where the kernel's text called.
#define CED_SIM_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

namespace sim {

constexpr int kWarp = 32, kPayload = 64;

// What a running CUDA thread knows of itself.
struct Thread {
  uint3 thread, block;
  dim3 block_dim, grid_dim;
  int index;  // in the block
};
extern thread_local Thread *self;

[[noreturn]] void fault(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

enum class Kind : uint8_t { kSyncWarp, kShuffle, kVote, kLdmatrix, kMma };
using Lanes = char (*)[kPayload];
// All lanes of mask meet here: each leaves n bytes and gets everybody's. combine, if any, is run once when all are
// there, and turns what they left into what they get.
Lanes meet(unsigned mask, const void *mine, size_t n, Kind kind, const char *file, int line,
           void (*combine)(Lanes) = nullptr);
inline int lane() { return self->index & (kWarp - 1); }

// Barrier id of the block: 0 is for all its threads.
void barrier(int id, int threads, const char *file, int line);
int barrier_count(int vote, const char *file, int line);
void yield();

// Shared memory of the block, one piece for each key.
void *shared(const void *key, size_t bytes);
void *dynamic_shared();

// cp.async: lands somewhere between here and the wait.
void copy_async(void *shared, const void *global, int bytes, int valid, const char *file, int line);
void copy_commit();
void copy_wait(int pending);

// mbarrier objects, and bulk copies that complete on them.
void mbarrier_init(uint64_t *bar, int arrivals, const char *file, int line);
void mbarrier_arrive(uint64_t *bar, uint32_t expect_bytes, const char *file, int line);
void mbarrier_wait(uint64_t *bar, uint32_t parity, const char *file, int line);
// What the thread asked for by cp.async reports to bar when it lands, and so does the thread.
void copy_arrive(uint64_t *bar, const char *file, int line);
void bulk_load(void *shared, const void *global, uint32_t bytes, uint64_t *bar, const char *file, int line);

void mma_m16n8k16_bf16(float d[4], const uint32_t a[4], const uint32_t b[2], const char *file, int line);
void mma_m16n8k32_s8u8(int32_t d[4], const uint32_t a[4], const uint32_t b[2], const char *file, int line);

bool has_bulk();

// Device memory as the host sees it: bit 62 marks the address, bits 48..55 hold the device, so that host code that
// looks into it is caught. Kernels reach it through at<T>(), which asks here.
constexpr uint64_t kDeviceBit = uint64_t{1} << 62;
uint64_t resolve(uint64_t addr);

}  // namespace sim

#define threadIdx (sim::self->thread)
#define blockIdx (sim::self->block)
#define blockDim (sim::self->block_dim)
#define gridDim (sim::self->grid_dim)

#define SHARED(T, name, n)                      \
  T *const name = static_cast<T *>(sim::shared( \
      []() -> const void * {                    \
        static const char key = 0;              \
        return &key;                            \
      }(),                                      \
      sizeof(T) * (n)))
#define DYN_SMEM(T, name) T *const name = static_cast<T *>(sim::dynamic_shared())

inline void __syncthreads(CED_SIM_HERE) { sim::barrier(0, 0, file, line); }
inline int __syncthreads_count(int vote, CED_SIM_HERE) { return sim::barrier_count(vote, file, line); }
inline int __syncthreads_or(int vote, CED_SIM_HERE) { return sim::barrier_count(vote, file, line) != 0; }
inline void __syncwarp(unsigned mask = ~0u, CED_SIM_HERE) {
  sim::meet(mask, nullptr, 0, sim::Kind::kSyncWarp, file, line);
}

namespace sim {
template <class T>
T shuffle(unsigned mask, const T &v, int source, const char *file, int line) {
  static_assert(sizeof(T) <= 8);
  const Lanes all = meet(mask, &v, sizeof v, Kind::kShuffle, file, line);
  if ((mask >> source & 1) == 0) fault(file, line, "shuffle from lane %d, which is not in the mask", source);
  T r;
  memcpy(&r, all[source], sizeof r);
  return r;
}
}  // namespace sim

template <class T>
T __shfl_sync(unsigned mask, T v, int source, int width = 32, CED_SIM_HERE) {
  return sim::shuffle(mask, v, (sim::lane() & ~(width - 1)) | (source & (width - 1)), file, line);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32, CED_SIM_HERE) {
  const int l = sim::lane(), s = l ^ bits;
  return sim::shuffle(mask, v, (s & ~(width - 1)) > (l & ~(width - 1)) ? l : s, file, line);
}
template <class T>
T __shfl_down_sync(unsigned mask, T v, int by, int width = 32, CED_SIM_HERE) {
  const int l = sim::lane();
  return sim::shuffle(mask, v, (l & (width - 1)) + by >= width ? l : l + by, file, line);
}
template <class T>
T __shfl_up_sync(unsigned mask, T v, int by, int width = 32, CED_SIM_HERE) {
  const int l = sim::lane();
  return sim::shuffle(mask, v, (l & (width - 1)) - by < 0 ? l : l - by, file, line);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, CED_SIM_HERE) {
  const sim::Lanes all = sim::meet(mask, &predicate, sizeof predicate, sim::Kind::kVote, file, line);
  unsigned r = 0;
  for (int i = 0; i < sim::kWarp; i++) {
    int p = 0;
    if (mask >> i & 1) memcpy(&p, all[i], sizeof p);
    r |= static_cast<unsigned>(p != 0) << i;
  }
  return r;
}
inline int __any_sync(unsigned mask, int p, CED_SIM_HERE) { return __ballot_sync(mask, p, file, line) != 0; }
inline int __all_sync(unsigned mask, int p, CED_SIM_HERE) {
  return __ballot_sync(mask, p, file, line) == mask;
}
template <class T>
T __reduce_add_sync(unsigned mask, T v, CED_SIM_HERE) {
  const sim::Lanes all = sim::meet(mask, &v, sizeof v, sim::Kind::kVote, file, line);
  T sum = 0;
  for (int i = 0; i < sim::kWarp; i++) {
    T x = 0;
    if (mask >> i & 1) memcpy(&x, all[i], sizeof x);
    sum += x;
  }
  return sum;
}
template <class T>
T __reduce_max_sync(unsigned mask, T v, CED_SIM_HERE) {
  const sim::Lanes all = sim::meet(mask, &v, sizeof v, sim::Kind::kVote, file, line);
  for (int i = 0; i < sim::kWarp; i++) {
    T x = v;
    if (mask >> i & 1) memcpy(&x, all[i], sizeof x);
    v = x > v ? x : v;
  }
  return v;
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline void __threadfence() {
#ifndef __SANITIZE_THREAD__  // knows no fences; the atomics here order what was written before them
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}
inline void __threadfence_block() { __threadfence(); }
inline void __threadfence_system() { __threadfence(); }
inline void __nanosleep(unsigned) { sim::yield(); }

template <class T>
T atomicAdd(T *p, T v) {
  if constexpr (std::is_integral_v<T>) return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);
  T old, sum;
  __atomic_load(p, &old, __ATOMIC_RELAXED);
  do sum = old + v;
  while (!__atomic_compare_exchange(p, &old, &sum, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
  return old;
}
namespace sim {
template <class T, class F>
T atomic_update(T *p, const F &f) {
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(p, &old, f(old), false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
  }
  return old;
}
}  // namespace sim
template <class T>
T atomicSub(T *p, T v) {
  return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST);
}
template <class T>
T atomicMax(T *p, T v) {
  return sim::atomic_update(p, [&](T old) { return old < v ? v : old; });
}
template <class T>
T atomicMin(T *p, T v) {
  return sim::atomic_update(p, [&](T old) { return v < old ? v : old; });
}
template <class T>
T atomicOr(T *p, T v) {
  return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST);
}
template <class T>
T atomicAnd(T *p, T v) {
  return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST);
}
template <class T>
T atomicExch(T *p, T v) {
  return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);
}
template <class T>
T atomicCAS(T *p, T expected, T v) {
  __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}
// Wraps to 0 at limit: the counter of blocks that are done.
inline unsigned atomicInc(unsigned *p, unsigned limit) {
  return sim::atomic_update(p, [&](unsigned old) { return old >= limit ? 0 : old + 1; });
}
