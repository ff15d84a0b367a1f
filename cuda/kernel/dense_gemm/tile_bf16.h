// tile_bf16.h: the direct product of BF16 weights with five to eight BF16 rows of 1,056 to 2,048 elements, for 64-byte
// vectors. Included by tile_body.h. The rows stay BF16, so that the innermost cache holds all of them and weight rows are
// read whole; widening a row again for every two weight rows costs a third of the multiplications. Shorter rows fit as
// f32, of longer ones weights are read in parts either way.
#pragma once

constexpr uint32_t kMostPairs = 2048;
constexpr uint32_t kPairStride = kMostPairs + 32;  // from row to row: not all in the same sets of the cache
constexpr size_t kPairsAhead = 2048;               // bytes from a weight in use to one that is fetched

constexpr bool fits_pairs(uint32_t k, int rows) {
  return rows > 4 && rows <= 8 && k % 32 == 0 && k > kPanel / 8 && k <= kMostPairs;
}

// lanes[i][r] = w[i] . x[r] over n blocks, for two weight rows. From one activation row to the next, lanes are kLanes
// floats apart.
template <class S, int R>
__attribute__((noinline)) void pair_strip(const uint8_t *const *w, const uint16_t *x, uint32_t n,
                                          float *const *lanes) {
  typedef typename S::V V;
  typename S::Seen seen = S::nothing_seen();
  V acc[2][R];
  for (int i = 0; i < 2; i++)
    for (int r = 0; r < R; r++) acc[i][r] = S::zero();
  for (uint32_t b = 0; b < n; b++) {
    V v[2][2], u[2];
    for (int i = 0; i < 2; i++) {
      S::prefetch(w[i] + 64 * b + kPairsAhead);
      S::template decode<CED_BF16, 1>(w[i] + 64 * b, nullptr, seen, v[i]);
    }
    for (int r = 0; r < R; r++) {
      S::template decode<CED_BF16, 1>(reinterpret_cast<const uint8_t *>(x + r * kPairStride + 32 * b),
                                      nullptr, seen, u);
      for (int h = 0; h < 2; h++)
        for (int i = 0; i < 2; i++) acc[i][r] = S::fma(v[i][h], u[h], acc[i][r]);
    }
  }
  for (int i = 0; i < 2; i++)
    for (int r = 0; r < R; r++) S::store(lanes[i] + r * kLanes, acc[i][r]);
}

template <class S, int R>
void pairs(uint32_t k, const GemmRow *w, int count, const GemmRow *x, int rows, GemmSums sums) {
  alignas(64) uint16_t panel[R * kPairStride];
  alignas(64) float acc[R][kTileWeights + 1][16];
  for (int r = 0; r < R; r++) memcpy(panel + r * kPairStride, x[r < rows ? r : 0].x, 2 * k);
  const int half = (count + 1) / 2;
  for (int j = 0; j < half; j++) {
    const bool both = half + j < count;
    const uint8_t *at[2] = {w[j].x, w[both ? half + j : j].x};
    float *lanes[2] = {acc[0][j], acc[0][both ? half + j : kTileWeights]};
    pair_strip<S, R>(at, panel, k / 32, lanes);
  }
  for (int r = 0; r < rows; r++)
    for (int i = 0; i < count; i += 16) S::reduce(&acc[r][i], &sums[r][i]);
}
