#include "kernel/csa2_compress/csa2_compress.h"
#include "kernel/row_gpu.h"
#include "num/func.h"

namespace ced {
namespace {

constexpr int kThreads = 256;

// Channel d of a group, weighted by the softmax of its gates: f64 over the members, oldest first.
__device__ float pooled(const GroupMembers &m, uint32_t ratio, size_t d) {
  float top = m.g[0][d];
  for (uint32_t t = 1; t < ratio; t++) top = f32_max(top, m.g[t][d]);
  double total = 0, sum = 0;
  for (uint32_t t = 0; t < ratio; t++) total += exp(static_cast<double>(m.g[t][d]) - top);
  for (uint32_t t = 0; t < ratio; t++) {
    const auto w = static_cast<float>(exp(static_cast<double>(m.g[t][d]) - top) / total);
    sum += static_cast<double>(m.a[t][d] * w);
  }
  return bf16_round(static_cast<float>(sum));
}

// A block for a group. Sum of squares: a thread's channels in ascending order, then block_sum.
__global__ void __launch_bounds__(kThreads) csa2_compress_kernel(ced_csa2_compress_args a) {
  DYN_SMEM(float, x);
  SHARED(float, part, kThreads / 32);
  const auto &rows = *at<const ced_rows>(a.rows);
  const auto &groups = *at<const ced_groups>(a.groups);
  const Weights weight(a.weight, a.weight_format);
  for (int32_t g = static_cast<int32_t>(blockIdx.x); g < groups.count; g += static_cast<int32_t>(gridDim.x)) {
    const int32_t r = at<const int32_t>(groups.row)[g];
    GroupMembers members;
    if (a.ratio > 1) members = group_members(a, rows, r);
    float squares = 0;
    for (uint32_t d = threadIdx.x; d < a.dim; d += kThreads) {
      x[d] = a.ratio > 1 ? pooled(members, a.ratio, d)
                         : bf16_to_f32(at<const uint16_t>(a.a)[static_cast<size_t>(r) * a.dim + d]);
      squares += x[d] * x[d];
    }
    const float scale = f32_rsqrt(block_sum<kThreads>(squares, part) / static_cast<float>(a.dim) + a.eps);
    uint16_t *latent = at<uint16_t>(a.latent) + static_cast<size_t>(g) * a.dim;
    for (uint32_t d = threadIdx.x; d < a.dim; d += kThreads)
      latent[d] = f32_to_bf16(weight[d] * (x[d] * scale));
  }
}

// After every read of the kernel above: the rows that later steps may need.
__global__ void __launch_bounds__(kThreads) keep_open_kernel(ced_csa2_compress_args a) {
  const auto &rows = *at<const ced_rows>(a.rows);
  const int32_t *pos = at<const int32_t>(rows.pos), *slot = at<const int32_t>(rows.slot);
  const int64_t n = a.open_rows;
  const uint64_t bytes = 4ull * a.dim;
  for (int32_t r = static_cast<int32_t>(blockIdx.x); r < rows.count; r += static_cast<int32_t>(gridDim.x)) {
    if (r + n < rows.count && slot[r + n] == slot[r]) continue;  // a later row takes this place
    auto *open = reinterpret_cast<unsigned char *>(open_row(a, slot[r], pos[r]));
    copy_bytes(open, at<const unsigned char>(a.a) + static_cast<uint64_t>(r) * bytes, bytes);
    copy_bytes(open + bytes, at<const unsigned char>(a.g) + static_cast<uint64_t>(r) * bytes, bytes);
  }
}

}  // namespace

int csa2_compress_cuda(ced_stream *s, const ced_csa2_compress_args &a, ced_err *err) {
  const dim3 blocks = row_blocks(a.max_rows);
  CED_TRY(
      launch(s, err, "csa2_compress", {blocks, kThreads, a.dim * sizeof(float)}, csa2_compress_kernel, a));
  if (a.ratio == 1) return CED_OK;
  return launch(s, err, "csa2_compress", {blocks, kThreads}, keep_open_kernel, a);
}

}  // namespace ced
