#include "kernel/dense_gemm/tile.h"

#include "kernel/dense_gemm/decode.h"

namespace ced {
namespace {

constexpr uint32_t kDepth = 512;  // elements of k whose activations are decoded at a time

// Scale bytes of weight row n: one per 32 along k. FP8 shares them between 32 rows.
template <ced_format f>
CED_INLINE const uint8_t *scale_row(const GemmWeight &weight, int64_t n) {
  if constexpr (f == CED_FP8) return weight.scales + n / 32 * ((weight.k + 31) / 32);
  if constexpr (f == CED_FP4) return weight.scales + n * (weight.k / 32);
  return nullptr;
}

// The bytes of fewer than 32 elements, followed by zeros.
CED_INLINE const uint8_t *padded(const uint8_t *p, uint32_t bytes, uint8_t *room) {
  memset(room, 0, bytes32(CED_F32));
  memcpy(room, p, bytes);
  return room;
}

// x[r] = elements [k0, k0 + depth) of row r as f32, up to a multiple of 32 with zeros.
template <int W, ced_format f, int R>
CED_INLINE void decode_rows(const GemmRow *rows, uint32_t k, uint32_t k0, uint32_t depth,
                            float (*x)[kDepth]) {
  for (int r = 0; r < R; r++) {
    for (uint32_t i = 0; i < depth; i += 32) {
      const uint32_t at = k0 + i;
      const uint8_t *p = rows[r].x + static_cast<size_t>(at) / 32 * bytes32(f);
      uint8_t room[bytes32(CED_F32)];
      if (f != CED_FP8 && k - at < 32) p = padded(p, (k - at) * (bytes32(f) / 32), room);
      Lanes<W> low, high;
      load32<W, f>(p, f == CED_FP8 ? rows[r].scales[at / 32] : 0, &low, &high);
      low.store(&x[r][i]), high.store(&x[r][i + 16]);
    }
  }
}

// sum[i][r] += weight row i of N times activation row r over [k0, k0 + depth).
template <int W, ced_format xf, ced_format f, int R, int N>
CED_INLINE void multiply(const uint8_t *const *rows, const uint8_t *const *scales, uint32_t k0,
                         uint32_t depth, const float (*x)[kDepth], float (*sum)[kTileRows][16]) {
  const uint8_t *w[N];
  Lanes<W> lanes[N][R];
  for (int i = 0; i < N; i++) {
    w[i] = rows[i] + static_cast<size_t>(k0) / 32 * bytes32(f);
    for (int r = 0; r < R; r++) lanes[i][r] = f32_lanes<W>(sum[i][r]);
  }
  uint8_t room[N][bytes32(CED_F32)];
  for (uint32_t k = 0; k < depth; k += 32) {
    for (int i = 0; i < N; i++) {
      if (xf != CED_FP8 && depth - k < 32) w[i] = padded(w[i], (depth - k) * (bytes32(f) / 32), room[i]);
      Lanes<W> low, high;
      load32<W, f>(w[i], f == CED_FP8 || f == CED_FP4 ? scales[i][(k0 + k) / 32] : 0, &low, &high);
      w[i] += bytes32(f);
      for (int r = 0; r < R; r++) {
        lanes[i][r].add_product(low, f32_lanes<W>(&x[r][k]));
        lanes[i][r].add_product(high, f32_lanes<W>(&x[r][k + 16]));
      }
    }
  }
  for (int i = 0; i < N; i++)
    for (int r = 0; r < R; r++) lanes[i][r].store(sum[i][r]);
}

template <int W, ced_format xf, ced_format wf, int R>
CED_INLINE void tile(const GemmWeight &weight, int64_t n, int count, const GemmRow *rows, int first,
                     GemmSums sums) {
  constexpr int N = R >= 8 ? 1 : R >= 4 ? 2 : 4;  // enough independent sums to keep the adders busy
  alignas(64) float x[R][kDepth];
  alignas(64) float sum[kTileWeights][kTileRows][16];
  const uint8_t *w[kTileWeights], *scales[kTileWeights];
  for (int i = 0; i < kTileWeights; i++) {
    const int64_t row = n + (i < count ? i : count - 1);  // the last one again up to a multiple of N
    w[i] = weight.w + row * static_cast<int64_t>(weight.k) * bytes32(wf) / 32;
    scales[i] = scale_row<wf>(weight, row);
    memset(sum[i], 0, R * sizeof sum[i][0]);
  }
  for (uint32_t k0 = 0; k0 < weight.k; k0 += kDepth) {
    const uint32_t left = weight.k - k0, depth = left < kDepth ? left : kDepth;
    decode_rows<W, xf, R>(rows + first, weight.k, k0, depth, x);
    for (int i = 0; i < count; i += N) multiply<W, xf, wf, R, N>(&w[i], &scales[i], k0, depth, x, &sum[i]);
  }
  for (int i = 0; i < count; i++)
    for (int r = 0; r < R; r++) sums[i][first + r] = f32_lanes<W>(sum[i][r]).sum();
}

template <int W, ced_format xf, ced_format wf>
CED_INLINE void any_rows(const GemmWeight &weight, int64_t n, int count, const GemmRow *x, int rows,
                         GemmSums sums) {
  int r = 0;
  for (; rows - r >= 8; r += 8) tile<W, xf, wf, 8>(weight, n, count, x, r, sums);
  for (; rows - r >= 4; r += 4) tile<W, xf, wf, 4>(weight, n, count, x, r, sums);
  for (; rows - r >= 2; r += 2) tile<W, xf, wf, 2>(weight, n, count, x, r, sums);
  for (; rows - r >= 1; r += 1) tile<W, xf, wf, 1>(weight, n, count, x, r, sums);
}

// One function per vector width and pair of formats.
#define CED_TILE_PARAMS \
  const GemmWeight &weight, int64_t n, int count, const GemmRow *x, int rows, GemmSums sums
template <ced_format xf, ced_format wf>
void tile_plain(CED_TILE_PARAMS) {
  any_rows<4, xf, wf>(weight, n, count, x, rows, sums);
}
#if CED_WIDE
template <ced_format xf, ced_format wf>
CED_AVX2 void tile_avx2(CED_TILE_PARAMS) {
  any_rows<8, xf, wf>(weight, n, count, x, rows, sums);
}
template <ced_format xf, ced_format wf>
CED_AVX512 void tile_avx512(CED_TILE_PARAMS) {
  any_rows<16, xf, wf>(weight, n, count, x, rows, sums);
}
#endif

template <ced_format xf, ced_format wf>
void tile_of(int width, CED_TILE_PARAMS) {
#if CED_WIDE
  if (width == 16) return tile_avx512<xf, wf>(weight, n, count, x, rows, sums);
  if (width == 8) return tile_avx2<xf, wf>(weight, n, count, x, rows, sums);
#endif
  (void)width;
  tile_plain<xf, wf>(weight, n, count, x, rows, sums);
}

}  // namespace

void gemm_tile(int width, ced_format x_format, ced_format w_format, CED_TILE_PARAMS) {
  const auto run = x_format == CED_FP8
                       ? (w_format == CED_FP8 ? tile_of<CED_FP8, CED_FP8> : tile_of<CED_FP8, CED_FP4>)
                   : w_format == CED_BF16 ? tile_of<CED_BF16, CED_BF16>
                   : w_format == CED_F32  ? tile_of<CED_BF16, CED_F32>
                                          : tile_of<CED_BF16, CED_FP8>;
  run(width, weight, n, count, x, rows, sums);
}
#undef CED_TILE_PARAMS

}  // namespace ced
