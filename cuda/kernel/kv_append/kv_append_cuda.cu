#include "kernel/kv_append/kv_append.h"
#include "kernel/row_gpu.h"
#include "num/func.h"

namespace ced {
namespace {

constexpr int kThreads = 128;

// The largest magnitude among 16 neighbouring lanes.
__device__ float half_warp_max(float v) {
  uint32_t m = f32_bits(v) & 0x7FFFFFFFu;
  for (int d = 8; d > 0; d /= 2) {
    const uint32_t other = __shfl_xor_sync(kAllLanes, m, d);
    m = other > m ? other : m;
  }
  return f32_of(m);
}

// Two neighbouring lanes' codes make a byte, which the even one stores.
__device__ void store_code(uint8_t *codes, uint32_t channel, uint32_t code) {
  const uint32_t odd = __shfl_xor_sync(kAllLanes, code, 1);
  if (channel % 2 == 0) codes[channel / 2] = pack_e2m1(static_cast<uint8_t>(code), static_cast<uint8_t>(odd));
}

// A block for a group; its two rows stay in shared memory. The scales are those of num/quant.h, found by the lanes that
// share one. Sum of squares of k: a thread's channels in ascending order, then block_sum.
__global__ void __launch_bounds__(kThreads, 1) kv_append_kernel(ced_kv_append_args a) {
  DYN_SMEM(float, x);
  SHARED(float, part, kThreads / 32);
  const auto &rows = *at<const ced_rows>(a.rows);
  const uint32_t head_dim = a.kv.head_dim, index_dim = a.kv.index_dim, pairs = a.rope_dim / 2;
  float *key = x + head_dim;
  const Weights weight(a.k_weight, a.weight_format);
  const int32_t count = row_count(a.groups);
  for (int32_t g = static_cast<int32_t>(blockIdx.x); g < count; g += static_cast<int32_t>(gridDim.x)) {
    const auto group = static_cast<size_t>(g);
    const int32_t r = at<const int32_t>(at<const ced_groups>(a.groups)->row)[g];
    const int32_t j = visible_groups(a.kv, at<const int32_t>(rows.pos)[r]) - 1;
    const KvRow row = kv_row(a.kv, at<const int32_t>(rows.slot)[r], j);
    for (uint32_t i = threadIdx.x; i < head_dim; i += kThreads)
      x[i] = bf16_to_f32(at<const uint16_t>(a.latent)[group * head_dim + i]);
    float squares = 0;
    for (uint32_t i = threadIdx.x; i < index_dim; i += kThreads) {
      key[i] = bf16_to_f32(at<const uint16_t>(a.k)[group * index_dim + i]);
      squares += key[i] * key[i];
    }
    const float scale = f32_rsqrt(block_sum<kThreads>(squares, part) / static_cast<float>(index_dim) + a.eps);
    for (uint32_t i = threadIdx.x; i < index_dim; i += kThreads)
      key[i] = bf16_round(weight[i] * (key[i] * scale));
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < pairs; i += kThreads) {
      float cosine, sine;
      rope_angle(at<const float>(a.freqs)[i], j * static_cast<int32_t>(a.kv.ratio), cosine, sine);
      float *main = x + head_dim - a.rope_dim + 2 * i, *index = key + index_dim - a.rope_dim + 2 * i;
      rotate_pair(main[0], main[1], cosine, sine);
      rotate_pair(index[0], index[1], cosine, sine);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < head_dim; i += kThreads) {  // multiples of 32: whole warps
      const uint8_t code = f32_to_e4m3(f32_max(half_warp_max(x[i]), 6 * 0x1p-9f) / 6.0f);
      store_code(row.main_codes, i, f32_to_e2m1(x[i] / e4m3_to_f32(code)));
      if (i % 16 == 0) row.main_scales[i / 16] = code;
    }
    for (uint32_t i = threadIdx.x; i < index_dim; i += kThreads) {
      const float largest = f32_of(warp_max(f32_bits(key[i]) & 0x7FFFFFFFu));
      const float s = pow2_ceil(f32_max(largest, 6 * 0x1p-126f) * 0x1.555556p-3f);
      store_code(row.index_codes, i, f32_to_e2m1(key[i] * (1.0f / s)));
      if (i % 32 == 0) row.index_scales[i / 32] = f32_to_e8m0(s);
    }
    __syncthreads();  // before the next group
  }
}

}  // namespace

int kv_append_cuda(ced_stream *s, const ced_kv_append_args &a, ced_err *err) {
  const size_t shared = (a.kv.head_dim + a.kv.index_dim) * sizeof(float);
  return launch(s, err, "kv_append", {row_blocks(a.max_groups), kThreads, shared}, kv_append_kernel, a);
}

}  // namespace ced
