// ptx.h: one wrapper for each instruction that C++ has no words for, with two bodies: the instruction, and what the
// simulated device makes of it. Include device/gpu.h.
#pragma once
#include "num/bf16.h"

// What the code may use: 800, 890, 900 ... The simulated device knows all.
#ifdef CED_SIM
#define CED_ARCH 900
#elif defined(__CUDA_ARCH__)
#define CED_ARCH __CUDA_ARCH__
#else
#define CED_ARCH 0
#endif

namespace ced::ptx {

#ifndef CED_SIM
__device__ inline uint32_t shared_address(const void *p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// 16 bytes of global memory to shared memory, past the registers and L1.
__device__ inline void cp_async16(void *shared, const void *global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)), "l"(global)
               : "memory");
}
// The same where there are 16 bytes, else zeros; global must be an address that could be read.
__device__ inline void cp_async16_or_zero(void *shared, const void *global, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(there ? 16 : 0)
               : "memory");
}
__device__ inline void cp_async4(void *shared, const void *global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(shared)), "l"(global)
               : "memory");
}
__device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most kPending of the thread's groups are under way.
template <int kPending>
__device__ inline void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Four 8x8 matrices of 16-bit elements; lane 8i+r names row r of matrix i. r[i]: row lane/4, columns lane%4*2 and +1.
__device__ inline void ldmatrix_x4(uint32_t r[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ inline void ldmatrix_x4_trans(uint32_t r[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
// Two matrices; lanes 0..15 name the rows.
__device__ inline void ldmatrix_x2(uint32_t r[2], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared_address(row))
               : "memory");
}

// D[16,8] += A[16,16] B[16,8], f32 += bf16 bf16. With g = lane/4, t = lane%4*2, pairs (low, high) in a word:
//   a[0] row g, columns t, t+1   a[1] row g+8   a[2] row g, columns t+8, t+9   a[3] row g+8, columns t+8, t+9
//   b[0] rows t, t+1 of column g   b[1] rows t+8, t+9       d[0], d[1] row g, columns t, t+1   d[2], d[3] row g+8
__device__ inline void mma_m16n8k16_bf16(float d[4], const uint32_t a[4], const uint32_t b[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Two products of BF16 pairs; exact where the products are BF16 values, subnormal ones too.
__device__ inline uint32_t mul_bf16x2(uint32_t a, uint32_t b) {
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(0x80008000u));
  return d;
}

// D[16,8] += A[16,32] B[32,8] in integers: signed bytes of A, unsigned ones of B. With g = lane/4, t = lane%4*4, four to a
// word: a[0] row g, columns t..t+3; a[1] row g+8; a[2] row g, columns t+16..t+19; a[3] row g+8; b[0] rows t..t+3 of
// column g; b[1] rows t+16..t+19; d as above.
__device__ inline void mma_m16n8k32_s8u8(int32_t d[4], const uint32_t a[4], const uint32_t b[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The bytes of a (0..3) and b (4..7) that the low three bits of the four low nibbles of `which` name.
__device__ inline uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t which) {
  return __byte_perm(a, b, which & 0x7777u);
}

// 16 bytes that nobody reads again: past L1.
__device__ inline uint4 load16_once(const void *p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

// Flags between blocks. What was written before the release is seen after the acquire that reads it.
__device__ inline uint32_t load_acquire(const uint32_t *p) {
  uint32_t v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ inline void store_release(uint32_t *p, uint32_t v) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

// Barrier id (1..15) for `threads` of the block, a multiple of 32.
__device__ inline void named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

#if CED_ARCH >= 900 || CED_ARCH == 0
// An mbarrier in shared memory; its phase ends when all have arrived and all expected bytes have landed. One thread
// makes it, then mbarrier_visible() and __syncthreads().
__device__ inline void mbarrier_init(uint64_t *bar, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(arrivals)
               : "memory");
}
__device__ inline void mbarrier_visible() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ inline void mbarrier_arrive(uint64_t *bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar)) : "memory");
}
__device__ inline void mbarrier_arrive_expect(uint64_t *bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)), "r"(bytes)
               : "memory");
}
// Until the phase of this parity (0 first, then 1, 0, ...) has ended.
__device__ inline void mbarrier_wait(uint64_t *bar, uint32_t parity) {
  asm volatile(
      "{\n .reg .pred done;\n"
      "again:\n mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n @!done bra again;\n}" ::"r"(
          shared_address(bar)),
      "r"(parity)
      : "memory");
}
// Copies bytes, a multiple of 16, at 16-byte addresses, and reports them to bar.
__device__ inline void bulk_load(void *shared, const void *global, uint32_t bytes, uint64_t *bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(bar))
      : "memory");
}
#endif

#else
inline void cp_async16(void *shared, const void *global, CED_SIM_HERE) {
  sim::copy_async(shared, global, 16, 16, file, line);
}
inline void cp_async16_or_zero(void *shared, const void *global, bool there, CED_SIM_HERE) {
  sim::copy_async(shared, global, 16, there ? 16 : 0, file, line);
}
inline void cp_async4(void *shared, const void *global, CED_SIM_HERE) {
  sim::copy_async(shared, global, 4, 4, file, line);
}
inline void cp_async_commit() { sim::copy_commit(); }
template <int kPending>
inline void cp_async_wait() {
  sim::copy_wait(kPending);
}

// Here, not in the runtime, so that the sanitizers see the lanes read.
template <int kMatrices, bool kTransposed>
inline void load_matrices(uint32_t *r, const void *row, const char *file, int line) {
  const bool asked = sim::lane() < 8 * kMatrices;
  if (asked && reinterpret_cast<uintptr_t>(row) % 16 != 0)
    sim::fault(file, line, "ldmatrix: a row's address is not aligned to 16 bytes");
  const sim::Lanes lanes = sim::meet(~0u, &row, sizeof row, sim::Kind::kLdmatrix, file, line);
  const int g = sim::lane() / 4, t = sim::lane() % 4 * 2;
  for (int m = 0; m < kMatrices; m++) {
    uint32_t pair[2];
    for (int i = 0; i < 2; i++) {
      const int at = kTransposed ? t + i : g, column = kTransposed ? g : t + i;
      const uint16_t *p;
      memcpy(&p, lanes[8 * m + at], sizeof p);
      pair[i] = p[column];
    }
    r[m] = pair[0] | pair[1] << 16;
  }
}
inline void ldmatrix_x4(uint32_t r[4], const void *row, CED_SIM_HERE) {
  load_matrices<4, false>(r, row, file, line);
}
inline void ldmatrix_x4_trans(uint32_t r[4], const void *row, CED_SIM_HERE) {
  load_matrices<4, true>(r, row, file, line);
}
inline void ldmatrix_x2(uint32_t r[2], const void *row, CED_SIM_HERE) {
  load_matrices<2, false>(r, row, file, line);
}
inline void mma_m16n8k16_bf16(float d[4], const uint32_t a[4], const uint32_t b[2], CED_SIM_HERE) {
  sim::mma_m16n8k16_bf16(d, a, b, file, line);
}
inline void mma_m16n8k32_s8u8(int32_t d[4], const uint32_t a[4], const uint32_t b[2], CED_SIM_HERE) {
  sim::mma_m16n8k32_s8u8(d, a, b, file, line);
}
inline uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t which) {
  uint32_t out = 0;
  for (int i = 0; i < 4; i++) {
    const uint32_t n = which >> (4 * i) & 7u;
    out |= ((n < 4 ? a : b) >> (8 * (n % 4)) & 0xFFu) << (8 * i);
  }
  return out;
}

inline uint32_t mul_bf16x2(uint32_t a, uint32_t b) {
  const uint32_t low = f32_to_bf16(f32_of(a << 16) * f32_of(b << 16));
  return low | static_cast<uint32_t>(f32_to_bf16(f32_of(a & 0xFFFF0000u) * f32_of(b & 0xFFFF0000u))) << 16;
}
inline uint4 load16_once(const void *p, CED_SIM_HERE) {
  if (reinterpret_cast<uintptr_t>(p) % 16 != 0) sim::fault(file, line, "a load of 16 bytes at %p", p);
  return *static_cast<const uint4 *>(p);
}
inline uint32_t load_acquire(const uint32_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
inline void store_release(uint32_t *p, uint32_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
inline void named_barrier(int id, int threads, CED_SIM_HERE) { sim::barrier(id, threads, file, line); }

inline void mbarrier_init(uint64_t *bar, int arrivals, CED_SIM_HERE) {
  sim::mbarrier_init(bar, arrivals, file, line);
}
inline void mbarrier_visible() {}
inline void mbarrier_arrive(uint64_t *bar, CED_SIM_HERE) { sim::mbarrier_arrive(bar, 0, file, line); }
inline void mbarrier_arrive_expect(uint64_t *bar, uint32_t bytes, CED_SIM_HERE) {
  sim::mbarrier_arrive(bar, bytes, file, line);
}
inline void mbarrier_wait(uint64_t *bar, uint32_t parity, CED_SIM_HERE) {
  sim::mbarrier_wait(bar, parity, file, line);
}
inline void bulk_load(void *shared, const void *global, uint32_t bytes, uint64_t *bar, CED_SIM_HERE) {
  sim::bulk_load(shared, global, bytes, bar, file, line);
}
#endif

}  // namespace ced::ptx
