// tile_body.h: the body of gemm_tile for one instruction set. A file per set turns on the set's instructions, defines
// its primitives as a struct S and includes this; everything here has internal linkage.
//
// S: typedef V, a vector of kWidth f32
//    kWeights x kRows       register tile of the blocked product
//    load_once(p)           for a vector that is used several times
//    fma(a, b, c)           a * b + c, rounded once when a * b is exact
//    mul_add(a, b, c)       the product rounded first
//    blocks<f>()            blocks of 32 elements that are decoded at a time, 1 or 2
//    expand<f, n>(p, scales, out)  n blocks at p times their scales, in dot order: odd elements, then even ones
//    direct<f>(rows)        weight rows of the direct product with so many activation rows, 0 = not worth it
//    decode<f, n>(p, scales, seen, v)  n blocks as vectors in the order of expand. FP8: without scale, times
//                           kUnit; NaN codes only show in seen. The lanes of FP4 are shuffled: shuffle(v) undoes it
//    reduce(lanes, sums)    the tree, for 16 sums of 16 lanes
#pragma once

// Loops over registers: unrolled early, or GCC keeps the arrays in memory as well.
#define CED_UNROLL _Pragma("GCC unroll 16")

constexpr uint32_t kSlice = 512;   // elements of k that the blocked product expands at a time
constexpr uint32_t kPanel = 8192;  // f32 of activations that the direct product keeps in the innermost cache

// Elements [k0, k0 + depth) of a row of k in dot order, padded with zeros to a multiple of 32.
template <class S, ced_format f>
__attribute__((noinline)) void expand_row(const GemmRow &row, uint32_t k, uint32_t k0, uint32_t depth,
                                          float *out) {
  constexpr int B = S::template blocks<f>();
  const uint8_t *p = row.x + static_cast<size_t>(k0) / 32 * bytes32(f);
  const auto scales = [&](uint32_t b) { return has_scales(f) ? row.scales + k0 / 32 + b : nullptr; };
  const uint32_t blocks = (k - k0 < depth ? k - k0 : depth) / 32;
  uint32_t b = 0;
  for (; b + B <= blocks; b += B) S::template expand<f, B>(p + b * bytes32(f), scales(b), out + 32 * b);
  for (; b < blocks; b++) S::template expand<f, 1>(p + b * bytes32(f), scales(b), out + 32 * b);
  if (32 * b < depth) {
    uint8_t room[128] = {};
    memcpy(room, p + b * bytes32(f), (k % 32) * bytes32(f) / 32);
    S::template expand<f, 1>(room, scales(b), out + 32 * b);
  }
}

typedef void Expand(const GemmRow &row, uint32_t k, uint32_t k0, uint32_t depth, float *out);

// ---- blocked: weights are expanded once for all rows ----

// acc[r][i] += w[i] . x[r] for kWeights x R rows of kSlice floats; acc is [*][kTileWeights][16].
template <class S, bool fused, int R>
__attribute__((noinline)) void register_tile(const float *w, const float *x, uint32_t depth, bool first,
                                             float *acc) {
  typedef typename S::V V;
  constexpr int N = S::kWeights;
  for (int lane = 0; lane < 16; lane += S::kWidth) {
    V sum[N][R];
    for (int i = 0; i < N; i++)
      for (int r = 0; r < R; r++)
        sum[i][r] = first ? S::zero() : S::load(acc + (r * kTileWeights + i) * 16 + lane);
    for (uint32_t k = lane; k < depth; k += 16) {
      V v[N];
      for (int i = 0; i < N; i++) v[i] = S::load(w + i * kSlice + k);
      for (int r = 0; r < R; r++) {
        const V u = S::load(x + r * kSlice + k);
        for (int i = 0; i < N; i++)
          sum[i][r] = fused ? S::fma(v[i], u, sum[i][r]) : S::mul_add(v[i], u, sum[i][r]);
      }
    }
    for (int i = 0; i < N; i++)
      for (int r = 0; r < R; r++) S::store(acc + (r * kTileWeights + i) * 16 + lane, sum[i][r]);
  }
}

template <class S, bool fused, int R>
inline void register_tiles(int rows, int count, const float *w, const float *x, uint32_t depth, bool first,
                           float *acc) {
  if (rows == R) {
    for (int i = 0; i < count; i += S::kWeights)
      register_tile<S, fused, R>(w + i * kSlice, x, depth, first, acc + i * 16);
  } else if constexpr (R > 1) {
    register_tiles<S, fused, R - 1>(rows, count, w, x, depth, first, acc);
  }
}

// A slice of all activations stays in the second-level cache, that of a few weights in the first.
template <class S, bool fused>
void blocked(Expand *expand_x, Expand *expand_w, uint32_t w_bytes32, uint32_t k, const GemmRow *w, int count,
             const GemmRow *x, int rows, GemmSums sums) {
  constexpr int N = S::kWeights, R = S::kRows, kFew = 8 / N * N;
  alignas(64) float few[kFew * kSlice], all[kTileRows * kSlice], acc[kTileRows][kTileWeights][16];
  for (uint32_t k0 = 0; k0 < k; k0 += kSlice) {
    const uint32_t left = (k - k0 + 31) / 32 * 32, depth = left < kSlice ? left : kSlice;
    for (int r = 0; r < rows; r++) expand_x(x[r], k, k0, depth, all + r * kSlice);
    for (int i = 0; i < count; i += kFew) {
      int n = 0;
      for (; n < kFew && i + n < count; n++) expand_w(w[i + n], k, k0, depth, few + n * kSlice);
      for (; n % N != 0; n++) memset(few + n * kSlice, 0, depth * sizeof(float));
      // Before every tile a part of the weights that come next is fetched.
      const int next = i + kFew < count ? i + kFew : 0;
      const size_t from = static_cast<size_t>(k0 + (next > 0 ? 0 : kSlice)) / 32 * w_bytes32;
      const int lines = static_cast<int>(depth / 32 * w_bytes32 + 63) / 64 * kFew, tiles = (rows + R - 1) / R;
      int line = 0;
      for (int r = 0; r < rows; r += R) {
        for (const int end = lines * (r / R + 1) / tiles; line < end; line++)
          S::prefetch(w[next + line % kFew < count ? next + line % kFew : next].x + from + line / kFew * 64);
        register_tiles<S, fused, R>(rows - r < R ? rows - r : R, n, few, all + r * kSlice, depth, k0 == 0,
                                    acc[r][i]);
      }
    }
  }
  for (int r = 0; r < rows; r++)
    for (int i = 0; i < count; i += 16) S::reduce(&acc[r][i], &sums[r][i]);
}

// ---- direct: weights are decoded on the way to the multiply, for a few rows ----

constexpr int kLanes = (kTileWeights + 1) * 16;  // one more, for what nobody wants

// With many activation rows, weight rows are read in parts, as short streams: the tile that is next in memory comes to
// the second level meanwhile.
constexpr bool fetches_far(ced_format f, int rows) { return f == CED_BF16 && rows > 4; }

#include "kernel/dense_gemm/tile_bf16.h"

// N weight rows and R activation rows, from the first block of a slice on.
template <int N, int R>
struct Strip {
  const uint8_t *w[N], *scales[N];  // scales: FP4 only
  const float *factors[N];          // FP8 with R > 1: the scales over kUnit
  const float *x[N];                // activation rows, `stride` floats apart
  uint32_t stride, blocks;
  size_t ahead;       // bytes from a weight in use to one that is fetched, maybe beyond the matrix
  size_t edge, jump;  // from byte `edge` of the rows on, it is `jump` bytes farther
  size_t far;         // and, if fetches_far, to one that is fetched into the second level
  bool first;         // the sums begin here
  float *lanes[N];    // sums of the first activation row; those of the next are kLanes floats on
};

// acc[i][r] += w[i] . x[r] over n blocks from block b on, for `some` weight rows from i0 on.
template <class S, ced_format f, int n, int some, int N, int R>
inline void direct_step(const Strip<N, R> &t, size_t b, int i0, typename S::Seen &seen,
                        typename S::V (*acc)[R][16 / S::kWidth]) {
  constexpr int P = 16 / S::kWidth, kParts = 2 * n * P;  // parts: odd elements, even elements
  typename S::V v[some][kParts];
  CED_UNROLL
  for (int i = 0; i < some; i++) {
    const uint8_t *scales = f == CED_FP4 ? t.scales[i0 + i] + b : nullptr;
    S::template decode<f, n>(t.w[i0 + i] + b * bytes32(f), scales, seen, v[i]);
    if (f == CED_FP8 && R > 1) CED_UNROLL
    for (int h = 0; h < kParts; h++) v[i][h] = S::mul(v[i][h], S::of(t.factors[i0 + i][b + h / (2 * P)]));
  }
  CED_UNROLL
  for (int h = 0; h < kParts; h++) CED_UNROLL
  for (int r = 0; r < R; r++) {
    const float *x = t.x[f == CED_FP8 ? i0 : 0] + r * t.stride + 32 * b + h * S::kWidth;
    const auto u = some > 1 && R > 4 && f != CED_FP8 ? S::load_once(x) : S::load(x);
    CED_UNROLL
    for (int i = 0; i < some; i++) {
      auto &sum = acc[i0 + i][r][h % P];
      sum = f == CED_F32 ? S::mul_add(v[i][h], u, sum) : S::fma(v[i][h], u, sum);
    }
  }
}

// The same for all N rows: together where the registers hold them, so that x is loaded once.
template <class S, ced_format f, int n, int N, int R>
inline void direct_step(const Strip<N, R> &t, size_t b, typename S::Seen &seen,
                        typename S::V (*acc)[R][16 / S::kWidth]) {
  constexpr int some = S::kWidth == 16 && R > 2 ? N : 1;
  CED_UNROLL
  for (int i = 0; i < N; i += some) direct_step<S, f, n, some>(t, b, i, seen, acc);
}

// Adds the strip's products to its lanes.
template <class S, ced_format f, int N, int R>
inline void direct_strip(const Strip<N, R> &t, typename S::Seen &seen) {
  constexpr int P = 16 / S::kWidth, B = S::template blocks<f>();
  constexpr size_t kLine = f == CED_F32 ? 1 : 64 / bytes32(f);  // blocks of a cache line
  typename S::V acc[N][R][P];
  CED_UNROLL
  for (int i = 0; i < N; i++) CED_UNROLL
  for (int r = 0; r < R; r++) {
    CED_UNROLL
    for (int l = 0; l < P; l++)
      acc[i][r][l] = t.first ? S::zero() : S::load(t.lanes[i] + r * kLanes + l * S::kWidth);
    if (f == CED_FP4 && !t.first) S::shuffle(acc[i][r]);
  }
  size_t b = 0;
  for (; b + kLine <= t.blocks; b += kLine) {
    const size_t ahead = t.ahead + (b * bytes32(f) >= t.edge ? t.jump : 0);
    CED_UNROLL
    for (int i = 0; i < N; i++) {
      const uintptr_t p = reinterpret_cast<uintptr_t>(t.w[i]) + b * bytes32(f) + ahead;
      S::prefetch(reinterpret_cast<const uint8_t *>(p));
      if (fetches_far(f, R)) S::prefetch_far(reinterpret_cast<const uint8_t *>(p - ahead + t.far));
      if (f == CED_F32) S::prefetch(reinterpret_cast<const uint8_t *>(p + 64));
    }
    CED_UNROLL
    for (size_t u = 0; u < kLine; u += B) direct_step<S, f, B, N, R>(t, b + u, seen, acc);
  }
  for (; b < t.blocks; b++) direct_step<S, f, 1, N, R>(t, b, seen, acc);
  CED_UNROLL
  for (int i = 0; i < N; i++) CED_UNROLL
  for (int r = 0; r < R; r++) {
    if (f == CED_FP4) S::shuffle(acc[i][r]);
    CED_UNROLL
    for (int l = 0; l < P; l++) S::store(t.lanes[i] + r * kLanes + l * S::kWidth, acc[i][r][l]);
  }
}

// The strips of neighbouring rows from their first element on: weight rows w[i][0 .. rows), with lanes that follow
// those of the strip. The last of them fetch the rows that are read next, `next` bytes from the first ones. A function
// of its own, so that its pointers stay in registers from row to row.
template <class S, ced_format f, int N, int R>
__attribute__((noinline)) void direct_rows(const Strip<N, R> &strip, const GemmRow *const *w, int rows,
                                           size_t next, typename S::Seen &all_seen) {
  Strip<N, R> t = strip;
  t.first = true;
  size_t left = static_cast<size_t>(rows) * t.blocks * bytes32(f);
  t.jump = next - left;
  typename S::Seen seen = all_seen;
  for (int j = 0; j < rows; j++) {
    t.edge = left > t.ahead ? left - t.ahead : 0;
    left -= t.blocks * bytes32(f);
    for (int i = 0; i < N; i++) t.w[i] = w[i][j].x, t.scales[i] = f == CED_FP4 ? w[i][j].scales : nullptr;
    direct_strip<S, f>(t, seen);
    for (int i = 0; i < N; i++) t.lanes[i] += 16;
  }
  all_seen = seen;
}

// Scales of FP8 weights over kUnit; false if a weight times its scale may not be exact.
template <class S>
inline bool fp8_factors(const uint8_t *scales, uint32_t blocks, float *factors) {
  bool rare = false;
  for (uint32_t b = 0; b < blocks; b++) {
    rare = rare | (scales[b] < 27) | (scales[b] > 227);  // 2^-100 .. 2^100
    factors[b] = f32_of(static_cast<uint32_t>(scales[b]) << 23) * (1 / S::kUnit);
  }
  return !rare;
}

// x times the factors; false if that is not exact.
template <class S>
inline bool scale_panel(const float *factors, uint32_t blocks, const float *x, float *out) {
  typedef typename S::V V;
  bool exact = true;
  for (uint32_t b = 0; b < blocks; b++) {
    const V factor = S::of(factors[b]), inverse = S::of(f32_of((254u << 23) - f32_bits(factors[b])));
    for (uint32_t k = 32 * b; k < 32 * b + 32; k += S::kWidth) {
      const V u = S::load(x + k), v = S::mul(u, factor);
      S::store(out + k, v);
      exact = exact & S::equal(S::mul(v, inverse), u);
    }
  }
  return exact;
}

// Whether it could: what is rare (scales that leave no room, NaN) is left to the blocked product. The scales of FP8
// weights go to the weights, or to a single activation row.
template <class S, ced_format wf, int R>
bool direct(Expand *expand_x, uint32_t k, const GemmRow *w, int count, const GemmRow *x, GemmSums sums) {
  constexpr int N = S::template direct<wf>(R);
  constexpr bool kScaleX = wf == CED_FP8 && R == 1;
  constexpr uint32_t kMost = kPanel / R / 64 * 64;
  alignas(64) float panel[R * kMost], scaled[kScaleX ? kMost : 1], acc[R][kTileWeights + 1][16];
  float factors[N * kMost / 32];
  const uint32_t padded = (k + 31) / 32 * 32, whole = k / 32;
  // Probably the next tile follows this one, or is of the same two matrices.
  const size_t row_bytes = static_cast<size_t>(k) * bytes32(wf) / 32, half = static_cast<size_t>(count / 2);
  const size_t tile_bytes =
      (w[half].x - w[0].x == static_cast<ptrdiff_t>(half * row_bytes) ? count : half) * row_bytes;
  for (int r = 0; r < R; r++) memset(acc[r][kTileWeights], 0, sizeof acc[r][kTileWeights]);
  typename S::Seen seen = S::nothing_seen();
  Strip<N, R> t;
  t.stride = kMost, t.jump = 0, t.edge = 0;
  t.ahead = padded <= kMost ? kAhead : static_cast<size_t>(k) * bytes32(wf) / 16;  // two rows
  t.far = tile_bytes;
  if (fetches_far(wf, R)) t.ahead = kAhead / 2;
  for (uint32_t k0 = 0; k0 < padded; k0 += kMost) {
    // The streams begin while the activations are expanded. FP8: where rows of the same scales are split, see below.
    const bool splits = wf == CED_FP8 && (32 * N > count || (kScaleX && N * (padded - k0) > kMost / 2));
    const int apart = splits ? 32 / N : (count + N - 1) / N;
    for (int i = 0; i < N * apart && i < count; i += apart)
      for (size_t line = 0; line < kAhead; line += 64)
        S::prefetch(w[i].x + static_cast<size_t>(k0) / 32 * bytes32(wf) + line);
    const uint32_t left = padded - k0, depth = left < kMost ? left : kMost;
    const uint32_t blocks = (k0 + depth) / 32 <= whole ? depth / 32 : whole - k0 / 32;
    for (int r = 0; r < R; r++) {
      float *row = panel + static_cast<size_t>(r) * kMost;
      expand_x(x[r], k, k0, depth, row);
      if (wf == CED_FP4)
        for (uint32_t i = 0; i < depth; i += 16) S::shuffle(row + i);
    }
    // The N weight rows of a strip are apart: memory is read best as a few long streams.
    const auto strip = [&](const int *rows) {
      for (int i = 0; i < N; i++) {
        const int r = rows[i] < count ? rows[i] : 0;
        t.w[i] = w[r].x + static_cast<size_t>(k0) / 32 * bytes32(wf);
        t.scales[i] = wf == CED_FP4 ? w[r].scales + k0 / 32 : nullptr;
        t.lanes[i] = acc[0][rows[i] < count ? r : kTileWeights];
      }
      t.blocks = blocks, t.first = k0 == 0;
      direct_strip<S, wf>(t, seen);
      if (32 * blocks == depth) return;
      Strip<N, R> last = t;  // the partial block
      uint8_t room[N][128] = {};
      for (int i = 0; i < N; i++) {
        memcpy(room[i], t.w[i] + static_cast<size_t>(blocks) * bytes32(wf), (k % 32) * bytes32(wf) / 32);
        last.w[i] = room[i];
        last.x[i] += 32 * blocks, last.factors[i] += blocks;
      }
      last.blocks = 1, last.first = k0 == 0 && blocks == 0;
      direct_strip<S, wf>(last, seen);
    };
    // The usual case: streams equally long, no block partial, all of k at once.
    const bool usual = k0 == 0 && 32 * blocks == depth;
    const auto even_rows = [&](const int *from, int some, int next) {
      const GemmRow *at[N];
      for (int i = 0; i < N; i++) at[i] = w + from[i], t.lanes[i] = acc[0][from[i]];
      t.blocks = blocks;
      const size_t on = next < count ? w[next].x - w[from[0]].x : w[0].x - w[from[0]].x + tile_bytes;
      direct_rows<S, wf>(t, at, some, on, seen);
    };
    int rows[N];
    for (int i = 0; i < N; i++) t.x[i] = panel, t.factors[i] = factors;
    if constexpr (wf != CED_FP8) {
      const int part = (count + N - 1) / N;
      if (part * N == count && usual) {
        for (int i = 0; i < N; i++) rows[i] = i * part;
        even_rows(rows, part, count);
        continue;
      }
      for (int j = 0; j < part; j++) {
        for (int i = 0; i < N; i++) rows[i] = j + i * part;
        strip(rows);
      }
      continue;
    }
    // Rows that share FP8 scales are a stream each, or are split into N: where there are too few such, and where N
    // scaled activation rows are too many.
    for (int n = 0; n < count;) {
      int at[N], end[N], longest = 0, shortest = count;
      const auto grid = [&](int from) {
        int to = from;
        while (to < count && w[to].scales == w[from].scales) to++;
        return to;
      };
      const int first = n;
      const bool each = (!kScaleX || N * depth <= kMost / 2) && (grid(n) - n) * N <= count - n;
      const int split = each ? 0 : (grid(n) - n + N - 1) / N;
      for (int i = 0; i < N; i++) {
        at[i] = each ? n : first + i * split;
        end[i] = each ? n = grid(n) : std::min(at[i] + split, n = grid(first));
        longest = std::max(longest, end[i] - at[i]), shortest = std::min(shortest, end[i] - at[i]);
        if (at[i] >= end[i]) continue;
        float *f = factors + (each ? i * (depth / 32) : 0), *xs = scaled + (each ? i * depth : 0);
        t.factors[i] = f;
        if (kScaleX) t.x[i] = xs;
        if (i > 0 && !each) continue;
        if (!fp8_factors<S>(w[at[i]].scales + k0 / 32, depth / 32, f)) return false;
        if (kScaleX && !scale_panel<S>(f, depth / 32, panel, xs)) return false;
      }
      if (shortest == longest && usual) {
        even_rows(at, longest, n);
        continue;
      }
      for (int j = 0; j < longest; j++) {
        for (int i = 0; i < N; i++) rows[i] = at[i] + j < end[i] ? at[i] + j : count;
        strip(rows);
      }
    }
  }
  if (wf == CED_FP8 && S::nan_seen(seen)) return false;
  for (int r = 0; r < R; r++)
    for (int i = 0; i < count; i += 16) S::reduce(&acc[r][i], &sums[r][i]);
  return true;
}

// The direct product of `rows` rows with the smallest R that holds them.
template <class S, ced_format wf, int R = 1>
bool try_direct(Expand *expand_x, uint32_t k, const GemmRow *w, int count, const GemmRow *x, int rows,
                GemmSums sums) {
  if constexpr (S::template direct<wf>(R) == 0) {
    return false;
  } else if (rows <= R) {
    GemmRow padded[R];
    for (int r = 0; r < R; r++) padded[r] = x[r < rows ? r : 0];
    return direct<S, wf, R>(expand_x, k, w, count, padded, sums);
  } else {
    return try_direct < S, wf, R<4 ? R + 1 : R + 2>(expand_x, k, w, count, x, rows, sums);
  }
}

template <class S, ced_format wf>
void tile(Expand *expand_x, uint32_t k, const GemmRow *w, int count, const GemmRow *x, int rows,
          GemmSums sums) {
  if constexpr (wf == CED_BF16 && S::kWidth == 16)
    if (fits_pairs(k, rows) && expand_x == expand_row<S, CED_BF16>)
      return rows <= 6 ? pairs<S, 6>(k, w, count, x, rows, sums) : pairs<S, 8>(k, w, count, x, rows, sums);
  if (!try_direct<S, wf>(expand_x, k, w, count, x, rows, sums))
    blocked<S, wf != CED_F32>(expand_x, expand_row<S, wf>, bytes32(wf), k, w, count, x, rows, sums);
}

template <class S>
void any_tile(ced_format x_format, ced_format w_format, uint32_t k, const GemmRow *w, int count,
              const GemmRow *x, int rows, GemmSums sums) {
  const auto run = w_format == CED_FP8    ? tile<S, CED_FP8>
                   : w_format == CED_FP4  ? tile<S, CED_FP4>
                   : w_format == CED_BF16 ? tile<S, CED_BF16>
                                          : tile<S, CED_F32>;
  run(x_format == CED_FP8 ? expand_row<S, CED_FP8> : expand_row<S, CED_BF16>, k, w, count, x, rows, sums);
}
