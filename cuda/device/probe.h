// probe.h: what a device's memory and arithmetic can do, the limits that kernels are held against. Each call enqueues
// one kernel.
#pragma once
#include "internal.h"

namespace ced {

// Reads bytes at addr, a multiple of 16, once; adds the sum of their 32-bit words to the u32 at sum. addr may be in
// page-locked host memory.
int device_read(ced_stream *s, uint64_t addr, uint64_t bytes, uint64_t sum, ced_err *err);

// What is multiplied: by the matrix units BF16 with F32 sums, by instructions of a warp or of a warpgroup (capability
// 9.0), or bytes with integer sums; or F32 by the threads.
enum class Product { kBf16, kBf16Group, kInt8, kF32 };

// `rounds` products of small integers a warp and accumulator (F32: a thread and accumulator), on all processors; *ops gets
// the multiplications and additions. out: one number a thread, F32 or i32, of at most kProductThreads; each is rounds
// times what one round gives.
constexpr uint64_t kProductThreads = uint64_t{1} << 20;
int device_products(ced_stream *s, Product kind, uint32_t rounds, uint64_t out, double *ops, ced_err *err);

// Whether the device has instructions of warpgroups, and whether the kernels use them.
bool has_groups(const ced_stream *s);
bool uses_groups(const ced_stream *s);

// Threads that write a number.
uint64_t product_threads(const ced_stream *s);

}  // namespace ced
