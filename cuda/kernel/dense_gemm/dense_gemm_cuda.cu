#include "kernel/dense_gemm/dense_gemm.h"
#include "kernel/operand_gpu.h"
#include "kernel/row_gpu.h"
#include "kernel/stream_gpu.h"

namespace ced {
namespace {

constexpr uint32_t kOutputs = 16, kStep = 64, kWarps = 8, kThreads = 32 * kWarps;

__device__ void put_output(const ced_dense_gemm_args &a, uint32_t row, uint32_t group, uint32_t i,
                           float sum) {
  const size_t to = (static_cast<size_t>(row) * a.groups + group) * a.n + i;
  if (a.y_format == CED_F32) {
    at<float>(a.y)[to] = sum;
  } else {
    at<uint16_t>(a.y)[to] = f32_to_bf16(sum);
  }
}

// The work of a block: 16 outputs of a group for a tile of rows. Tiles of rows that share weights are neighbours.
template <ced_format kW>
struct DenseItems {
  const ced_dense_gemm_args &a;
  uint32_t k, row_tiles, tiles, row_tile = 0, group = 0, i0 = 0;

  __device__ DenseItems(const ced_dense_gemm_args &args, uint32_t count, uint32_t tile_rows)
      : a(args), k(args.k), row_tiles(ceil_div(count, tile_rows)), tiles(ceil_div(args.n, kOutputs)) {}
  __device__ uint32_t total() const { return row_tiles * tiles * a.groups; }
  __device__ bool open(uint32_t item) {
    const uint32_t tile = item / row_tiles;
    row_tile = item % row_tiles, group = tile / tiles, i0 = tile % tiles * kOutputs;
    return true;
  }
  __device__ size_t output(uint32_t r) const { return static_cast<size_t>(group) * a.n + i0 + r; }
  __device__ const unsigned char *row(uint32_t, uint32_t r) const {
    return i0 + r < a.n ? at<const unsigned char>(a.w) + output(r) * (k / 16) * bytes16(kW) : nullptr;
  }
  __device__ const unsigned char *scales(uint32_t, uint32_t s) const {
    if (i0 + s >= a.n) return nullptr;
    return at<const unsigned char>(a.w_scales) + output(s) / (kW == CED_FP8 ? 32 : 1) * (k / 32);
  }
};

// The decode form: weights through the ring of stream_gpu.h, once for every tile of 8 * kTiles rows. The order of the
// sums depends on k only, so a row has the same bits in every batch.
template <ced_format kX, ced_format kW, int kTiles>
__global__ void __launch_bounds__(Ring<kW, 1, 1>::kThreads, ring_blocks(kTiles))
    dense_gemm_stream(ced_dense_gemm_args a, uint32_t stages) {
  using R = Ring<kW, 1, 1>;
  DYN_SMEM(unsigned char, shared);
  SHARED(float, part, kWarps *kTiles * 4 * 32);
  const uint32_t count = static_cast<uint32_t>(row_count(a.rows)), g = threadIdx.x % 32 / 4;
  DenseItems<kW> items(a, count, 8 * kTiles);
  if (share(items.total(), blockIdx.x) == share(items.total(), blockIdx.x + 1)) return;
  WeightStream<R, DenseItems<kW>> weights(shared, stages, items);
  if (threadIdx.x >= R::kConsumers) return weights.produce();

  Activations<R, kX, kTiles> x;
  uint32_t row_tile = ~0u, group = 0;
  for (uint32_t n = share(items.total(), blockIdx.x); n < share(items.total(), blockIdx.x + 1); n++) {
    items.open(n);
    if (items.row_tile != row_tile || items.group != group) {
      row_tile = items.row_tile, group = items.group;
      CED_UNROLL
      for (uint32_t j = 0; j < kTiles; j++) {
        const uint32_t r = row_tile * 8 * kTiles + 8 * j + g;
        const size_t first = (static_cast<size_t>(r) * a.groups + group) * a.k;
        x.x[j] = r < count ? at<const unsigned char>(a.x) + first / 16 * bytes16(kX) : nullptr;
        if (kX == CED_FP8) x.scales[j] = at<const unsigned char>(a.x_scales) + first / 32;
      }
      x.load(0, a.k);
    }
    float d[1][kTiles][4] = {};
    stream_products(weights, x, a.k, d);
    put_sums(part, d);
    ptx::named_barrier(1, R::kConsumers);
    for (uint32_t e = threadIdx.x; e < 8 * kTiles * kOutputs; e += R::kConsumers) {
      const uint32_t o = e % kOutputs, r = e / kOutputs, row = row_tile * 8 * kTiles + r;
      if (items.i0 + o < a.n && row < count)
        put_output(a, row, group, items.i0 + o, whole_sum<1, kTiles>(part, 0, o, r));
    }
    ptx::named_barrier(1, R::kConsumers);  // before the next sums
  }
}

// Any k, weights at any byte, F32 weights: a block for 16 outputs, operands straight from memory, sums in the same
// order.
template <ced_format kX, ced_format kW, int kTiles, bool kWhole>
__global__ void __launch_bounds__(kThreads) dense_gemm_kernel(ced_dense_gemm_args a) {
  SHARED(float, part, kWarps *kTiles * 4 * 32);
  const uint32_t count = static_cast<uint32_t>(row_count(a.rows)), first_row = blockIdx.y * 8 * kTiles;
  if (first_row >= count) return;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const uint32_t tiles = ceil_div(a.n, kOutputs), group = blockIdx.x / tiles,
                 i0 = blockIdx.x % tiles * kOutputs;
  const uint32_t inputs = a.groups * a.k, k_blocks = ceil_div(a.k, 32);

  // This lane's two weight rows and its row of each tile; what is outside stays zero.
  const unsigned char *w[2] = {}, *w_scales[2] = {}, *x[kTiles] = {}, *x_scales[kTiles] = {};
  for (uint32_t h = 0; h < 2; h++) {
    const uint32_t i = i0 + g + 8 * h;
    if (i >= a.n) continue;
    const size_t o = static_cast<size_t>(group) * a.n + i;
    w[h] = at<const unsigned char>(a.w) + o * a.k * bytes16(kW) / 16;
    if (kW == CED_FP8) w_scales[h] = at<const unsigned char>(a.w_scales) + o / 32 * k_blocks;
    if (kW == CED_FP4) w_scales[h] = at<const unsigned char>(a.w_scales) + o * k_blocks;
  }
  for (uint32_t j = 0; j < kTiles; j++) {
    const uint32_t r = first_row + 8 * j + g;
    if (r >= count) continue;
    const size_t first = static_cast<size_t>(r) * inputs + static_cast<size_t>(group) * a.k;
    x[j] = at<const unsigned char>(a.x) + first * bytes16(kX) / 16;
    if (kX == CED_FP8) x_scales[j] = at<const unsigned char>(a.x_scales) + first / 32;
  }

  float d[1][kTiles][4] = {};
  for (uint32_t k = warp * kStep; k < a.k; k += kWarps * kStep) {
    const uint32_t k0 = k + 16 * t;
    Raw<kW> raw[2];
    uint8_t scale[2] = {127, 127};
    for (int h = 0; h < 2; h++) {
      raw[h].template load<kWhole, true>(w[h], k0, w[h] != nullptr ? a.k : 0);
      if (w_scales[h] != nullptr && k0 < a.k) scale[h] = w_scales[h][k0 / 32];
    }
    Words operand[kTiles];
    for (int j = 0; j < kTiles; j++) {
      Raw<kX> v;
      v.template load<kWhole, false>(x[j], k0, x[j] != nullptr ? a.k : 0);
      operand[j] = expand(v, x_scales[j] != nullptr && k0 < a.k ? x_scales[j][k0 / 32] : 127);
    }
    if constexpr (kW == CED_F32) {
      for (int p = 2; p >= 0; p--) {
        const Words low = f32_part(raw[0], p), high = f32_part(raw[1], p);
        for (int j = 0; j < kTiles; j++) mma_step64(d[0][j], low, high, operand[j]);
      }
    } else {
      const Words low = expand(raw[0], scale[0]), high = expand(raw[1], scale[1]);
      for (int j = 0; j < kTiles; j++) mma_step64(d[0][j], low, high, operand[j]);
    }
  }
  put_sums(part, d);
  __syncthreads();
  for (uint32_t e = threadIdx.x; e < 8 * kTiles * kOutputs; e += kThreads) {
    const uint32_t o = e % kOutputs, r = e / kOutputs;
    if (i0 + o < a.n && first_row + r < count)
      put_output(a, first_row + r, group, i0 + o, whole_sum<1, kTiles>(part, 0, o, r));
  }
}

template <ced_format kX, ced_format kW, int kTiles>
int launch_tiles(ced_stream *s, const ced_dense_gemm_args &a, ced_err *err) {
  const uint32_t items = ceil_div(a.n, kOutputs) * a.groups, row_tiles = ceil_div(a.max_rows, 8 * kTiles);
  if constexpr (kW == CED_F32) {
    const bool whole = a.k % 16 == 0 && aligned(a.w, 16);
    return launch(s, err, "dense_gemm", {dim3(items, row_tiles), kThreads},
                  whole ? dense_gemm_kernel<kX, kW, kTiles, true> : dense_gemm_kernel<kX, kW, kTiles, false>,
                  a);
  } else {
    const bool scaled = kW != CED_BF16;
    // Sixteen outputs of a group begin at a multiple of 16 rows, so they share FP8 scales.
    const bool ring = aligned(a.w, 16) && (!scaled || aligned(a.w_scales, 4)) &&
                      a.k % (scaled ? 128 : 64) == 0 &&
                      (kW != CED_FP8 || a.groups == 1 || a.n % kOutputs == 0);
    if (!ring)
      return launch(s, err, "dense_gemm", {dim3(items, row_tiles), kThreads},
                    dense_gemm_kernel<kX, kW, kTiles, false>, a);
    const CudaStream &c = cuda_of(s);
    const RingShape<Ring<kW, 1, 1>> shape(c);
    const uint32_t blocks = std::min(items * row_tiles, 2 * static_cast<uint32_t>(c.processors));
    return launch(s, err, "dense_gemm", {blocks, shape.threads, shape.shared_bytes},
                  dense_gemm_stream<kX, kW, kTiles>, a, shape.stages);
  }
}

template <ced_format kX, ced_format kW>
int launch_formats(ced_stream *s, const ced_dense_gemm_args &a, ced_err *err) {
  return a.max_rows <= 8 ? launch_tiles<kX, kW, 1>(s, a, err) : launch_tiles<kX, kW, 2>(s, a, err);
}

}  // namespace

int dense_gemm_cuda(ced_stream *s, const ced_dense_gemm_args &a, ced_err *err) {
  if (dense_gemm_prefills(a)) return dense_gemm_prefill_cuda(s, a, err);
  if (a.x_format == CED_FP8 && a.w_format == CED_FP8) return launch_formats<CED_FP8, CED_FP8>(s, a, err);
  if (a.x_format == CED_FP8) return launch_formats<CED_FP8, CED_FP4>(s, a, err);
  if (a.w_format == CED_BF16) return launch_formats<CED_BF16, CED_BF16>(s, a, err);
  if (a.w_format == CED_F32) return launch_formats<CED_BF16, CED_F32>(s, a, err);
  return launch_formats<CED_BF16, CED_FP8>(s, a, err);
}

}  // namespace ced
