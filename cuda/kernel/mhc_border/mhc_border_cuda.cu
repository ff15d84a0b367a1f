#include "kernel/mhc_border/mhc_border.h"
#include "kernel/norm_gpu.h"

namespace ced {
namespace {

// A block has a slice of the channels, of all streams, of a row or of sixteen: it expands them, makes its part of x and its
// part of every projection. The last one to arrive adds the parts in ascending order and finishes mixes and norm.
constexpr uint32_t kWarps = 9,
                   kThreads = 32 * kWarps;  // eight and, in the end, one for a mix beside the norm
constexpr uint32_t kOutputs = (2 + kMaxStreams) * kMaxStreams, kMany = 16, kFew = 16;
constexpr uint32_t kValues = 16;         // of a lane for a row, at most
constexpr size_t kOwnArrays = 8 * 1024;  // of a block, beside the slices, at most

// The order of sums follows from these: a lane has every 32nd channel of the slice of each stream in turn.
__host__ __device__ constexpr uint32_t slice_of(uint32_t streams) { return streams <= 4 ? 128 : 32; }

// fn's slice for all outputs and streams, on its way into shared memory: [outputs * streams][slice].
__device__ void ask_weights(const ced_mhc_border_args &a, float *fn, uint32_t slice, uint32_t c0,
                            uint32_t left) {
  const uint32_t rows = (2 + a.streams) * a.streams * a.streams;
  if (aligned(a.fn, 16)) {
    for (uint32_t i = threadIdx.x; i < rows * (slice / 4); i += kThreads) {
      const uint32_t row = i / (slice / 4), c = i % (slice / 4) * 4;
      if (c < left)
        ptx::cp_async16(fn + row * slice + c,
                        at<const float>(a.fn) + static_cast<size_t>(row) * a.dim + c0 + c);
    }
  } else {
    const Weights weights(a.fn, CED_F32);
    for (uint32_t i = threadIdx.x; i < rows * slice; i += kThreads)
      if (i % slice < left) fn[i] = weights[static_cast<size_t>(i / slice) * a.dim + c0 + i % slice];
  }
  ptx::cp_async_commit();
}

// Eight channels of all streams of a row: expanded, collapsed into x, and as f32 into shared memory, `slice` apart.
template <uint32_t kStreams>
__device__ void cross(const ced_mhc_border_args &a, uint32_t n, size_t row, uint32_t channel, float *shared,
                      uint32_t slice) {
  uint16_t *h = at<uint16_t>(a.h) + row * n * a.dim + channel;
  float old[kStreams][8], y[8], x[8] = {};
  CED_UNROLL
  for (uint32_t j = 0; j < kStreams; j++)
    if (j < n) unpack8(load16(h + static_cast<size_t>(j) * a.dim), old[j]);
  if (a.y != 0) unpack8(load16(at<const uint16_t>(a.y) + row * a.dim + channel), y);
  CED_UNROLL
  for (uint32_t k = 0; k < kStreams; k++) {
    if (k >= n) continue;
    float v[8] = {};
    if (a.y != 0) {
      CED_UNROLL
      for (uint32_t j = 0; j < kStreams; j++) {
        if (j >= n) continue;
        const float comb = at<const float>(a.comb)[(row * n + j) * n + k];
        CED_UNROLL
        for (int i = 0; i < 8; i++) v[i] += comb * old[j][i];
      }
      const float post = at<const float>(a.post)[row * n + k];
      CED_UNROLL
      for (int i = 0; i < 8; i++) v[i] += post * y[i];
      const uint4 rounded = pack8(v);
      store16(h + static_cast<size_t>(k) * a.dim, rounded);
      unpack8(rounded, v);
    } else {
      CED_UNROLL
      for (int i = 0; i < 8; i++) v[i] = old[k][i];
    }
    if (a.x != 0) {
      const float pre = at<const float>(a.pre)[row * n + k];
      CED_UNROLL
      for (int i = 0; i < 8; i++) x[i] += pre * v[i];
    }
    if (a.fn != 0) {
      CED_UNROLL
      for (int i = 0; i < 8; i++) shared[k * slice + static_cast<uint32_t>(i)] = v[i];
    }
  }
  if (a.x != 0) store16(at<uint16_t>(a.x) + row * a.dim + channel, pack8(x));
}

// A warp: the parts of kRows rows for every step-th output; the last output is the sum of squares. part: of the first row,
// those of others `pitch` apart.
template <uint32_t kRows>
__device__ void project(const float *x, const float *fn, uint32_t n, uint32_t slice, uint32_t left,
                        uint32_t first, uint32_t step, uint32_t outputs, float *part, size_t pitch,
                        uint32_t rows) {
  const uint32_t lane = threadIdx.x % 32, width = n * slice;
  const auto there = [&](uint32_t v) { return 32 * v < width && 32 * v % slice < left; };
  float h[kRows][kValues];
  CED_UNROLL
  for (uint32_t r = 0; r < kRows; r++) CED_UNROLL
  for (uint32_t v = 0; v < kValues; v++) h[r][v] = there(v) && r < rows ? x[r * width + lane + 32 * v] : 0;
  for (uint32_t o = first; o <= outputs; o += step) {
    float sum[kRows] = {};
    CED_UNROLL
    for (uint32_t v = 0; v < kValues; v++) {
      if (!there(v)) continue;
      const float w = o < outputs ? fn[o * width + lane + 32 * v] : 0;
      CED_UNROLL
      for (uint32_t r = 0; r < kRows; r++) sum[r] += h[r][v] * (o < outputs ? w : h[r][v]);
    }
    CED_UNROLL
    for (uint32_t r = 0; r < kRows; r++) {
      const float all = warp_sum(sum[r]);
      if (lane == 0 && r < rows) part[r * pitch + o] = all;
    }
  }
}

// Divides an element of a matrix of n x n in shared memory by the sum of its row or column, in ascending order, plus eps.
__device__ float normalised(const float *k, uint32_t n, uint32_t first, uint32_t step, float v, float eps) {
  double sum = 0;
  for (uint32_t i = 0; i < n; i++) sum += static_cast<double>(k[first + i * step]);
  return v / (static_cast<float>(sum) + eps);
}

// A warp: the slices' parts of a row in ascending order, then mhc_mix_finish with a lane for an element or two.
// m: kOutputs + 1, k: kMaxStreams * kMaxStreams in shared memory.
template <uint32_t kStreams>
__device__ void finish_mix(const ced_mhc_border_args &a, uint32_t n, size_t row, const float *part,
                           uint32_t slices, float *m, float *k) {
  constexpr uint32_t kMine = (kStreams * kStreams + 31) / 32;
  const uint32_t outputs = (2 + n) * n, lane = threadIdx.x % 32;
  for (uint32_t o = lane; o <= outputs; o += 32) {
    float sum = 0;
    for (uint32_t i = 0; i < slices; i++) sum += part[i * (outputs + 1) + o];
    m[o] = sum;
  }
  __syncwarp();
  const float norm = f32_rsqrt(m[outputs] / static_cast<float>(n * a.dim) + a.norm_eps);
  const Weights base(a.base, CED_F32), scale(a.scale, CED_F32);
  const auto mixed = [&](uint32_t o, size_t of) { return m[o] * norm * scale[of] + base[o]; };
  if (lane < n) {
    at<float>(a.next)[row * n + lane] = f32_sigmoid(mixed(lane, 0)) + a.hc_eps;
    at<float>(a.post)[row * n + lane] = 2.0f * f32_sigmoid(mixed(n + lane, 1));
  }
  // Element e: input stream e / n, output stream e % n.
  float v[kMine] = {};
  const auto each = [&](const auto &f) {
    float next[kMine];
    CED_UNROLL
    for (uint32_t i = 0; i < kMine; i++)
      if (const uint32_t e = lane + 32 * i; e < n * n) next[i] = f(e, v[i]);
    __syncwarp();  // all have read
    CED_UNROLL
    for (uint32_t i = 0; i < kMine; i++)
      if (const uint32_t e = lane + 32 * i; e < n * n) k[e] = v[i] = next[i];
    __syncwarp();
  };
  const auto by_rows = [&](float eps) {
    return [=](uint32_t e, float value) { return normalised(k, n, e / n * n, 1, value, eps); };
  };
  const auto by_columns = [&](uint32_t e, float value) {
    return normalised(k, n, e % n, n, value, a.hc_eps);
  };
  each([&](uint32_t e, float) {
    const uint32_t first = 2 * n + e / n * n;
    float top = mixed(first, 2);
    for (uint32_t i = 1; i < n; i++) top = f32_max(top, mixed(first + i, 2));
    return f32_exp(mixed(2 * n + e, 2) - top);
  });
  const auto softmax = by_rows(0);
  each([&](uint32_t e, float value) { return softmax(e, value) + a.hc_eps; });
  each(by_columns);
  for (uint32_t step = 1; step < a.iters; step++) {
    each(by_rows(a.hc_eps));
    each(by_columns);
  }
  CED_UNROLL
  for (uint32_t i = 0; i < kMine; i++)
    if (const uint32_t e = lane + 32 * i; e < n * n) at<float>(a.comb)[row * n * n + e] = v[i];
}

// scratch: parts of the projections and of the squares, [rows][slices][outputs + 1]; arrivals: a zero for every blockIdx.y.
template <uint32_t kRows, uint32_t kStreams>
__global__ void __launch_bounds__(kThreads, 1)
    mhc_border_kernel(ced_mhc_border_args a, uint64_t scratch, uint64_t arrivals, int32_t first_row) {
  DYN_SMEM(float, shared);
  SHARED(float, squares, kLongThreads / 32);
  SHARED(float, m, kWarps *(kOutputs + 1));
  SHARED(float, k, kWarps *kMaxStreams *kMaxStreams);
  SHARED(uint32_t, last, 1);
  const uint32_t n = kStreams == 4 ? 4 : a.streams, slice = slice_of(n), outputs = (2 + n) * n;
  const uint32_t c0 = blockIdx.x * slice, left = a.dim - c0 < slice ? a.dim - c0 : slice, width = n * slice;
  const int32_t count = row_count(a.rows), from = first_row + static_cast<int32_t>(blockIdx.y * kRows);
  if (from >= count) return;
  const auto row = static_cast<size_t>(from);
  const uint32_t rows =
      static_cast<uint32_t>(count - from) < kRows ? static_cast<uint32_t>(count - from) : kRows;
  const auto warp = static_cast<uint32_t>(warp_id());
  float *x = shared, *fn = shared + kRows * width;
  if (a.fn != 0) ask_weights(a, fn, slice, c0, left);

  const uint32_t pieces = left / 8;
  for (uint32_t i = threadIdx.x; i < rows * pieces; i += kThreads) {
    const uint32_t r = i / pieces, c = i % pieces * 8;
    cross<kStreams>(a, n, row + r, c0 + c, x + r * width + c, slice);
  }
  const size_t pitch = static_cast<size_t>(gridDim.x) * (outputs + 1);
  float *parts = at<float>(scratch) + blockIdx.y * kRows * pitch;
  if (a.fn != 0) {
    ptx::cp_async_wait<0>();
    __syncthreads();
    float *part = parts + blockIdx.x * (outputs + 1);
    if constexpr (kRows == 1) {
      project<1>(x, fn, n, slice, left, warp, kWarps, outputs, part, pitch, 1);
    } else {
      constexpr uint32_t kMine = kRows / 8;
      const uint32_t r = kMine * warp;
      if (r < rows)
        project<kMine>(x + r * width, fn, n, slice, left, 0, 1, outputs, part + r * pitch, pitch, rows - r);
    }
  }

  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0)
    last[0] = atomicInc(at<uint32_t>(arrivals) + blockIdx.y, gridDim.x - 1) == gridDim.x - 1 ? 1 : 0;
  __syncthreads();
  if (last[0] == 0) return;
  __threadfence();

  if (a.x != 0) {
    const ced_norm_quant_args q = norm_of(a);
    for (uint32_t r = 0; r < rows; r++) {
      if (q.n > kShortNorm && threadIdx.x < kLongThreads)
        norm_quant_row<kLongThreads>(q, row + r, squares, [] { ptx::named_barrier(1, kLongThreads); });
      if (q.n <= kShortNorm && threadIdx.x < kShortThreads)
        norm_quant_row<kShortThreads>(q, row + r, squares, [] { ptx::named_barrier(1, kShortThreads); });
    }
  }
  if (a.fn != 0) {
    for (uint32_t r = 0; r < rows; r++)
      if ((kWarps - 1 + r) % kWarps == warp)
        finish_mix<kStreams>(a, n, row + r, parts + r * pitch, gridDim.x, m + warp * (kOutputs + 1),
                             k + warp * kMaxStreams * kMaxStreams);
  }
}

}  // namespace

int mhc_border_launch(ced_stream *s, const char *name, const ced_mhc_border_args &a, ced_err *err) {
  const CudaStream &c = cuda_of(s);
  const uint32_t n = a.streams, outputs = (2 + n) * n, slices = ceil_div(a.dim, slice_of(n));
  const auto shared_of = [&](uint32_t block) {
    return sizeof(float) * n * slice_of(n) * (block + (a.fn != 0 ? outputs : 0));
  };
  // Sixteen rows of eight streams are too much for a processor with 100 KB.
  const uint32_t block = a.max_rows <= kFew || shared_of(kMany) + kOwnArrays > c.shared_bytes ? 1 : kMany;
  auto most = static_cast<uint32_t>(CudaStream::kScratch / (sizeof(float) * slices * (outputs + 1)));
  if (most > block * CudaStream::kArrivals) most = block * CudaStream::kArrivals;
  most = most / block * block;
  if (most == 0) return fail(err, CED_EINVAL, "%s: dim is %u, too large for a device", name, a.dim);
  const auto scratch = reinterpret_cast<uint64_t>(c.scratch),
             arrivals = reinterpret_cast<uint64_t>(c.arrivals);
  for (uint32_t first = 0; first < a.max_rows; first += most) {
    const uint32_t rows = a.max_rows - first < most ? a.max_rows - first : most;
    const Grid grid{dim3(slices, ceil_div(rows, block)), kThreads, shared_of(block)};
    const auto kernel =
        n == 4 ? (block == 1 ? mhc_border_kernel<1, 4> : mhc_border_kernel<kMany, 4>)
               : (block == 1 ? mhc_border_kernel<1, kMaxStreams> : mhc_border_kernel<kMany, kMaxStreams>);
    CED_TRY(launch(s, err, name, grid, kernel, a, scratch, arrivals, static_cast<int32_t>(first)));
  }
  return CED_OK;
}

int mhc_border_cuda(ced_stream *s, const ced_mhc_border_args &a, ced_err *err) {
  return mhc_border_launch(s, "mhc_border", a, err);
}

}  // namespace ced
