#include "kernel/mhc_mix/mhc_mix.h"
#include "kernel/row_gpu.h"
#include "num/func.h"

namespace ced {
namespace {

constexpr uint32_t kSlice = 1024, kWarps = 8, kThreads = 32 * kWarps,
                   kOutputs = (2 + kMaxStreams) * kMaxStreams;

// Partial sums: [rows][slices][outputs + 1], the last one of the squares.

// A block has a slice of the channels of kRows rows, so that fn is read once for them. A warp takes an output at a time; a
// lane every 32nd channel, then warp_sum. The order depends on the width only.
template <int kRows>
__global__ void __launch_bounds__(kThreads, 1)
    project_kernel(ced_mhc_mix_args a, uint64_t scratch, int32_t first_row) {
  SHARED(float, h, kRows *kSlice);
  const uint32_t width = a.streams * a.dim, outputs = (2 + a.streams) * a.streams, k0 = blockIdx.x * kSlice;
  const uint32_t n = width - k0 < kSlice ? width - k0 : kSlice;
  const int32_t count = row_count(a.rows), from = first_row + static_cast<int32_t>(blockIdx.y) * kRows;
  if (from >= count) return;
  for (int r = 0; r < kRows; r++)
    for (uint32_t i = threadIdx.x; i < kSlice; i += kThreads)
      h[static_cast<uint32_t>(r) * kSlice + i] =
          from + r < count && i < n
              ? bf16_to_f32(at<const uint16_t>(a.h)[static_cast<size_t>(from + r) * width + k0 + i])
              : 0.0f;
  __syncthreads();
  const Weights fn(a.fn, CED_F32);
  for (uint32_t o = static_cast<uint32_t>(warp_id()); o <= outputs; o += kWarps) {
    float sum[kRows] = {};
    for (uint32_t i = static_cast<uint32_t>(lane_id()); i < n; i += 32) {
      const float w = o < outputs ? fn[static_cast<size_t>(o) * width + k0 + i] : 0.0f;
      for (int r = 0; r < kRows; r++) {
        const float x = h[static_cast<uint32_t>(r) * kSlice + i];
        sum[r] += o < outputs ? x * w : x * x;
      }
    }
    for (int r = 0; r < kRows; r++) {
      const float all = warp_sum(sum[r]);
      const auto row = static_cast<size_t>(from - first_row + r);
      if (lane_id() == 0 && from + r < count)
        at<float>(scratch)[(row * gridDim.x + blockIdx.x) * (outputs + 1) + o] = all;
    }
  }
}

// Divides an element of a matrix of n x n in shared memory by the sum of its row or column, in ascending order, plus eps.
__device__ float normalised(const float *k, uint32_t n, uint32_t first, uint32_t step, float v, float eps) {
  double sum = 0;
  for (uint32_t i = 0; i < n; i++) sum += static_cast<double>(k[first + i * step]);
  return v / (static_cast<float>(sum) + eps);
}

// A block for a row: the slices in ascending order, then mhc_mix_finish with a thread for every element.
__global__ void __launch_bounds__(kOutputs)
    finish_kernel(ced_mhc_mix_args a, uint64_t scratch, uint32_t slices, int32_t first_row) {
  SHARED(float, m, kOutputs + 1);
  SHARED(float, k, kMaxStreams *kMaxStreams);
  const uint32_t n = a.streams, outputs = (2 + n) * n, t = threadIdx.x;
  const int32_t r = first_row + static_cast<int32_t>(blockIdx.x);
  if (r >= row_count(a.rows)) return;
  const auto row = static_cast<size_t>(r);
  for (uint32_t o = t; o <= outputs; o += kOutputs) {
    float sum = 0;
    for (uint32_t i = 0; i < slices; i++)
      sum += at<const float>(scratch)[(blockIdx.x * slices + i) * (outputs + 1) + o];
    m[o] = sum;
  }
  __syncthreads();
  const float norm = f32_rsqrt(m[outputs] / static_cast<float>(n * a.dim) + a.norm_eps);
  const Weights base(a.base, CED_F32), scale(a.scale, CED_F32);
  const auto mixed = [&](uint32_t o, size_t part) { return m[o] * norm * scale[part] + base[o]; };
  if (t < n) {
    at<float>(a.pre)[row * n + t] = f32_sigmoid(mixed(t, 0)) + a.hc_eps;
    at<float>(a.post)[row * n + t] = 2.0f * f32_sigmoid(mixed(n + t, 1));
  }
  // Thread t has element (j, i): input stream j, output stream i.
  const bool mine = t < n * n;
  const uint32_t j = mine ? t / n : 0, i = mine ? t % n : 0;
  float v = 0;
  if (mine) {
    float top = mixed(2 * n + j * n, 2);
    for (uint32_t e = 1; e < n; e++) top = f32_max(top, mixed(2 * n + j * n + e, 2));
    k[t] = v = f32_exp(mixed(2 * n + t, 2) - top);
  }
  __syncthreads();
  const auto put = [&](float next) {
    __syncthreads();  // all have read
    if (mine) k[t] = v = next;
    __syncthreads();
  };
  put(normalised(k, n, j * n, 1, v, 0) + a.hc_eps);
  put(normalised(k, n, i, n, v, a.hc_eps));
  for (uint32_t step = 1; step < a.iters; step++) {
    put(normalised(k, n, j * n, 1, v, a.hc_eps));
    put(normalised(k, n, i, n, v, a.hc_eps));
  }
  if (mine) at<float>(a.comb)[row * n * n + t] = v;
}

}  // namespace

int mhc_mix_cuda(ced_stream *s, const ced_mhc_mix_args &a, ced_err *err) {
  const uint32_t slices = ceil_div(a.streams * a.dim, kSlice), outputs = (2 + a.streams) * a.streams;
  const size_t row_bytes = sizeof(float) * slices * (outputs + 1);
  const auto most = static_cast<uint32_t>(CudaStream::kScratch / row_bytes);
  if (most == 0) return fail(err, CED_EINVAL, "mhc_mix: dim is %u, too large for a device", a.dim);
  const auto scratch = reinterpret_cast<uint64_t>(cuda_of(s).scratch);
  for (uint32_t first = 0; first < a.max_rows; first += most) {
    const uint32_t rows = a.max_rows - first < most ? a.max_rows - first : most;
    const auto row = static_cast<int32_t>(first);
    if (rows <= 2) {
      CED_TRY(launch(s, err, "mhc_mix", {dim3(slices, rows), kThreads}, project_kernel<1>, a, scratch, row));
    } else {
      CED_TRY(launch(s, err, "mhc_mix", {dim3(slices, ceil_div(rows, 8)), kThreads}, project_kernel<8>, a,
                     scratch, row));
    }
    CED_TRY(launch(s, err, "mhc_mix", {rows, kOutputs}, finish_kernel, a, scratch, slices, row));
  }
  return CED_OK;
}

}  // namespace ced
