#include "kernel/csa2_attend/csa2_attend.h"
#include "kernel/lanes.h"
#include "num/e8m0.h"
#include "num/fp8.h"

namespace ced {

namespace {

// Sixteen e4m3 codes. Subnormals go through an integer conversion: denormal f32 operands are slow.
template <int W>
CED_INLINE f32<W> decode_e4m3(const u32<W> &code) {
  const u32<W> magnitude = code & 0x7Fu;
  const f32<W> normal = bits_as<float>((magnitude << 20) + (120u << 23));
  const f32<W> small = to_f32(bits_as<int32_t>(magnitude)) * 0x1p-9f;
  const f32<W> v = where_less(magnitude, u32<W>::of(8u), small, normal);
  return bits_as<float>(bits_as<uint32_t>(v) | ((code & 0x80u) << 24));
}

// Sixteen e2m1 codes: bias 1, one mantissa bit.
template <int W>
CED_INLINE f32<W> decode_e2m1(const u32<W> &code) {
  const u32<W> magnitude = code & 7u;
  const f32<W> normal = bits_as<float>((magnitude << 22) + (126u << 23));
  const f32<W> small = to_f32(bits_as<int32_t>(magnitude)) * 0.5f;
  const f32<W> v = where_less(magnitude, u32<W>::of(2u), small, normal);
  return bits_as<float>(bits_as<uint32_t>(v) | ((code & 8u) << 28));
}

template <int W>
CED_INLINE void decode_window(const Key &key, int64_t dim, float *out) {
  for (int64_t d = 0; d < dim; d += kLanes)
    store(out + d, decode_e4m3(widen<W, uint8_t>(key.codes + d)) * e8m0_to_f32(key.scales[d / 32]));
}

template <int W>
CED_INLINE void decode_global(const Key &key, int64_t dim, float *out) {
  typedef uint8_t U8 __attribute__((vector_size(8)));
  for (int64_t d = 0; d < dim; d += kLanes) {
    U8 pair;
    memcpy(&pair, key.codes + d / 2, sizeof pair);
    const U8 low = pair & 15, high = pair >> 4;
    const auto both =
        __builtin_shufflevector(low, high, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    uint8_t code[kLanes];
    memcpy(code, &both, sizeof both);
    store(out + d, decode_e2m1(widen<W, uint8_t>(code)) * e4m3_to_f32(key.scales[d / 16]));
  }
}

struct Decode {
  template <int W>
  static CED_INLINE void run(const Key *keys, int n, int64_t dim, float *out) {
    for (int j = 0; j < n; j++) {
      if (keys[j].global) {
        decode_global<W>(keys[j], dim, out + j * dim);
      } else {
        decode_window<W>(keys[j], dim, out + j * dim);
      }
    }
  }
};

// l[i][j] = scale * q row i . key j for S heads and keys.
template <int W, int S>
CED_INLINE void score_tile(const uint16_t *const *q, const float *const *keys, int64_t dim, float scale,
                           float *const *l) {
  f32<W> total[S][S] = {};
  for (int64_t d = 0; d < dim; d += kLanes) {
    f32<W> x[S];
    for (int i = 0; i < S; i++) x[i] = load_bf16<W>(q[i] + d);
    for (int j = 0; j < S; j++) {
      const auto k = load<f32<W>>(keys[j] + d);
      for (int i = 0; i < S; i++) total[i][j] += x[i] * k;
    }
  }
  for (int i = 0; i < S; i++)
    for (int j = 0; j < S; j++) l[i][j] = sum(total[i][j]) * scale;
}

// Logits of one head to BF16 probabilities; updates the head's maximum and denominator, returns the factor that
// carries the old accumulator over. l holds 64 places, the unused ones -inf.
template <int W>
CED_INLINE float soften(float *l, float *top, float *total) {
  f32<W> v[kBlock / kLanes], widest = f32<W>::of(*top), all = {};
  for (int i = 0; i < kBlock / kLanes; i++) {
    v[i] = load<f32<W>>(l + i * kLanes);
    widest = larger(v[i], widest);
  }
  const float next = largest(widest);
  for (int i = 0; i < kBlock / kLanes; i++) {
    const f32<W> p = exp_negative(v[i] - next);
    all += p;
    store(l + i * kLanes, round_bf16(p));
  }
  float carry[kLanes];
  store(carry, exp_negative(f32<W>::of(*top - next)));
  *top = next;
  *total = *total * carry[0] + sum(all);
  return carry[0];
}

// acc[i] = acc[i] * carry[i] + p[i] V for S heads and 32 channels.
template <int W, int S>
CED_INLINE void mix_tile(const float *const *p, const float *carry, const float *values, int n, int64_t dim,
                         float *const *acc) {
  f32<W> total[S][2] = {};
  for (int j = 0; j < n; j++) {
    const auto v0 = load<f32<W>>(values + j * dim), v1 = load<f32<W>>(values + j * dim + kLanes);
    for (int i = 0; i < S; i++) {
      total[i][0] += v0 * p[i][j];
      total[i][1] += v1 * p[i][j];
    }
  }
  for (int i = 0; i < S; i++)
    for (int half = 0; half < 2; half++) {
      float *place = acc[i] + half * kLanes;
      store(place, load<f32<W>>(place) * carry[i] + total[i][half]);
    }
}

// One block of n keys joins the running softmax of heads [begin, end).
struct AttendBlock {
  template <int W>
  static CED_INLINE void run(AttendScratch w, const uint16_t *q, int64_t begin, int64_t end, int n,
                             int64_t dim, float scale) {
    constexpr int S = kRegisterTile<W>;
    for (int64_t h = begin; h < end; h += S) {
      const int64_t heads = end - h < S ? end - h : S;
      // A short tile repeats its last head or key; the repeated results are dropped.
      const uint16_t *rows[S];
      float logits[S][kBlock], *l[S], carry[S] = {};
      for (int64_t i = 0; i < S; i++) rows[i] = q + (h + (i < heads ? i : heads - 1)) * dim;
      for (int j = 0; j < n; j += S) {
        const float *keys[S];
        for (int i = 0; i < S; i++)
          keys[i] = w.keys + (j + i < n ? j + i : n - 1) * dim, l[i] = &logits[i][j];
        score_tile<W, S>(rows, keys, dim, scale, l);
      }
      for (int64_t i = 0; i < S; i++) {
        l[i] = logits[i];
        for (int j = n; j < kBlock; j++) l[i][j] = -INFINITY;
        if (i < heads) carry[i] = soften<W>(l[i], w.top + h + i, w.total + h + i);
      }
      for (int64_t d = 0; d < dim; d += 32) {
        float spare[32] = {}, *acc[S];
        for (int64_t i = 0; i < S; i++) acc[i] = i < heads ? w.acc + (h + i) * dim + d : spare;
        mix_tile<W, S>(l, carry, w.keys + d, n, dim, acc);
      }
    }
  }
};

struct Finish {
  template <int W>
  static CED_INLINE void run(const float *acc, float total, int64_t dim, uint16_t *o) {
    for (int64_t d = 0; d < dim; d += kLanes) store_bf16(o + d, load<f32<W>>(acc + d) / total);
  }
};

}  // namespace

void csa2_attend_cpu(ced_stream *s, const ced_csa2_attend_args &a) {
  const int64_t rows = row_count(a.rows), heads = a.heads, dim = a.head_dim;
  const float scale = attend_scale(a);
  // Few rows are split by heads; every part dequantises the row's keys again, so parts stay large.
  const int64_t wanted = 2 * ced_stream_threads(s), parts_wanted = rows > 0 ? (wanted + rows - 1) / rows : 1;
  int64_t part = (heads + parts_wanted - 1) / parts_wanted;
  part = std::min(std::max<int64_t>((part + 3) / 4 * 4, 8), heads);
  const int64_t parts = (heads + part - 1) / part;
  parallel_for(s, rows * parts, 1, [&](int64_t first, int64_t last, int worker) {
    const AttendScratch w(a, worker);
    for (int64_t item = first; item < last; item++) {
      const int64_t r = item / parts, begin = item % parts * part, end = std::min(begin + part, heads);
      const KeyList list(a, r);
      std::fill(w.acc + begin * dim, w.acc + end * dim, 0.0f);
      std::fill(w.total + begin, w.total + end, 0.0f);
      std::fill(w.top + begin, w.top + end, kNoKeyYet);
      for (int b = 0; b < list.blocks(); b++) {
        Key keys[kBlock];
        const int n = list.block(b, keys);
        if (n == 0) continue;
        vectorised<Decode>(keys, n, dim, w.keys);
        vectorised<AttendBlock>(w, at<const uint16_t>(a.q) + r * heads * dim, begin, end, n, dim, scale);
      }
      for (int64_t h = begin; h < end; h++) {
        const float sink = weight_at(a.sink, CED_F32, static_cast<size_t>(h));
        const float total = w.total[h] + f32_exp(sink - w.top[h]);
        vectorised<Finish>(w.acc + h * dim, total, dim, at<uint16_t>(a.o) + (r * heads + h) * dim);
      }
    }
  });
}

}  // namespace ced
