#include "kernel/expert_gemm/tile_gpu.h"
#include "kernel/operand_gpu.h"
#include "kernel/row_gpu.h"

namespace ced {
namespace {

constexpr uint32_t kStep = 64, kWarps = 8, kThreads = 32 * kWarps, kGroupThreads = 1024;
constexpr uint32_t kGroup = 32,
                   kOutputs =
                       16;  // channels of a block between the halves (a quantisation group), after them

// One block: the assignments by expert, each expert's in ascending order, and how many tiles of rows come before it.
__global__ void __launch_bounds__(kGroupThreads, 1)
    group_kernel(ced_expert_gemm_args a, ExpertWorkspace work, uint32_t tile_rows) {
  SHARED(uint32_t, part, kGroupThreads / 32);
  const auto *idx = at<const int32_t>(a.idx);
  auto *order = at<int32_t>(work.order), *first = at<int32_t>(work.first), *tiles = at<int32_t>(work.tiles);
  const int32_t routed = row_count(a.rows) * static_cast<int32_t>(a.top_k),
                experts = static_cast<int32_t>(a.experts_count);
  uint32_t placed = 0, tiled = 0;
  for (int32_t base = 0; base < experts; base += kGroupThreads) {
    const int32_t e = base + static_cast<int32_t>(threadIdx.x);
    uint32_t n = 0, all = 0;
    for (int32_t i = 0; i < routed; i++) n += idx[i] == e;
    uint32_t to = placed + block_scan<kGroupThreads>(n, part, &all);
    placed += all;
    const uint32_t tile = tiled + block_scan<kGroupThreads>(ceil_div(n, tile_rows), part, &all);
    tiled += all;
    if (e >= experts) continue;  // every thread of later rounds, too: e only grows
    first[e] = static_cast<int32_t>(to), tiles[e] = static_cast<int32_t>(tile);
    for (int32_t i = 0; n > 0 && i < routed; i++)
      if (idx[i] == e) order[to++] = i;
  }
  if (threadIdx.x == 0)
    first[experts] = static_cast<int32_t>(placed), tiles[experts] = static_cast<int32_t>(tiled);
}

// A row of an expert's matrix [*, k].
template <ced_format kW>
struct WeightRow {
  const unsigned char *w = nullptr, *scales = nullptr;

  __device__ void set(uint64_t matrix, uint64_t matrix_scales, uint32_t i, uint32_t k) {
    w = at<const unsigned char>(matrix) + static_cast<size_t>(i) * k * bytes16(kW) / 16;
    scales =
        at<const unsigned char>(matrix_scales) + static_cast<size_t>(kW == CED_FP8 ? i / 32 : i) * (k / 32);
  }
  template <bool kWhole>
  __device__ Words words(uint32_t k0, uint32_t k) const {
    Raw<kW> raw;
    raw.template load<kWhole, true>(w, k0, w != nullptr ? k : 0);
    return expand(raw, w != nullptr && k0 < k ? scales[k0 / 32] : 127);
  }
};

// Sums of kMatrices * 16 weight rows with 8 * kTiles rows of x: the warps take the k-steps in turn, and part gets the sums
// of each, [kWarps][kMatrices][kTiles][4][32]. The order depends on k only.
template <ced_format kW, int kMatrices, int kTiles, bool kWhole>
__device__ void products(const WeightRow<kW> (&rows)[kMatrices][2], const unsigned char *const *x,
                         const unsigned char *const *x_scales, uint32_t k, float *part) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float d[kMatrices][kTiles][4] = {};
  for (uint32_t step = warp * kStep; step < k; step += kWarps * kStep) {
    const uint32_t k0 = step + 16 * (lane % 4);
    Words operand[kTiles];
    for (int j = 0; j < kTiles; j++) {
      Raw<CED_FP8> raw;
      raw.template load<true, false>(x[j], k0, x[j] != nullptr ? k : 0);
      operand[j] = expand(raw, x[j] != nullptr && k0 < k ? x_scales[j][k0 / 32] : 127);
    }
    CED_UNROLL
    for (int m = 0; m < kMatrices; m++) {
      const Words low = rows[m][0].template words<kWhole>(k0, k),
                  high = rows[m][1].template words<kWhole>(k0, k);
      for (int j = 0; j < kTiles; j++) mma_step64(d[m][j], low, high, operand[j]);
    }
  }
  CED_UNROLL
  for (int m = 0; m < kMatrices; m++)
    for (int j = 0; j < kTiles; j++)
      for (int i = 0; i < 4; i++)
        part[(((warp * kMatrices + static_cast<uint32_t>(m)) * kTiles + static_cast<uint32_t>(j)) * 4 +
              static_cast<uint32_t>(i)) *
                 32 +
             lane] = d[m][j][i];
}

// Output o of 16 for row r of 8 * kTiles of matrix m: the warps in ascending order.
template <int kMatrices, int kTiles>
__device__ float whole(const float *part, uint32_t m, uint32_t o, uint32_t r) {
  const uint32_t lane = o % 8 * 4 + r % 8 / 2, i = o / 8 * 2 + r % 2;
  float sum = 0;
  for (uint32_t w = 0; w < kWarps; w++)
    sum += part[(((w * kMatrices + m) * kTiles + r / 8) * 4 + i) * 32 + lane];
  return sum;
}

// The first half of an expert: 32 channels of gate and up, the activation, and its quantisation group.
template <ced_format kW, int kTiles>
__global__ void __launch_bounds__(kThreads, 1) gate_up_kernel(ced_expert_gemm_args a, ExpertWorkspace work) {
  DYN_SMEM(float, part);
  constexpr uint32_t kRows = 8 * kTiles;
  ExpertTile tile{};
  if (!tile.find(a, work, static_cast<int32_t>(blockIdx.y), kRows, kW == CED_FP8 ? &a.shared : nullptr))
    return;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, i0 = blockIdx.x * kGroup;
  const ced_expert &e = *tile.expert;
  WeightRow<kW> rows[4][2];
  CED_UNROLL
  for (uint32_t h = 0; h < 4; h++) {  // 16 channels each: gate, up, gate, up
    const uint32_t i = i0 + h / 2 * 16 + g;
    CED_UNROLL
    for (uint32_t j = 0; j < 2; j++)
      rows[h][j].set(h % 2 == 0 ? e.w1 : e.w3, h % 2 == 0 ? e.w1_scales : e.w3_scales, i + 8 * j, a.dim);
  }
  const unsigned char *x[kTiles] = {}, *x_scales[kTiles] = {};
  for (uint32_t j = 0; j < kTiles; j++) {
    if (8 * j + g >= static_cast<uint32_t>(tile.n)) continue;
    int32_t row = tile.assignment(8 * j + g);
    if (kW != CED_FP8) row /= static_cast<int32_t>(a.top_k);
    x[j] = at<const unsigned char>(a.x) + static_cast<size_t>(row) * a.dim;
    x_scales[j] = at<const unsigned char>(a.x_scales) + static_cast<size_t>(row) * (a.dim / 32);
  }
  // Weights start at any byte of a checkpoint.
  if (aligned(e.w1 | e.w3, bytes16(kW))) {
    products<kW, 4, kTiles, true>(rows, x, x_scales, a.dim, part);
  } else {
    products<kW, 4, kTiles, false>(rows, x, x_scales, a.dim, part);
  }
  __syncthreads();
  for (uint32_t r = warp; r < static_cast<uint32_t>(tile.n); r += kWarps) {  // a lane for a channel
    const uint32_t h = lane / 16 * 2, o = lane % 16;
    const int32_t n = tile.assignment(r);
    const float weight = kW == CED_FP8 ? 1.0f : at<const float>(a.weights)[n];
    const float v = swiglu(bf16_round(whole<4, kTiles>(part, h, o, r)),
                           bf16_round(whole<4, kTiles>(part, h + 1, o, r)), a.limit, weight);
    store_activation(a, work, expert_place(a, n, kW == CED_FP8), i0, v);
  }
}

// The second half: 16 channels of the result, rounded.
template <ced_format kW, int kTiles>
__global__ void __launch_bounds__(kThreads) down_kernel(ced_expert_gemm_args a, ExpertWorkspace work) {
  SHARED(float, part, kWarps *kTiles * 4 * 32);
  constexpr uint32_t kRows = 8 * kTiles;
  ExpertTile tile{};
  if (!tile.find(a, work, static_cast<int32_t>(blockIdx.y), kRows, kW == CED_FP8 ? &a.shared : nullptr))
    return;
  const uint32_t lane = threadIdx.x % 32, g = lane / 4, i0 = blockIdx.x * kOutputs;
  WeightRow<kW> rows[1][2];
  for (uint32_t j = 0; j < 2; j++)
    rows[0][j].set(tile.expert->w2, tile.expert->w2_scales, i0 + g + 8 * j, a.inter);
  const unsigned char *x[kTiles] = {}, *x_scales[kTiles] = {};
  for (uint32_t j = 0; j < kTiles; j++) {
    if (8 * j + g >= static_cast<uint32_t>(tile.n)) continue;
    const size_t n = expert_place(a, tile.assignment(8 * j + g), kW == CED_FP8);
    x[j] = at<const unsigned char>(work.codes) + n * a.inter;
    x_scales[j] = at<const unsigned char>(work.scales) + n * (a.inter / 32);
  }
  if (aligned(tile.expert->w2, bytes16(kW))) {
    products<kW, 1, kTiles, true>(rows, x, x_scales, a.inter, part);
  } else {
    products<kW, 1, kTiles, false>(rows, x, x_scales, a.inter, part);
  }
  __syncthreads();
  for (uint32_t e = threadIdx.x; e < kRows * kOutputs; e += kThreads) {
    const uint32_t r = e / kOutputs, o = e % kOutputs;
    if (r >= static_cast<uint32_t>(tile.n)) continue;
    at<uint16_t>(work.out)[expert_place(a, tile.assignment(r), kW == CED_FP8) * a.dim + i0 + o] =
        f32_to_bf16(whole<1, kTiles>(part, 0, o, r));
  }
}

// A row's experts in ascending id, then the shared one.
__global__ void __launch_bounds__(kThreads) combine_kernel(ced_expert_gemm_args a, ExpertWorkspace work) {
  SHARED(int32_t, order, 64);
  const int32_t count = row_count(a.rows);
  const uint32_t d = 2 * (blockIdx.y * kThreads + threadIdx.x);
  for (int32_t row = static_cast<int32_t>(blockIdx.x); row < count; row += static_cast<int32_t>(gridDim.x)) {
    const auto r = static_cast<size_t>(row);
    const int32_t *idx = at<const int32_t>(a.idx) + r * a.top_k;
    if (threadIdx.x < a.top_k) {
      uint32_t place = 0;
      for (uint32_t j = 0; j < a.top_k; j++)
        place += idx[j] < idx[threadIdx.x] || (idx[j] == idx[threadIdx.x] && j < threadIdx.x);
      order[place] = static_cast<int32_t>(threadIdx.x);
    }
    __syncthreads();
    if (d < a.dim) {
      const auto *out = at<const uint16_t>(work.out);
      float low = 0, high = 0;
      const auto add = [&](size_t assignment) {
        const uint32_t v = *reinterpret_cast<const uint32_t *>(out + assignment * a.dim + d);
        low += low_bf16(v), high += high_bf16(v);
      };
      for (uint32_t k = 0; k < a.top_k; k++) add(r * a.top_k + static_cast<size_t>(order[k]));
      if (a.shared.w1 != 0) add(static_cast<size_t>(a.max_rows) * a.top_k + r);
      *reinterpret_cast<uint32_t *>(at<uint16_t>(a.y) + r * a.dim + d) = pack_bf16(low, high);
    }
    __syncthreads();  // before the next row's order
  }
}

template <ced_format kW, int kTiles>
int launch_halves(ced_stream *s, const ced_expert_gemm_args &a, const ExpertWorkspace &work, uint32_t tiles,
                  ced_err *err) {
  const size_t shared = sizeof(float) * kWarps * 4 * kTiles * 4 * 32;
  const Grid first{dim3(a.inter / kGroup, tiles), kThreads, shared},
      second{dim3(a.dim / kOutputs, tiles), kThreads};
  CED_TRY(launch(s, err, "expert_gemm", first, gate_up_kernel<kW, kTiles>, a, work));
  return launch(s, err, "expert_gemm", second, down_kernel<kW, kTiles>, a, work);
}

// Tiles of 16 rows where there are many; the bits are the same.
template <ced_format kW>
int launch_expert(ced_stream *s, const ced_expert_gemm_args &a, const ExpertWorkspace &work,
                  uint32_t tile_rows, uint32_t tiles, ced_err *err) {
  return tile_rows == 8 ? launch_halves<kW, 1>(s, a, work, tiles, err)
                        : launch_halves<kW, 2>(s, a, work, tiles, err);
}

// Rows of a tile: as many as an expert of these may have. The bits are the same.
uint32_t tile_rows(uint32_t rows) {
  return rows <= 8 ? 8 : rows <= 16 ? 16 : rows <= 32 ? 32 : rows <= 64 ? 64 : 128;
}

}  // namespace

int expert_gemm_cuda(ced_stream *s, const ced_expert_gemm_args &a, ced_err *err) {
  const ExpertWorkspace work = expert_workspace(a);
  const uint32_t routed = a.max_rows * a.top_k;
  if (routed > 0) {
    // In long steps what an expert has on average.
    const uint32_t rows = tile_rows(a.max_rows <= 16 ? a.max_rows : std::max(16u, routed / a.experts_count)),
                   tiles = std::min(routed, a.experts_count) + routed / rows;
    CED_TRY(launch(s, err, "expert_gemm", {1, kGroupThreads}, group_kernel, a, work, rows));
    CED_TRY(rows > 16 ? expert_gemm_prefill(s, a, work, CED_FP4, rows, tiles, err)
                      : launch_expert<CED_FP4>(s, a, work, rows, tiles, err));
  }
  if (a.shared.w1 != 0) {
    const uint32_t rows = tile_rows(a.max_rows), tiles = ceil_div(a.max_rows, rows);
    CED_TRY(rows > 16 ? expert_gemm_prefill(s, a, work, CED_FP8, rows, tiles, err)
                      : launch_expert<CED_FP8>(s, a, work, rows, tiles, err));
  }
  return launch(s, err, "expert_gemm",
                {dim3(row_blocks(a.max_rows).x, ceil_div(a.dim, 2 * kThreads)), kThreads}, combine_kernel, a,
                work);
}

}  // namespace ced
