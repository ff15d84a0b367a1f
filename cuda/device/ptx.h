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

// The same, D = A B + C.
__device__ inline void mma_m16n8k32_s8u8(int32_t d[4], const uint32_t a[4], const uint32_t b[2],
                                         const int32_t c[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%11,%12,%13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]),
        "r"(c[3]));
}

// The bytes of a (0..3) and b (4..7) that the low three bits of the four low nibbles of `which` name.
__device__ inline uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t which) {
  return __byte_perm(a, b, which & 0x7777u);
}

// The same, but a set upper bit of a nibble asks for the byte's upper bit, eight times.
__device__ inline uint32_t pick_bytes_or_signs(uint32_t a, uint32_t b, uint32_t which) {
  uint32_t d;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(which));
  return d;
}

// Two values rounded to BF16.
__device__ inline uint32_t round_bf16x2(float low, float high) {
  uint32_t d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}
// The same, negative ones to zero.
__device__ inline uint32_t positive_bf16x2(float low, float high) {
  uint32_t d;
  asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}

// threadIdx.x, of which the compiler knows nothing: what is computed from it in a loop is not kept in registers for the
// next turn.
__device__ inline uint32_t thread_x() {
  uint32_t x;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
  return x;
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

// Whether there are mbarriers that count bytes, and bulk copies.
__device__ constexpr bool has_bulk() { return CED_ARCH >= 900; }

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
// An arrival that happens when all that the thread asked for by cp.async has landed.
__device__ inline void cp_async_arrive(uint64_t *bar) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(bar)) : "memory");
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

// D[64, kRows] += A[64, 16] B[16, kRows] by the four warps of a warpgroup, asynchronously. Warp w has rows 16w..16w+15 of A
// and D in the layouts of mma_m16n8k16_bf16, D eight columns at a time. B is in shared memory: column n is row n of a
// tile of 64 k's by kRows, whose rows are 128 bytes, at a multiple of 1024 bytes; the 16-byte piece p of row n stands at
// piece p ^ n % 8. What threads wrote there has to be made visible (wgmma_visible, then a barrier).
// Compilers between CUDA 12.4 and 13.3 are said to use registers again that wgmma still reads; what 12.4 and 13.5 make of
// these kernels was looked through (tools/flight.awk).
#define CED_NVCC (__CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__)
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) && (CED_NVCC == 1204 || CED_NVCC >= 1303)
#define CED_WGMMA 1
#endif
template <int kRows>
struct Wgmma {
  float d[kRows / 8][4];

  __device__ void zero() {
    CED_UNROLL
    for (int j = 0; j < kRows / 8; j++)
      for (int i = 0; i < 4; i++) d[j][i] = 0;
  }
  // Before the first step after d or a were written.
  __device__ void begin() {
#ifdef CED_WGMMA
    hold();
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
  }
  // k's 16*part .. 16*part+15 of the tile; neither a nor d may be touched before wait(), and a has to be held after it: else
  // the compiler takes its registers for what is computed meanwhile.
  __device__ void step(const uint32_t a[4], const void *tile, int part) {
#ifdef CED_WGMMA
    multiply<0>(a, descriptor(tile, part));
#endif
  }
  // The tile is that of A transposed: its rows of 128 bytes are k's, 64 of them, each with 64 columns of B; the columns
  // from 64 on have a tile of their own behind it, and so on.
  __device__ void step_transposed(const uint32_t a[4], const void *tile, int part) {
#ifdef CED_WGMMA
    static_assert(kRows % 64 == 0, "whole tiles");
    multiply<1>(a, (shared_address(tile) >> 4) + 128 * static_cast<uint32_t>(part) | uint64_t{512} << 16 |
                       uint64_t{64} << 32 | uint64_t{1} << 62);
#endif
  }
  // A too from shared memory, in the same form: row m of A is row m of a tile of 64 by 64.
  __device__ void step_shared(const void *a_tile, const void *tile, int part) {
#ifdef CED_WGMMA
    static_assert(kRows == 64, "the one form in use");
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, 1, 1, 1, 0, 0;"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
          "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
          "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]),
          "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
          "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
          "+f"(d[7][2]), "+f"(d[7][3])
        : "l"(descriptor(a_tile, part)), "l"(descriptor(tile, part)));
#endif
  }
  __device__ void wait() {
#ifdef CED_WGMMA
    asm volatile("wgmma.commit_group.sync.aligned;\n wgmma.wait_group.sync.aligned 0;" ::: "memory");
    hold();
#endif
  }

 private:
#ifdef CED_WGMMA
  // 8 rows every 1024 bytes, pieces exchanged within 128 bytes.
  __device__ static uint64_t descriptor(const void *tile, int part) {
    return (shared_address(tile) >> 4) + 2 * static_cast<uint32_t>(part) | uint64_t{64} << 32 |
           uint64_t{1} << 62;
  }
  template <int kTransposed>
  __device__ void multiply(const uint32_t a[4], uint64_t b) {
    static_assert(kRows == 32 || kRows == 64 || kRows == 128, "instructions exist for others, forms do not");
    if constexpr (kRows == 32) {
      asm volatile(
          "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
          "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
          "{%16, %17, %18, %19}, %20, 1, 1, 1, %21;"
          : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
            "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
            "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kTransposed));
    } else if constexpr (kRows == 64) {
      asm volatile(
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
          "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
          "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
          "{%32, %33, %34, %35}, %36, 1, 1, 1, %37;"
          : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
            "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
            "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]),
            "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
            "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
            "+f"(d[7][2]), "+f"(d[7][3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kTransposed));
    } else {
      asm volatile(
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
          "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
          "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
          "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
          "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
          "{%64, %65, %66, %67}, %68, 1, 1, 1, %69;"
          : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
            "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
            "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]),
            "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
            "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
            "+f"(d[7][2]), "+f"(d[7][3]), "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]), "+f"(d[8][3]),
            "+f"(d[9][0]), "+f"(d[9][1]), "+f"(d[9][2]), "+f"(d[9][3]), "+f"(d[10][0]), "+f"(d[10][1]),
            "+f"(d[10][2]), "+f"(d[10][3]), "+f"(d[11][0]), "+f"(d[11][1]), "+f"(d[11][2]), "+f"(d[11][3]),
            "+f"(d[12][0]), "+f"(d[12][1]), "+f"(d[12][2]), "+f"(d[12][3]), "+f"(d[13][0]), "+f"(d[13][1]),
            "+f"(d[13][2]), "+f"(d[13][3]), "+f"(d[14][0]), "+f"(d[14][1]), "+f"(d[14][2]), "+f"(d[14][3]),
            "+f"(d[15][0]), "+f"(d[15][1]), "+f"(d[15][2]), "+f"(d[15][3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kTransposed));
    }
  }
#endif

 public:
  // After wait(): operands in registers stay what they are up to here.
  template <int kWords>
  __device__ static void hold_operand(uint32_t (&a)[kWords]) {
    CED_UNROLL
    for (int i = 0; i < kWords; i++) asm volatile("" : "+r"(a[i])::"memory");
  }

 private:
  // Keeps the compiler from moving what reads or writes d to the other side.
  __device__ void hold() {
    CED_UNROLL
    for (int j = 0; j < kRows / 8; j++)
      for (int i = 0; i < 4; i++) asm volatile("" : "+f"(d[j][i])::"memory");
  }
};
// After writing what a later wgmma reads, before the barrier.
__device__ inline void wgmma_visible() {
#ifdef CED_WGMMA
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

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
inline void mma_m16n8k32_s8u8(int32_t d[4], const uint32_t a[4], const uint32_t b[2], const int32_t c[4],
                              CED_SIM_HERE) {
  for (int i = 0; i < 4; i++) d[i] = c[i];
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

inline uint32_t pick_bytes_or_signs(uint32_t a, uint32_t b, uint32_t which) {
  uint32_t out = pick_bytes(a, b, which);
  for (int i = 0; i < 4; i++)
    if ((which >> (4 * i) & 8u) != 0)
      out = (out & ~(0xFFu << (8 * i))) | ((out >> (8 * i) & 0x80u) != 0 ? 0xFFu << (8 * i) : 0);
  return out;
}
inline uint32_t round_bf16x2(float low, float high) {
  return f32_to_bf16(low) | static_cast<uint32_t>(f32_to_bf16(high)) << 16;
}
inline uint32_t positive_bf16x2(float low, float high) {
  return f32_to_bf16(low < 0 ? 0.0f : low) | static_cast<uint32_t>(f32_to_bf16(high < 0 ? 0.0f : high)) << 16;
}

inline uint32_t thread_x() { return threadIdx.x; }
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

inline bool has_bulk() { return sim::has_bulk(); }
inline void cp_async_arrive(uint64_t *bar, CED_SIM_HERE) { sim::copy_arrive(bar, file, line); }
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
#define CED_WGMMA 1
// The sums appear, and the tile is read, at the wait: who does not wait has NaNs, who writes too early its own.
template <int kRows>
struct Wgmma {
  float d[kRows / 8][4];

  void zero() { memset(d, 0, sizeof d); }
  void begin() {}
  void step(const uint32_t a[4], const void *tile, int part, CED_SIM_HERE) {
    memcpy(add(nullptr, tile, part, false, file, line).a, a, sizeof Step::a);
  }
  void step_transposed(const uint32_t a[4], const void *tile, int part, CED_SIM_HERE) {
    memcpy(add(nullptr, tile, part, true, file, line).a, a, sizeof Step::a);
  }
  void step_shared(const void *a_tile, const void *tile, int part, CED_SIM_HERE) {
    add(a_tile, tile, part, false, file, line);
  }
  template <int kWords>
  static void hold_operand(uint32_t (&)[kWords]) {}
  void wait(CED_SIM_HERE) {
    for (int i = 0; i < steps_; i++) run(pending_[i], file, line);
    if (steps_ > 0) memcpy(static_cast<void *>(d), sum_, sizeof d);
    steps_ = 0;
  }

 private:
  static constexpr int kMost = 32;
  struct Step {
    const void *a_tile, *tile;
    int part;
    bool transposed;
    uint32_t a[4];
  };
  Step &add(const void *a_tile, const void *b_tile, int part, bool transposed, const char *file, int line) {
    for (const void *tile : {a_tile, b_tile})
      if (reinterpret_cast<uintptr_t>(tile) % 1024 != 0)
        sim::fault(file, line, "a tile at %p: not a multiple of 1024", tile);
    if (steps_ == kMost) sim::fault(file, line, "more than %d steps without a wait", kMost);
    if (steps_ == 0) {
      memcpy(sum_, d, sizeof d);
      memset(static_cast<void *>(d), 0xFF, sizeof d);
    }
    Step &s = pending_[steps_++];
    s = {a_tile, b_tile, part, transposed, {}};
    return s;
  }
  // Element (row, column) of a tile whose rows have 128 bytes.
  static uint16_t element(const void *tile, int row, int column) {
    uint16_t v;
    memcpy(&v,
           static_cast<const unsigned char *>(tile) + 128 * row + 16 * ((column / 8) ^ (row % 8)) +
               column % 8 * 2,
           sizeof v);
    return v;
  }
  // Products are exact, their sum is rounded once, as in mma_m16n8k16_bf16.
  void run(Step &s, const char *file, int line) {
    if (s.a_tile != nullptr)
      for (int i = 0; i < 4; i++) {
        const int row = sim::lane() / 4 + i % 2 * 8 + static_cast<int>(threadIdx.x) / 32 % 4 * 16,
                  k = 16 * s.part + sim::lane() % 4 * 2 + i / 2 * 8;
        s.a[i] = element(s.a_tile, row, k) | static_cast<uint32_t>(element(s.a_tile, row, k + 1)) << 16;
      }
    const sim::Lanes lanes = sim::meet(~0u, s.a, sizeof s.a, sim::Kind::kMma, file, line);
    const int g = sim::lane() / 4, t = sim::lane() % 4;
    double a[2][16];  // of the rows g and g + 8
    for (int l = 0; l < 4; l++) {
      uint32_t w[4];
      memcpy(w, lanes[4 * g + l], sizeof w);
      for (int i = 0; i < 4; i++) {
        a[i % 2][2 * l + i / 2 * 8] = f32_of(w[i] << 16);
        a[i % 2][2 * l + i / 2 * 8 + 1] = f32_of(w[i] & 0xFFFF0000u);
      }
    }
    for (int j = 0; j < kRows / 8; j++)
      for (int c = 0; c < 2; c++) {
        const int n = 8 * j + 2 * t + c;
        double sum[2] = {};
        for (int k = 0; k < 16; k++) {
          const uint16_t b = s.transposed
                                 ? element(static_cast<const unsigned char *>(s.tile) + n / 64 * 8192,
                                           16 * s.part + k, n % 64)
                                 : element(s.tile, n, 16 * s.part + k);
          for (int h = 0; h < 2; h++) sum[h] += a[h][k] * bf16_to_f32(b);
        }
        for (int h = 0; h < 2; h++) {
          float &v = sum_[j][2 * h + c];
          v = static_cast<float>(static_cast<double>(v) + sum[h]);
        }
      }
  }

  float sum_[kRows / 8][4];
  Step pending_[kMost];
  int steps_ = 0;
};
inline void wgmma_visible() {}
#endif

}  // namespace ced::ptx
