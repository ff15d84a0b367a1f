#include "kernel/lanes.h"
#include "kernel/mhc_mix/mhc_mix.h"
#include "kernel/row.h"

namespace ced {

constexpr int kTile = 4;  // rows of h by rows of fn

namespace {

// dot[i][j] = h row i . fn row j for a full tile; unused places may repeat a row.
struct Dots {
  template <int W>
  static CED_INLINE void run(const uint16_t *const *h, const float *const *fn, int64_t width,
                             float (*dot)[kTile]) {
    constexpr int S = kRegisterTile<W>;
    for (int i0 = 0; i0 < kTile; i0 += S)
      for (int j0 = 0; j0 < kTile; j0 += S) {
        f32<W> total[S][S] = {};
        for (int64_t k = 0; k < width; k += kLanes) {
          f32<W> x[S];
          for (int i = 0; i < S; i++) x[i] = load_bf16<W>(h[i0 + i] + k);
          for (int j = 0; j < S; j++) {
            const auto w = load<f32<W>>(fn[j0 + j] + k);
            for (int i = 0; i < S; i++) total[i][j] += x[i] * w;
          }
        }
        for (int i = 0; i < S; i++)
          for (int j = 0; j < S; j++) dot[i0 + i][j0 + j] = sum(total[i][j]);
      }
  }
};

struct Squares {
  template <int W>
  static CED_INLINE float run(const uint16_t *h, int64_t width) {
    f32<W> total = {};
    for (int64_t k = 0; k < width; k += kLanes) {
      const f32<W> x = load_bf16<W>(h + k);
      total += x * x;
    }
    return sum(total);
  }
};

// Where projection o of row r is kept until the row is finished: the row's own outputs hold (2+n)*n values.
float *raw(const ced_mhc_mix_args &a, int64_t r, int64_t o) {
  const int64_t n = a.streams;
  if (o < n) return at<float>(a.pre) + r * n + o;
  if (o < 2 * n) return at<float>(a.post) + r * n + (o - n);
  return at<float>(a.comb) + r * n * n + (o - 2 * n);
}

}  // namespace

void mhc_mix_cpu(ced_stream *s, const ced_mhc_mix_args &a) {
  const int64_t rows = row_count(a.rows), n = a.streams, width = n * a.dim, outputs = (2 + n) * n;
  const int64_t row_tiles = (rows + kTile - 1) / kTile, fn_tiles = (outputs + kTile - 1) / kTile;
  const auto *streams = at<const uint16_t>(a.h);
  parallel_for(s, row_tiles * fn_tiles, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; t++) {
      const int64_t r0 = t / fn_tiles * kTile, o0 = t % fn_tiles * kTile;
      const uint16_t *h[kTile];
      const float *fn[kTile];
      for (int64_t i = 0; i < kTile; i++) {
        h[i] = streams + (r0 + i < rows ? r0 + i : r0) * width;
        fn[i] = at<const float>(a.fn) + (o0 + i < outputs ? o0 + i : o0) * width;
      }
      float dot[kTile][kTile];
      vectorised<Dots>(h, fn, width, dot);
      for (int64_t i = 0; i < kTile && r0 + i < rows; i++)
        for (int64_t j = 0; j < kTile && o0 + j < outputs; j++) *raw(a, r0 + i, o0 + j) = dot[i][j];
    }
  });
  parallel_for(s, rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; r++) {
      const float mean = vectorised<Squares>(streams + r * width, width) / static_cast<float>(width);
      const float norm = f32_rsqrt(mean + a.norm_eps);
      float m[(2 + kMaxStreams) * kMaxStreams];
      for (int64_t o = 0; o < outputs; o++) m[o] = *raw(a, r, o) * norm;
      mhc_mix_finish(a, m, at<float>(a.pre) + r * n, at<float>(a.post) + r * n,
                     at<float>(a.comb) + r * n * n);
    }
  });
}

}  // namespace ced
