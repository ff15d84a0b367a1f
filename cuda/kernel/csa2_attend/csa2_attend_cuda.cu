// Two forms with the same bits. For many rows a block takes 16 heads of a row over all its keys. For few, key blocks have
// processors of their own: one kernel makes the logits of 64 keys with 16 heads, the next one P V of 32 channels.
#include "kernel/csa2_attend/csa2_attend_gpu.h"

namespace ced {
namespace {

constexpr uint32_t kHeads = 16, kWarps = 8, kThreads = 32 * kWarps;
constexpr uint32_t kSkew = 8;  // BF16 added to rows in shared memory, so that columns meet no bank twice
constexpr uint32_t kProbabilities = kBlock + kSkew;
constexpr uint32_t kSlice = 32;  // channels of a block of values_kernel
constexpr uint32_t kStage = 10;  // key blocks that it holds at a time
constexpr uint32_t kStageStride = kSlice + kSkew, kStageWeights = kStage * kBlock + kSkew;
constexpr uint32_t kStageBytes = 2 * (kStage * kBlock * kStageStride + kHeads * kStageWeights);

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

// Channels [d, d + 16) of a key in BF16.
__device__ void dequantise(const Key &key, uint32_t d, uint16_t *out) {
  Channels<1> channels;
  channels.load<false>(key, d);
  channels.expand_to([&](uint32_t, const uint4 *v) { store16(out, v[0]), store16(out + 8, v[1]); });
}

// The queries of 16 heads of a row; zeros where there is no head.
__device__ void load_queries(const ced_csa2_attend_args &a, size_t r, uint32_t head0, uint32_t stride,
                             uint16_t *q) {
  const uint32_t dim = a.head_dim;
  for (uint32_t i = 8 * threadIdx.x; i < kHeads * dim; i += 8 * kThreads) {
    const uint32_t h = i / dim;
    store16(q + h * stride + i % dim, head0 + h < a.heads
                                          ? load16(at<const uint16_t>(a.q) + (r * a.heads + head0) * dim + i)
                                          : make_uint4(0, 0, 0, 0));
  }
}

// Whether this thread's slot of the block of 64 at `from` holds a key; threads beyond the block have none.
__device__ bool find_slot(const ced_csa2_attend_args &a, size_t r, uint32_t from, uint32_t width,
                          Key *slots) {
  if (threadIdx.x >= kBlock) return false;
  slots[threadIdx.x] =
      from + threadIdx.x < width ? RowKeys(a, r).key(a, r, from + threadIdx.x) : Key{nullptr, nullptr, false};
  return slots[threadIdx.x].codes != nullptr;
}

__device__ void dequantise_block(const Key *slots, uint32_t dim, uint32_t stride, uint16_t *keys) {
  for (uint32_t i = threadIdx.x; i < kBlock * (dim / 16); i += kThreads) {
    const uint32_t j = i / (dim / 16), d = i % (dim / 16) * 16;
    dequantise(slots[j], d, keys + j * stride + d);
  }
}

// A warp's products: 16 heads with 8 keys along the whole head. A lane gets heads g and g + 8, keys 2t and 2t + 1.
__device__ void products(const uint16_t *q, const uint16_t *keys, uint32_t dim, uint32_t stride,
                         float dot[4]) {
  const uint32_t lane = threadIdx.x % 32;
  for (uint32_t d = 0; d < dim; d += 32) {
    uint32_t x[4], y[4], k[4];
    const uint16_t *head = q + lane % 16 * stride + d + lane / 16 * 8;
    ptx::ldmatrix_x4(x, head), ptx::ldmatrix_x4(y, head + 16);
    ptx::ldmatrix_x4(k, keys + lane % 8 * stride + d + lane / 8 * 8);
    ptx::mma_m16n8k16_bf16(dot, x, k);
    ptx::mma_m16n8k16_bf16(dot, y, k + 2);
  }
}

// A head's softmax as it goes over its blocks; the lanes of a warp share it, each has two keys of a block.
struct Softmax {
  float top = kNoKeyYet, total = 0;

  // l: the lane's two logits of a block, most: the largest of all its 64. Leaves the probabilities, rounded, and returns
  // what the sums before this block are to be multiplied by.
  __device__ float add(const float l[2], float most, uint32_t *p) {
    const float next = f32_max(top, most), e[2] = {expf(l[0] - next), expf(l[1] - next)};
    *p = ptx::round_bf16x2(e[0], e[1]);
    const float carry = expf(top - next);
    total = total * carry + warp_sum(e[0] + e[1]);
    top = next;
    return carry;
  }
};

// One over the denominators of a warp's two heads, which the sinks join.
__device__ void finish(const Softmax (&softmax)[2], const Weights &sinks, uint32_t head0, uint32_t heads,
                       float *share) {
  const uint32_t h = threadIdx.x / 32 * 2 + threadIdx.x % 32;
  if (threadIdx.x % 32 >= 2 || head0 + h >= heads) return;
  const Softmax mine = threadIdx.x % 32 == 0 ? softmax[0] : softmax[1];
  share[h] = 1 / (mine.total + expf(sinks[head0 + h] - mine.top));
}

// P V of a block for 16 heads and 8 channels joins what came before, which is scaled to the new maximum first.
__device__ void add_values(const uint32_t weights[4][4], const uint16_t *values, uint32_t stride, float low,
                           float high, float acc[4]) {
  acc[0] *= low, acc[1] *= low, acc[2] *= high, acc[3] *= high;
  for (uint32_t half = 0; half < 2; half++) {
    uint32_t v[4];
    ptx::ldmatrix_x4_trans(v, values + (32 * half + threadIdx.x % 32) * stride);
    ptx::mma_m16n8k16_bf16(acc, weights[2 * half], v);
    ptx::mma_m16n8k16_bf16(acc, weights[2 * half + 1], v + 2);
  }
}

// The probabilities of 16 heads for a block of keys, as operand A.
__device__ void load_weights(const uint16_t *p, uint32_t stride, uint32_t weights[4][4]) {
  const uint32_t lane = threadIdx.x % 32;
  for (uint32_t k = 0; k < 4; k++)
    ptx::ldmatrix_x4(weights[k], p + lane % 16 * stride + 16 * k + lane / 16 * 8);
}

// A block for 16 heads of a row. Of each 64 slots: a warp makes the logits of 8 keys along the whole head, two heads'
// probabilities, and P V of kTiles * 8 channels. The order of all sums depends on the geometry only.
template <int kTiles>
__global__ void __launch_bounds__(kThreads, 1)
    csa2_attend_kernel(ced_csa2_attend_args a, float scale, int32_t more_than) {
  DYN_SMEM(unsigned char, memory);
  SHARED(Key, slots, kBlock);
  SHARED(float, carry, kHeads);
  SHARED(float, share, kHeads);
  const Shared shared(a.head_dim);
  auto *keys = reinterpret_cast<uint16_t *>(memory + shared.keys),
       *q = reinterpret_cast<uint16_t *>(memory + shared.q);
  auto *logits = reinterpret_cast<float *>(memory + shared.logits);
  auto *p = reinterpret_cast<uint16_t *>(memory + shared.p);
  const uint32_t dim = a.head_dim, stride = shared.stride, head0 = blockIdx.y * kHeads;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const uint32_t width = width_of(a), d0 = warp * kTiles * 8;
  const int32_t count = row_count(a.rows);
  if (count <= more_than) return;
  const Weights sinks(a.sink, CED_F32);
  for (int32_t row = static_cast<int32_t>(blockIdx.x); row < count; row += static_cast<int32_t>(gridDim.x)) {
    const auto r = static_cast<size_t>(row);
    load_queries(a, r, head0, stride, q);
    Softmax softmax[2];  // of the warp's two heads
    float acc[kTiles][4] = {};
    for (uint32_t from = 0; from < width; from += kBlock) {
      if (__syncthreads_count(find_slot(a, r, from, width, slots)) == 0) continue;
      dequantise_block(slots, dim, stride, keys);
      __syncthreads();

      float dot[4] = {};
      products(q, keys + 8 * warp * stride, dim, stride, dot);
      for (uint32_t i = 0; i < 4; i++) {
        const uint32_t j = 8 * warp + 2 * t + i % 2;
        logits[(g + i / 2 * 8) * kBlock + j] = slots[j].codes != nullptr ? dot[i] * scale : -INFINITY;
      }
      __syncthreads();

      CED_UNROLL
      for (uint32_t i = 0; i < 2; i++) {
        const uint32_t h = 2 * warp + i;
        const float l[2] = {logits[h * kBlock + 2 * lane], logits[h * kBlock + 2 * lane + 1]};
        float most = f32_max(l[0], l[1]);
        for (int m = 16; m > 0; m /= 2) most = f32_max(most, __shfl_xor_sync(kAllLanes, most, m));
        const float c = softmax[i].add(l, most, reinterpret_cast<uint32_t *>(p + h * kProbabilities) + lane);
        if (lane == 0) carry[h] = c;
      }
      __syncthreads();

      uint32_t weights[4][4];
      load_weights(p, kProbabilities, weights);
      const float low = carry[g], high = carry[g + 8];
      CED_UNROLL
      for (uint32_t n = 0; n < kTiles; n++) {
        if (d0 + 8 * n >= dim) break;  // the same for all lanes
        add_values(weights, keys + d0 + 8 * n, stride, low, high, acc[n]);
      }
      __syncthreads();  // keys, slots and carry may be used again
    }
    finish(softmax, sinks, head0, a.heads, share);
    __syncthreads();
    for (uint32_t i = 0; i < 2; i++) {
      const uint32_t h = g + 8 * i;
      if (head0 + h >= a.heads) continue;
      uint16_t *o = at<uint16_t>(a.o) + (r * a.heads + head0 + h) * dim;
      CED_UNROLL
      for (uint32_t n = 0; n < kTiles; n++) {
        const uint32_t d = d0 + 8 * n + 2 * t;
        if (d >= dim) break;
        *reinterpret_cast<uint32_t *>(o + d) =
            ptx::round_bf16x2(acc[n][2 * i] * share[h], acc[n][2 * i + 1] * share[h]);
      }
    }
    __syncthreads();  // before the next row
  }
}

// What the two kernels for few rows leave each other, of a row: where its keys lie, logits, and of each block of keys
// whether there are any and the heads' largest logits.
struct Split {
  uint32_t width, blocks, heads;  // padded to whole blocks of keys and whole tiles of heads
  uint64_t logits, most, there, bytes;

  __host__ __device__ explicit Split(const ced_csa2_attend_args &a)
      : width(ceil_div(a.window + a.top_k, kBlock) * kBlock),
        blocks(width / kBlock),
        heads(ceil_div(a.heads, kHeads) * kHeads),
        logits(uint64_t{width} * sizeof(Key)),
        most(logits + uint64_t{heads} * width * 4),
        there(most + uint64_t{heads} * blocks * 4),
        bytes((there + blocks * 4 + 63) / 64 * 64) {}

  template <class T>
  __device__ T *of(const ced_csa2_attend_args &a, uint32_t row, uint64_t field) const {
    return reinterpret_cast<T *>(at<unsigned char>(a.workspace) + row * bytes + field);
  }
};

// A block for 64 keys and 16 heads of a row.
__global__ void __launch_bounds__(kThreads, 2) logits_kernel(ced_csa2_attend_args a, float scale) {
  DYN_SMEM(unsigned char, memory);
  SHARED(Key, slots, kBlock);
  SHARED(float, most, kWarps *kHeads);
  const auto count = static_cast<uint32_t>(row_count(a.rows));
  const uint32_t b = blockIdx.x, row = blockIdx.y, head0 = blockIdx.z * kHeads, width = width_of(a);
  if (row >= count || count > kSplitRows) return;
  const Shared shared(a.head_dim);
  const Split split(a);
  auto *keys = reinterpret_cast<uint16_t *>(memory + shared.keys),
       *q = reinterpret_cast<uint16_t *>(memory + shared.q);
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  load_queries(a, row, head0, shared.stride, q);
  const int there = __syncthreads_count(find_slot(a, row, b * kBlock, width, slots));
  if (blockIdx.z == 0 && threadIdx.x == 0) split.of<int>(a, row, split.there)[b] = there;
  if (there == 0) return;
  if (blockIdx.z == 0 && threadIdx.x < kBlock)
    split.of<Key>(a, row, 0)[b * kBlock + threadIdx.x] = slots[threadIdx.x];
  dequantise_block(slots, a.head_dim, shared.stride, keys);
  __syncthreads();

  float dot[4] = {};
  products(q, keys + 8 * warp * shared.stride, a.head_dim, shared.stride, dot);
  CED_UNROLL
  for (uint32_t i = 0; i < 2; i++) {
    const uint32_t j = 8 * warp + 2 * t, h = g + 8 * i;
    const float2 l = make_float2(slots[j].codes != nullptr ? dot[2 * i] * scale : -INFINITY,
                                 slots[j + 1].codes != nullptr ? dot[2 * i + 1] * scale : -INFINITY);
    reinterpret_cast<float2 *>(split.of<float>(a, row, split.logits) + (head0 + h) * split.width +
                               b * kBlock + j)[0] = l;
    float largest = f32_max(l.x, l.y);
    for (int m = 2; m > 0; m /= 2) largest = f32_max(largest, __shfl_xor_sync(kAllLanes, largest, m));
    if (t == 0) most[warp * kHeads + h] = largest;
  }
  __syncthreads();
  if (threadIdx.x >= kHeads) return;
  float largest = most[threadIdx.x];
  for (uint32_t w = 1; w < kWarps; w++) largest = f32_max(largest, most[w * kHeads + threadIdx.x]);
  split.of<float>(a, row, split.most)[b * split.heads + head0 + threadIdx.x] = largest;
}

// A block for 32 channels and 16 heads of a row: all blocks of keys in order, kStage of them at a time in shared memory.
__global__ void __launch_bounds__(kThreads, 2) values_kernel(ced_csa2_attend_args a) {
  DYN_SMEM(uint16_t, values);
  SHARED(float, carry, kStage *kHeads);
  SHARED(float, share, kHeads);
  const auto count = static_cast<uint32_t>(row_count(a.rows));
  const uint32_t d0 = blockIdx.x * kSlice, row = blockIdx.y, head0 = blockIdx.z * kHeads;
  if (row >= count || count > kSplitRows) return;
  const Split split(a);
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const uint32_t blocks = ceil_div(width_of(a), kBlock);
  const auto *slots = split.of<const Key>(a, row, 0);
  const auto *logits = split.of<const float>(a, row, split.logits) + head0 * split.width,
             *most = split.of<const float>(a, row, split.most) + head0;
  const auto *there = split.of<const int>(a, row, split.there);
  uint16_t *p = values + kStage * kBlock * kStageStride;
  Softmax softmax[2];  // of the warp's two heads
  float acc[4] = {};
  for (uint32_t from = 0; from < blocks; from += kStage) {
    const uint32_t n = blocks - from < kStage ? blocks - from : kStage;
    for (uint32_t i = threadIdx.x; i < n * kBlock * (kSlice / 16); i += kThreads) {
      const uint32_t j = i / (kSlice / 16), d = i % (kSlice / 16) * 16;
      if (there[from + j / kBlock] != 0)
        dequantise(slots[from * kBlock + j], d0 + d, values + j * kStageStride + d);
    }
    for (uint32_t b = 0; b < n; b++) {
      if (there[from + b] == 0) continue;  // the same for all
      CED_UNROLL
      for (uint32_t i = 0; i < 2; i++) {
        const uint32_t h = 2 * warp + i;
        const auto two =
            reinterpret_cast<const float2 *>(logits + h * split.width + (from + b) * kBlock)[lane];
        const float l[2] = {two.x, two.y};
        const float c =
            softmax[i].add(l, most[(from + b) * split.heads + h],
                           reinterpret_cast<uint32_t *>(p + h * kStageWeights + b * kBlock) + lane);
        if (lane == 0) carry[b * kHeads + h] = c;
      }
    }
    __syncthreads();
    if (warp < kSlice / 8)
      for (uint32_t b = 0; b < n; b++) {
        if (there[from + b] == 0) continue;
        uint32_t weights[4][4];
        load_weights(p + b * kBlock, kStageWeights, weights);
        add_values(weights, values + b * kBlock * kStageStride + 8 * warp, kStageStride,
                   carry[b * kHeads + g], carry[b * kHeads + g + 8], acc);
      }
    __syncthreads();  // before the next stage
  }
  finish(softmax, Weights(a.sink, CED_F32), head0, a.heads, share);
  __syncthreads();
  if (warp >= kSlice / 8) return;
  for (uint32_t i = 0; i < 2; i++) {
    const uint32_t h = g + 8 * i;
    if (head0 + h >= a.heads) continue;
    uint16_t *o =
        at<uint16_t>(a.o) + (size_t{row} * a.heads + head0 + h) * a.head_dim + d0 + 8 * warp + 2 * t;
    *reinterpret_cast<uint32_t *>(o) = ptx::round_bf16x2(acc[2 * i] * share[h], acc[2 * i + 1] * share[h]);
  }
}

int launch_split(ced_stream *s, const ced_csa2_attend_args &a, uint32_t rows, float scale, ced_err *err) {
  const uint32_t groups = ceil_div(a.heads, kHeads);
  const Grid keys{dim3(ceil_div(width_of(a), kBlock), rows, groups), kThreads, Shared(a.head_dim).logits};
  CED_TRY(launch(s, err, "csa2_attend", keys, logits_kernel, a, scale));
  return launch(s, err, "csa2_attend", {dim3(a.head_dim / kSlice, rows, groups), kThreads, kStageBytes},
                values_kernel, a);
}

}  // namespace

uint64_t csa2_attend_cuda_workspace(const ced_csa2_attend_args &a) {
  return Split(a).bytes * std::min(a.max_rows, kSplitRows);
}

int csa2_attend_cuda(ced_stream *s, const ced_csa2_attend_args &a, ced_err *err) {
  const char *name = "csa2_attend";
  const float scale = attend_scale(a);
  if (a.head_dim > 512)
    return fail(err, CED_EINVAL, "csa2_attend: head_dim is %u; the CUDA body has 32 to 512", a.head_dim);
  CED_TRY(launch_split(s, a, std::min(a.max_rows, kSplitRows), scale, err));
  if (a.max_rows <= kSplitRows) return CED_OK;
  // How many rows there are only the device knows: one of the two forms leaves at once.
  if (csa2_attend_prefills(s, a)) return csa2_attend_prefill_cuda(s, a, scale, err);
  const auto most = static_cast<int32_t>(kSplitRows);
  const dim3 blocks(row_blocks(a.max_rows).x, ceil_div(a.heads, kHeads));
  const Grid grid{blocks, kThreads, Shared(a.head_dim).end};
  if (a.head_dim <= 64) return launch(s, err, name, grid, csa2_attend_kernel<1>, a, scale, most);
  if (a.head_dim <= 128) return launch(s, err, name, grid, csa2_attend_kernel<2>, a, scale, most);
  if (a.head_dim <= 256) return launch(s, err, name, grid, csa2_attend_kernel<4>, a, scale, most);
  return launch(s, err, name, grid, csa2_attend_kernel<8>, a, scale, most);
}

}  // namespace ced
