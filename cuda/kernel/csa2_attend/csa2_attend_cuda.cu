#include "kernel/csa2_attend/csa2_attend.h"
#include "kernel/row_gpu.h"
#include "num/e8m0.h"
#include "num/fp4.h"
#include "num/fp8.h"

namespace ced {
namespace {

constexpr uint32_t kHeads = 16, kWarps = 8, kThreads = 32 * kWarps;
constexpr uint32_t kSkew =
    8;  // BF16 elements added to rows in shared memory, so that columns meet no bank twice
constexpr uint32_t kProbabilities = kBlock + kSkew;

// What a block keeps in shared memory, in bytes.
struct Shared {
  uint32_t stride;  // elements of a row of keys or queries
  uint32_t keys, q, logits, p, end;

  __host__ __device__ explicit Shared(uint32_t dim)
      : stride(dim + kSkew),
        keys(0),
        q(kBlock * stride * 2),
        logits(q + kHeads * stride * 2),
        p(logits + kHeads * kBlock * 4),
        end(p + kHeads * kProbabilities * 2) {}
};

// A slot of a query's key list (spec D7); without codes it is empty.
__device__ Key key_of(const ced_csa2_attend_args &a, size_t r, uint32_t i) {
  const auto &rows = *at<const ced_rows>(a.rows), &keys = *at<const ced_rows>(a.key_rows);
  const int32_t pos = at<const int32_t>(rows.pos)[r], slot = at<const int32_t>(rows.slot)[r];
  if (i >= a.window) {
    const int32_t j = i - a.window < a.top_k ? at<const int32_t>(a.sel)[r * a.top_k + i - a.window] : -1;
    if (j < 0) return {nullptr, nullptr, true};
    const KvRow row = kv_row(a.kv, slot, j);
    return {row.main_codes, row.main_scales, true};
  }
  int32_t first = pos - static_cast<int32_t>(a.window) + 1;
  if (first < 0) first = 0;
  const int32_t start = at<const int32_t>(a.window_start)[slot];
  if (first < start) first = start;
  const int32_t at_ = first + static_cast<int32_t>(i);
  if (at_ > pos) return {nullptr, nullptr, false};
  const size_t dim = a.head_dim, bytes = dim + dim / 32;
  const int32_t row0 = slot < keys.slots ? at<const int32_t>(keys.seq_first)[slot] : -1;
  const int32_t pos0 = row0 >= 0 ? at<const int32_t>(keys.pos)[row0] : INT32_MAX;
  const uint8_t *row =
      at_ >= pos0
          ? at<const uint8_t>(a.packed) + static_cast<size_t>(row0 + (at_ - pos0)) * bytes
          : at<const uint8_t>(a.ring) +
                (static_cast<size_t>(slot) * a.ring_rows + static_cast<uint32_t>(at_) % a.ring_rows) * bytes;
  return {row, row + dim, false};
}

// Channels [d, d + 16) of a key in BF16, which holds their values exactly.
__device__ void dequantise(const Key &key, uint32_t d, uint16_t *out) {
  float v[16] = {};
  if (key.codes != nullptr && key.global) {
    const float scale = e4m3_to_f32(key.scales[d / 16]);
    const uint2 codes = *reinterpret_cast<const uint2 *>(key.codes + d / 2);
    for (uint32_t i = 0; i < 16; i++)
      v[i] = e2m1_to_f32(static_cast<uint8_t>((i < 8 ? codes.x : codes.y) >> (4 * (i % 8)) & 15u)) * scale;
  } else if (key.codes != nullptr) {
    const float scale = e8m0_to_f32(key.scales[d / 32]);
    const uint8_t *p = key.codes + d;
    uint32_t words[4];
    if (aligned(reinterpret_cast<uint64_t>(p), 16)) {
      const uint4 w = load16(p);
      words[0] = w.x, words[1] = w.y, words[2] = w.z, words[3] = w.w;
    } else {
      for (int i = 0; i < 4; i++)
        words[i] = p[4 * i] | static_cast<uint32_t>(p[4 * i + 1]) << 8 |
                   static_cast<uint32_t>(p[4 * i + 2]) << 16 | static_cast<uint32_t>(p[4 * i + 3]) << 24;
    }
    for (int i = 0; i < 16; i++)
      v[i] = e4m3_to_f32(static_cast<uint8_t>(words[i / 4] >> (8 * (i % 4)))) * scale;
  }
  store16(out, pack8(v));
  store16(out + 8, pack8(v + 8));
}

// A block for 16 heads of a row. Of each 64 slots: a warp makes the logits of 8 keys along the whole head, two heads'
// probabilities, and P V of kTiles * 8 channels. The order of all sums depends on the geometry only. P V of a block is
// summed apart and then joins what came before, so that a form that splits the blocks among processors has these bits.
template <int kTiles>
__global__ void __launch_bounds__(kThreads, 1) csa2_attend_kernel(ced_csa2_attend_args a, float scale) {
  DYN_SMEM(unsigned char, memory);
  SHARED(Key, slots, kBlock);
  SHARED(float, carry, kHeads);
  SHARED(float, top, kHeads);
  SHARED(float, total, kHeads);
  const Shared shared(a.head_dim);
  auto *keys = reinterpret_cast<uint16_t *>(memory + shared.keys),
       *q = reinterpret_cast<uint16_t *>(memory + shared.q);
  auto *logits = reinterpret_cast<float *>(memory + shared.logits);
  auto *p = reinterpret_cast<uint16_t *>(memory + shared.p);
  const uint32_t dim = a.head_dim, stride = shared.stride, head0 = blockIdx.y * kHeads;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const uint32_t width = a.window + (a.sel != 0 ? a.top_k : 0), d0 = warp * kTiles * 8;
  const int32_t count = row_count(a.rows);
  for (int32_t row = static_cast<int32_t>(blockIdx.x); row < count; row += static_cast<int32_t>(gridDim.x)) {
    const auto r = static_cast<size_t>(row);
    for (uint32_t i = 8 * threadIdx.x; i < kHeads * dim; i += 8 * kThreads) {
      const uint32_t h = i / dim;
      store16(q + h * stride + i % dim,
              head0 + h < a.heads ? load16(at<const uint16_t>(a.q) + (r * a.heads + head0) * dim + i)
                                  : make_uint4(0, 0, 0, 0));
    }
    if (threadIdx.x < kHeads) top[threadIdx.x] = kNoKeyYet, total[threadIdx.x] = 0;
    float acc[kTiles][4] = {};
    for (uint32_t from = 0; from < width; from += kBlock) {
      int there = 0;
      if (threadIdx.x < kBlock && from + threadIdx.x < width) {
        slots[threadIdx.x] = key_of(a, r, from + threadIdx.x);
        there = slots[threadIdx.x].codes != nullptr;
      } else if (threadIdx.x < kBlock) {
        slots[threadIdx.x] = {nullptr, nullptr, false};
      }
      if (__syncthreads_count(there) == 0) continue;
      for (uint32_t i = threadIdx.x; i < kBlock * (dim / 16); i += kThreads) {
        const uint32_t j = i / (dim / 16), d = i % (dim / 16) * 16;
        dequantise(slots[j], d, keys + j * stride + d);
      }
      __syncthreads();

      float dot[4] = {};
      for (uint32_t d = 0; d < dim; d += 32) {
        uint32_t x[4], y[4], k[4];
        const uint16_t *head = q + lane % 16 * stride + d + lane / 16 * 8;
        ptx::ldmatrix_x4(x, head), ptx::ldmatrix_x4(y, head + 16);
        ptx::ldmatrix_x4(k, keys + (8 * warp + lane % 8) * stride + d + lane / 8 * 8);
        ptx::mma_m16n8k16_bf16(dot, x, k);
        ptx::mma_m16n8k16_bf16(dot, y, k + 2);
      }
      for (uint32_t i = 0; i < 4; i++) {
        const uint32_t j = 8 * warp + 2 * t + i % 2;
        logits[(g + i / 2 * 8) * kBlock + j] = slots[j].codes != nullptr ? dot[i] * scale : -INFINITY;
      }
      __syncthreads();

      for (uint32_t h = 2 * warp; h < 2 * warp + 2; h++) {
        const float l[2] = {logits[h * kBlock + 2 * lane], logits[h * kBlock + 2 * lane + 1]};
        float next = f32_max(l[0], l[1]);
        for (int m = 16; m > 0; m /= 2) next = f32_max(next, __shfl_xor_sync(kAllLanes, next, m));
        next = f32_max(top[h], next);
        const float e[2] = {expf(l[0] - next), expf(l[1] - next)};
        reinterpret_cast<uint32_t *>(p + h * kProbabilities)[lane] = pack_bf16(e[0], e[1]);
        const float sum = warp_sum(e[0] + e[1]);
        if (lane == 0) {
          carry[h] = expf(top[h] - next);
          total[h] = total[h] * carry[h] + sum;
          top[h] = next;
        }
      }
      __syncthreads();

      uint32_t weights[4][4];
      for (uint32_t k = 0; k < 4; k++)
        ptx::ldmatrix_x4(weights[k], p + lane % 16 * kProbabilities + 16 * k + lane / 16 * 8);
      const float low = carry[g], high = carry[g + 8];
      for (uint32_t n = 0; n < kTiles; n++) {
        if (d0 + 8 * n >= dim) break;  // the same for all lanes
        float pv[4] = {};
        for (uint32_t half = 0; half < 2; half++) {
          uint32_t v[4];
          ptx::ldmatrix_x4_trans(v, keys + (32 * half + lane) * stride + d0 + 8 * n);
          ptx::mma_m16n8k16_bf16(pv, weights[2 * half], v);
          ptx::mma_m16n8k16_bf16(pv, weights[2 * half + 1], v + 2);
        }
        acc[n][0] = acc[n][0] * low + pv[0], acc[n][1] = acc[n][1] * low + pv[1];
        acc[n][2] = acc[n][2] * high + pv[2], acc[n][3] = acc[n][3] * high + pv[3];
      }
      __syncthreads();  // keys, slots and carry may be used again
    }
    __syncthreads();  // top and total, when there was no block
    const Weights sinks(a.sink, CED_F32);
    for (uint32_t i = 0; i < 2; i++) {
      const uint32_t h = g + 8 * i;
      if (head0 + h >= a.heads) continue;
      const float whole = total[h] + expf(sinks[head0 + h] - top[h]);
      uint16_t *o = at<uint16_t>(a.o) + (r * a.heads + head0 + h) * dim;
      for (uint32_t n = 0; n < kTiles; n++) {
        const uint32_t d = d0 + 8 * n + 2 * t;
        if (d >= dim) break;
        *reinterpret_cast<uint32_t *>(o + d) = pack_bf16(acc[n][2 * i] / whole, acc[n][2 * i + 1] / whole);
      }
    }
    __syncthreads();  // before the next row
  }
}

}  // namespace

int csa2_attend_cuda(ced_stream *s, const ced_csa2_attend_args &a, ced_err *err) {
  const dim3 blocks(row_blocks(a.max_rows).x, ceil_div(a.heads, kHeads));
  const Grid grid{blocks, kThreads, Shared(a.head_dim).end};
  const float scale = attend_scale(a);
  const char *name = "csa2_attend";
  if (a.head_dim <= 64) return launch(s, err, name, grid, csa2_attend_kernel<1>, a, scale);
  if (a.head_dim <= 128) return launch(s, err, name, grid, csa2_attend_kernel<2>, a, scale);
  if (a.head_dim <= 256) return launch(s, err, name, grid, csa2_attend_kernel<4>, a, scale);
  if (a.head_dim <= 512) return launch(s, err, name, grid, csa2_attend_kernel<8>, a, scale);
  return fail(err, CED_EINVAL, "csa2_attend: head_dim is %u; the CUDA body has 32 to 512", a.head_dim);
}

}  // namespace ced
