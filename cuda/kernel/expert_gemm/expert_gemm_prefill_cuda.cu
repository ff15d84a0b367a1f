#include "kernel/expert_gemm/packed_gpu.h"
#include "kernel/expert_gemm/tile_gpu.h"
#include "kernel/prefill_gpu.h"
#include "num/quant.h"

namespace ced {
namespace {

constexpr uint32_t kThreads = Prefill::kThreads, kOutputs = Prefill::kOutputs;
constexpr uint32_t kChannels = kOutputs / 2;  // of a block between the halves: gate and up

// The lane's rows of a tile of a packed expert.
struct PackedRows {
  const unsigned char *codes_at = nullptr, *scales_at = nullptr;  // of the k-step 0; null: zeros
  uint32_t bytes = 0;                                             // from a k-step to the next
  uint4 codes;
  uint32_t scales;

  __device__ void fetch(uint32_t step, uint32_t) {
    codes = {}, scales = 0;
    if (codes_at == nullptr) return;
    codes = load16(codes_at + static_cast<size_t>(step) * bytes);
    scales = *reinterpret_cast<const uint16_t *>(scales_at + static_cast<size_t>(step) * bytes);
  }
  __device__ void words(Words &low, Words &high) const {
    if ((scales & 0x8080u) == 0) {
      packed_words<true>(codes, scales, 0, low, high);
    } else {
      packed_words<false>(codes, scales, 0, low, high);
    }
  }
};

// The lane's two rows of 16 from row i on of an expert's matrix [n, k]: the shared one's are FP8 with a scale for 32 rows,
// the others are packed. matrix, of: which one of how many of a part.
template <ced_format kW>
auto __device__ weight_rows(uint64_t data, uint64_t scales, uint32_t matrix, uint32_t of, uint32_t i,
                            uint32_t n, uint32_t k) {
  if constexpr (kW == CED_FP4) {
    PackedRows w;
    if (i < n) {
      const uint32_t lane = threadIdx.x % 32, tile = i % Pack::kChannels / 16 * of + matrix;
      const auto *from = at<const unsigned char>(data) + Pack::step(i / Pack::kChannels, 0, k, 2 * of);
      w.codes_at = from + Pack::kCodes * tile + 16 * lane;
      w.scales_at = from + Pack::scales(lane / 4, lane % 4 / 2, tile, 2 * of);
      w.bytes = 2 * of * Pack::kTile;
    }
    return w;
  } else {
    WeightRows<kW> w;
    for (uint32_t h = 0; h < 2; h++) {
      const uint32_t row = i + threadIdx.x % 32 / 4 + 8 * h;
      if (row < n)
        w.row[h] = {at<const unsigned char>(data) + static_cast<size_t>(row) * k,
                    at<const unsigned char>(scales) + static_cast<size_t>(row / 32) * (k / 32),
                    aligned(data, 16)};
    }
    return w;
  }
}

// The first half: 64 channels of gate and up, in turns of 16, the activation, and its quantisation groups.
template <ced_format kW, int kRows, bool kWgmma>
__global__ void __launch_bounds__(kThreads, 1)
    gate_up_prefill_kernel(ced_expert_gemm_args a, ExpertWorkspace work) {
  DYN_SMEM(unsigned char, shared);
  ExpertTile tile{};
  if (!tile.find(a, work, static_cast<int32_t>(blockIdx.y), kRows, kW == CED_FP8 ? &a.shared : nullptr))
    return;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, i0 = blockIdx.x * kChannels;
  const bool up = warp % 2 != 0;
  const ced_expert &e = *tile.expert;
  const bool one = kW == CED_FP4 || !up;  // both matrices of a packed expert begin at w1
  auto w = weight_rows<kW>(one ? e.w1 : e.w3, one ? e.w1_scales : e.w3_scales, up ? 1 : 0, 2,
                           i0 + warp / 2 * 16, a.inter, a.dim);
  const auto x = [&](uint32_t r) {
    OperandRow o;
    if (r >= static_cast<uint32_t>(tile.n)) return o;
    int32_t row = tile.assignment(r);
    if (kW != CED_FP8) row /= static_cast<int32_t>(a.top_k);
    o.data = at<const unsigned char>(a.x) + static_cast<size_t>(row) * a.dim;
    o.scales = at<const unsigned char>(a.x_scales) + static_cast<size_t>(row) * (a.dim / 32);
    return o;
  };
  float sum[kRows / 8][4];
  prefill_tile<CED_FP8, kRows, kWgmma>(sum, w, x, a.dim, shared);

  // BF16 [kRows][gate 64, up 64] takes the room of the two tiles.
  auto *rounded = reinterpret_cast<uint16_t *>(shared);
  CED_UNROLL
  for (uint32_t j = 0; j < kRows / 8; j++)
    for (uint32_t i = 0; i < 4; i++)
      rounded[(8 * j + lane % 4 * 2 + i % 2) * kOutputs + (up ? kChannels : 0) + warp / 2 * 16 + lane / 4 +
              i / 2 * 8] = f32_to_bf16(sum[j][i]);
  __syncthreads();
  for (uint32_t r = warp; r < static_cast<uint32_t>(tile.n); r += kThreads / 32) {
    const int32_t n = tile.assignment(r);
    const float weight = kW == CED_FP8 ? 1.0f : at<const float>(a.weights)[n];
    const size_t to = expert_place(a, n, kW == CED_FP8);
    for (uint32_t c = 0; c < kChannels && i0 + c < a.inter; c += 32) {  // a group, a lane for a channel
      const uint16_t *v = rounded + r * kOutputs + c + lane;
      store_activation(a, work, to, i0 + c,
                       swiglu(bf16_to_f32(v[0]), bf16_to_f32(v[kChannels]), a.limit, weight));
    }
  }
}

// The second half: 128 channels of the result, rounded.
template <ced_format kW, int kRows, bool kWgmma>
__global__ void __launch_bounds__(kThreads, 1)
    down_prefill_kernel(ced_expert_gemm_args a, ExpertWorkspace work) {
  DYN_SMEM(unsigned char, shared);
  ExpertTile tile{};
  if (!tile.find(a, work, static_cast<int32_t>(blockIdx.y), kRows, kW == CED_FP8 ? &a.shared : nullptr))
    return;
  const uint32_t lane = threadIdx.x % 32, first = blockIdx.x * kOutputs + threadIdx.x / 32 * 16,
                 i0 = first + lane / 4;
  auto w = weight_rows<kW>(tile.expert->w2, tile.expert->w2_scales, 0, 1, first, a.dim, a.inter);
  const auto x = [&](uint32_t r) {
    OperandRow o;
    if (r >= static_cast<uint32_t>(tile.n)) return o;
    const size_t n = expert_place(a, tile.assignment(r), kW == CED_FP8);
    o.data = at<const unsigned char>(work.codes) + n * a.inter;
    o.scales = at<const unsigned char>(work.scales) + n * (a.inter / 32);
    return o;
  };
  float sum[kRows / 8][4];
  prefill_tile<CED_FP8, kRows, kWgmma>(sum, w, x, a.inter, shared);
  CED_UNROLL
  for (uint32_t j = 0; j < kRows / 8; j++)
    for (uint32_t i = 0; i < 4; i++) {
      const uint32_t r = 8 * j + lane % 4 * 2 + i % 2, output = i0 + i / 2 * 8;
      if (r < static_cast<uint32_t>(tile.n) && output < a.dim)
        at<uint16_t>(work.out)[expert_place(a, tile.assignment(r), kW == CED_FP8) * a.dim + output] =
            f32_to_bf16(sum[j][i]);
    }
}

template <ced_format kW, int kRows, bool kWgmma>
int launch_halves(ced_stream *s, const ced_expert_gemm_args &a, const ExpertWorkspace &work, uint32_t tiles,
                  ced_err *err) {
  const Grid first{dim3(ceil_div(a.inter, kChannels), tiles), kThreads, Prefill::shared_bytes(kRows)},
      second{dim3(ceil_div(a.dim, kOutputs), tiles), kThreads, Prefill::shared_bytes(kRows)};
  CED_TRY(launch(s, err, "expert_gemm", first, gate_up_prefill_kernel<kW, kRows, kWgmma>, a, work));
  return launch(s, err, "expert_gemm", second, down_prefill_kernel<kW, kRows, kWgmma>, a, work);
}

template <ced_format kW, int kRows>
int launch_rows(ced_stream *s, const ced_expert_gemm_args &a, const ExpertWorkspace &work, uint32_t tiles,
                ced_err *err) {
  return cuda_of(s).wgmma ? launch_halves<kW, kRows, true>(s, a, work, tiles, err)
                          : launch_halves<kW, kRows, false>(s, a, work, tiles, err);
}

template <ced_format kW>
int launch_format(ced_stream *s, const ced_expert_gemm_args &a, const ExpertWorkspace &work,
                  uint32_t tile_rows, uint32_t tiles, ced_err *err) {
  if (tile_rows == 32) return launch_rows<kW, 32>(s, a, work, tiles, err);
  if (tile_rows == 64) return launch_rows<kW, 64>(s, a, work, tiles, err);
  return launch_rows<kW, 128>(s, a, work, tiles, err);
}

}  // namespace

int expert_gemm_prefill(ced_stream *s, const ced_expert_gemm_args &a, const ExpertWorkspace &work,
                        ced_format w, uint32_t tile_rows, uint32_t tiles, ced_err *err) {
  return w == CED_FP4 ? launch_format<CED_FP4>(s, a, work, tile_rows, tiles, err)
                      : launch_format<CED_FP8>(s, a, work, tile_rows, tiles, err);
}

}  // namespace ced
