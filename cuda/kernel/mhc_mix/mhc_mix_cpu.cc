#include <algorithm>

#include "kernel/mhc_mix/mhc_mix.h"
#include "kernel/row_lanes.h"

namespace ced {
namespace {

constexpr int64_t kChannels = 256;  // of the rows and of fn that are multiplied at a time
constexpr int64_t kAhead = 512;     // from the channels that are multiplied to those that are asked for
constexpr int kRows = 64;           // whose sums a thread holds meanwhile
constexpr int kOutputs = 24;

// The squares of a row in two sets of lanes, for alternate sixteens.
template <int W>
struct Squares {
  f32<W> even, odd;
  CED_INLINE void add(const f32<W> &a, const f32<W> &b) {
    even += a * a;
    odd += b * b;
  }
};

struct RowSquares {
  template <int W>
  static CED_INLINE float run(const uint16_t *h, int64_t width) {
    Squares<W> s = {};
    for (int64_t c = 0; c < width; c += kBlock) s.add(load_bf16<W>(h + c), load_bf16<W>(h + c + kLanes));
    return sum(s.even + s.odd);
  }
};

// dot[r][o] = h row r . fn row o, in 16 lanes along all streams' channels; products are not exact, so they are
// rounded before they are added. And the rows' squares.
struct Dots {
  const uint16_t *h;
  const float *fn;
  int64_t width;
  int rows, outputs;  // at most kRows, kOutputs
  float dot[kRows][kOutputs], squares[kRows];

  template <int W>
  static CED_INLINE void run(Dots *d) {
    alignas(64) float sums[kRows][kOutputs][kLanes], x[kTile * kChannels], packed[kOutputs * kChannels];
    Squares<W> squares[kRows];
    for (int r = 0; r < d->rows; r++) {
      squares[r] = {};
      for (int o = 0; o < d->outputs; o++) store(sums[r][o], f32<W>{});
    }
    for (int64_t k = 0; k < d->width; k += kChannels) {
      const int64_t n = std::min(kChannels, d->width - k);
      const float *fn = d->fn + k, *ahead = fn + kAhead;
      int64_t stride = d->width;
      if (d->rows >=
          2 * kTile) {  // fn's rows are often a power of two apart and would share a few sets of the cache
        for (int o = 0; o < d->outputs; o++)
          for (int64_t c = 0; c < n; c += kLanes)
            store(packed + o * kChannels + c, load<f32<W>>(fn + o * stride + c));
        ahead = fn + kChannels, fn = packed, stride = kChannels;
      }
      for (int r = 0; r < d->rows; r += kTile) {
        const int rows = std::min(kTile, d->rows - r);
        for (int i = 0; i < rows; i++) {
          const uint16_t *h = d->h + (r + i) * d->width + k;
          for (int64_t c = 0; c < n; c += kBlock) {
            __builtin_prefetch(h + kChannels + c);  // rows lie too far apart for the machine's own guess
            const auto a = load_bf16<W>(h + c), b = load_bf16<W>(h + c + kLanes);
            store(x + i * kChannels + c, a);
            store(x + i * kChannels + c + kLanes, b);
            squares[r + i].add(a, b);
          }
        }
        if (rows == kTile) {
          products<W, kTile, W == 16 ? 6 : 3>(x, fn, stride, n, d->outputs, sums + r, ahead, d->width);
        } else {
          for (int i = 0; i < rows; i++)
            products<W, 1, 3>(x + i * kChannels, fn, stride, n, d->outputs, sums + r + i, ahead, d->width);
        }
        ahead = nullptr;  // the first rows of all have asked for what comes
      }
    }
    for (int r = 0; r < d->rows; r++) {
      d->squares[r] = sum(squares[r].even + squares[r].odd);
      for (int o = 0; o < d->outputs; o++) d->dot[r][o] = sum(load<f32<W>>(sums[r][o]));
    }
  }

 private:
  static constexpr int kTile = 4;

  template <int W, int R, int F>
  static CED_INLINE void products(const float *x, const float *fn, int64_t stride, int64_t n, int count,
                                  float (*sums)[kOutputs][kLanes], const float *ahead, int64_t apart) {
    int o = 0;
    for (; o + F <= count; o += F)
      tile<W, R, F>(x, fn + o * stride, stride, n, o, sums, ahead ? ahead + o * apart : nullptr, apart);
    for (; o < count; o++)
      tile<W, R, 1>(x, fn + o * stride, stride, n, o, sums, ahead ? ahead + o * apart : nullptr, apart);
  }

  // R rows by F outputs stay in registers: where vectors are narrow, some of the lanes after the others.
  template <int W, int R, int F>
  static CED_INLINE void tile(const float *x, const float *fn, int64_t stride, int64_t n, int o,
                              float (*sums)[kOutputs][kLanes], const float *ahead, int64_t apart) {
    typedef typename f32<W>::V V;
    typedef typename f32<W>::Memory Memory;
    for (int lane = 0; lane < kLanes; lane += W) {
      V total[R][F];
      for (int r = 0; r < R; r++)
        for (int f = 0; f < F; f++) total[r][f] = *reinterpret_cast<const V *>(&sums[r][o + f][lane]);
      for (int64_t k = lane; k < n; k += kLanes) {
        V v[R];
        for (int r = 0; r < R; r++) v[r] = *reinterpret_cast<const V *>(x + r * kChannels + k);
        if (ahead != nullptr && lane == 0)
          for (int f = 0; f < F; f++) __builtin_prefetch(ahead + f * apart + k);
        for (int f = 0; f < F; f++) {
          const V w = *reinterpret_cast<const Memory *>(fn + f * stride + k);
          for (int r = 0; r < R; r++) total[r][f] += v[r] * w;
        }
      }
      for (int r = 0; r < R; r++)
        for (int f = 0; f < F; f++) *reinterpret_cast<V *>(&sums[r][o + f][lane]) = total[r][f];
    }
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
  const auto *streams = at<const uint16_t>(a.h);
  const auto finish = [&](int64_t r, const float *dot, float squares) {
    const float norm = f32_rsqrt(squares / static_cast<float>(width) + a.norm_eps);
    float m[(2 + kMaxStreams) * kMaxStreams];
    for (int64_t o = 0; o < outputs; o++) m[o] = dot[o] * norm;
    mhc_mix_finish(a, m, at<float>(a.pre) + r * n, at<float>(a.post) + r * n, at<float>(a.comb) + r * n * n);
  };
  // A few rows are soon multiplied but fn has to come from memory: several threads each read a part of it.
  const int64_t blocks = (rows + kRows - 1) / kRows;
  const int64_t group = rows <= 4 ? 3 : blocks < ced_stream_threads(s) ? 6 : kOutputs;
  const int64_t groups = (outputs + group - 1) / group;
  const int64_t piece_ns = group * width * std::min<int64_t>(rows, kRows) / 16;
  parallel_for(s, blocks * groups, grain_of(piece_ns), [&](int64_t i, int64_t end, int) {
    for (; i < end; i++) {
      const int64_t r0 = i / groups * kRows, o0 = i % groups * group;
      Dots d;
      d.h = streams + r0 * width, d.fn = at<const float>(a.fn) + o0 * width, d.width = width;
      d.rows = static_cast<int>(std::min<int64_t>(kRows, rows - r0));
      d.outputs = static_cast<int>(std::min(group, outputs - o0));
      vectorised<Dots>(&d);
      for (int r = 0; r < d.rows; r++) {
        if (groups == 1) finish(r0 + r, d.dot[r], d.squares[r]);
        for (int o = 0; groups > 1 && o < d.outputs; o++) *raw(a, r0 + r, o0 + o) = d.dot[r][o];
      }
    }
  });
  if (groups == 1) return;
  parallel_for(s, rows, grain_of(1000 + width / 10), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; r++) {
      float dot[(2 + kMaxStreams) * kMaxStreams];
      for (int64_t o = 0; o < outputs; o++) dot[o] = *raw(a, r, o);
      finish(r, dot, vectorised<RowSquares>(streams + r * width, width));
    }
  });
}

}  // namespace ced
