#include "kernel/dense_gemm/dense_gemm.h"
#include "kernel/operand_gpu.h"
#include "kernel/row_gpu.h"

namespace ced {
namespace {

constexpr uint32_t kOutputs = 16, kStep = 64, kWarps = 8, kThreads = 32 * kWarps;

// The decode form: a block computes 16 outputs of 8*kTiles rows. Its warps take the k-steps in turn (warp w: w, w + 8,
// ...), straight from memory into the operands, and their sums are added in the order of the warps. So the order
// depends on k only: a row has the same bits in every batch. The weights are read once, past L1.
template <ced_format kX, ced_format kW, int kTiles, bool kWhole>
__global__ void __launch_bounds__(kThreads) dense_gemm_kernel(ced_dense_gemm_args a) {
  SHARED(float, part, kWarps *kTiles * 4 * 32);
  const uint32_t count = static_cast<uint32_t>(row_count(a.rows)), first_row = blockIdx.y * 8 * kTiles;
  if (first_row >= count) return;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const uint32_t tiles = ceil_div(a.n, kOutputs), group = blockIdx.x / tiles,
                 i0 = blockIdx.x % tiles * kOutputs;
  const uint32_t outputs = a.groups * a.n, inputs = a.groups * a.k, k_blocks = ceil_div(a.k, 32);

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

  float d[kTiles][4] = {};
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
        for (int j = 0; j < kTiles; j++) mma_step64(d[j], low, high, operand[j]);
      }
    } else {
      const Words low = expand(raw[0], scale[0]), high = expand(raw[1], scale[1]);
      for (int j = 0; j < kTiles; j++) mma_step64(d[j], low, high, operand[j]);
    }
  }
  for (int j = 0; j < kTiles; j++)
    for (int i = 0; i < 4; i++) part[((warp * kTiles + j) * 4 + i) * 32 + lane] = d[j][i];
  __syncthreads();
  for (uint32_t e = threadIdx.x; e < kTiles * 4 * 32; e += kThreads) {
    float sum = 0;
    for (uint32_t v = 0; v < kWarps; v++) sum += part[v * kTiles * 4 * 32 + e];
    const uint32_t l = e % 32, i = e / 32 % 4, j = e / 128;
    const uint32_t output = i0 + l / 4 + i / 2 * 8, row = first_row + 8 * j + l % 4 * 2 + i % 2;
    if (output >= a.n || row >= count) continue;
    const size_t to = static_cast<size_t>(row) * outputs + static_cast<size_t>(group) * a.n + output;
    if (a.y_format == CED_F32) {
      at<float>(a.y)[to] = sum;
    } else {
      at<uint16_t>(a.y)[to] = f32_to_bf16(sum);
    }
  }
}

template <ced_format kX, ced_format kW>
int launch_formats(ced_stream *s, const ced_dense_gemm_args &a, ced_err *err) {
  const bool whole = a.k % 16 == 0 && aligned(a.w, 16);
  const uint32_t tiles = a.max_rows <= 8 ? 1 : 2, outputs = ceil_div(a.n, kOutputs) * a.groups;
  const Grid grid{dim3(outputs, ceil_div(a.max_rows, 8 * tiles)), kThreads};
  if (whole && tiles == 1) return launch(s, err, "dense_gemm", grid, dense_gemm_kernel<kX, kW, 1, true>, a);
  if (whole) return launch(s, err, "dense_gemm", grid, dense_gemm_kernel<kX, kW, 2, true>, a);
  if (tiles == 1) return launch(s, err, "dense_gemm", grid, dense_gemm_kernel<kX, kW, 1, false>, a);
  return launch(s, err, "dense_gemm", grid, dense_gemm_kernel<kX, kW, 2, false>, a);
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
