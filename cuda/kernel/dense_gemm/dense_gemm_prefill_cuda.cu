#include "kernel/dense_gemm/dense_gemm.h"
#include "kernel/prefill_gpu.h"
#include "kernel/row_gpu.h"
#include "num/bf16.h"

namespace ced {
namespace {

template <ced_format kX, ced_format kW, int kRows, bool kWgmma>
__global__ void __launch_bounds__(Prefill::kThreads, 1) dense_gemm_prefill_kernel(ced_dense_gemm_args a) {
  DYN_SMEM(unsigned char, shared);
  const uint32_t count = static_cast<uint32_t>(row_count(a.rows)), first_row = blockIdx.y * kRows;
  if (first_row >= count) return;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t tiles = ceil_div(a.n, Prefill::kOutputs), group = blockIdx.x / tiles;
  const uint32_t i0 = blockIdx.x % tiles * Prefill::kOutputs + 16 * warp + lane / 4;
  const uint32_t outputs = a.groups * a.n, inputs = a.groups * a.k, k_blocks = ceil_div(a.k, 32);

  WeightRows<kW> w;
  for (uint32_t h = 0; h < 2; h++) {
    if (i0 + 8 * h >= a.n) continue;
    const size_t o = static_cast<size_t>(group) * a.n + i0 + 8 * h;
    w.row[h].data = at<const unsigned char>(a.w) + o * a.k * bytes16(kW) / 16;
    if (kW == CED_FP8) w.row[h].scales = at<const unsigned char>(a.w_scales) + o / 32 * k_blocks;
    if (kW == CED_FP4) w.row[h].scales = at<const unsigned char>(a.w_scales) + o * k_blocks;
  }
  const auto row = [&](uint32_t r) {
    OperandRow x;
    if (first_row + r >= count) return x;
    const size_t first = static_cast<size_t>(first_row + r) * inputs + static_cast<size_t>(group) * a.k;
    x.data = at<const unsigned char>(a.x) + first * bytes16(kX) / 16;
    if (kX == CED_FP8) x.scales = at<const unsigned char>(a.x_scales) + first / 32;
    return x;
  };
  float sum[kRows / 8][4];
  prefill_tile<kX, kRows, kWgmma>(sum, w, row, a.k, shared);

  CED_UNROLL
  for (uint32_t j = 0; j < kRows / 8; j++)
    for (uint32_t i = 0; i < 4; i++) {
      const uint32_t r = first_row + 8 * j + lane % 4 * 2 + i % 2, output = i0 + i / 2 * 8;
      if (r >= count || output >= a.n) continue;
      const size_t to = static_cast<size_t>(r) * outputs + static_cast<size_t>(group) * a.n + output;
      if (a.y_format == CED_F32) {
        at<float>(a.y)[to] = sum[j][i];
      } else {
        at<uint16_t>(a.y)[to] = f32_to_bf16(sum[j][i]);
      }
    }
}

template <ced_format kX, ced_format kW, int kRows>
int launch_rows(ced_stream *s, const ced_dense_gemm_args &a, ced_err *err) {
  const Grid grid{dim3(ceil_div(a.n, Prefill::kOutputs) * a.groups, ceil_div(a.max_rows, kRows)),
                  Prefill::kThreads, Prefill::shared_bytes(kRows)};
  return cuda_of(s).wgmma
             ? launch(s, err, "dense_gemm", grid, dense_gemm_prefill_kernel<kX, kW, kRows, true>, a)
             : launch(s, err, "dense_gemm", grid, dense_gemm_prefill_kernel<kX, kW, kRows, false>, a);
}

template <ced_format kX, ced_format kW>
int launch_formats(ced_stream *s, const ced_dense_gemm_args &a, ced_err *err) {
  return a.max_rows <= 64 ? launch_rows<kX, kW, 64>(s, a, err) : launch_rows<kX, kW, 128>(s, a, err);
}

}  // namespace

bool dense_gemm_prefills(const ced_dense_gemm_args &a) {
  return a.max_rows > 16 && a.k % 16 == 0 && aligned(a.w, 16) && a.w_format != CED_F32;
}

int dense_gemm_prefill_cuda(ced_stream *s, const ced_dense_gemm_args &a, ced_err *err) {
  if (a.x_format == CED_FP8 && a.w_format == CED_FP8) return launch_formats<CED_FP8, CED_FP8>(s, a, err);
  if (a.x_format == CED_FP8) return launch_formats<CED_FP8, CED_FP4>(s, a, err);
  if (a.w_format == CED_BF16) return launch_formats<CED_BF16, CED_BF16>(s, a, err);
  return launch_formats<CED_BF16, CED_FP8>(s, a, err);
}

}  // namespace ced
