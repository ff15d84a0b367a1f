#include "kernel/csa2_attend/csa2_attend.h"
#include "kernel/lanes.h"
#include "num/e8m0.h"
#include "num/fp8.h"

namespace ced {

constexpr int kTile = 4;  // heads by keys of a register tile

namespace {

// Sixteen e4m3 codes. Subnormals go through an integer conversion: denormal f32 operands are slow.
CED_INLINE f32x16 decode_e4m3(const u32x16 &code) {
  const u32x16 magnitude = code & 0x7Fu;
  const f32x16 normal = bits_as<f32x16>((magnitude << 20) + (120u << 23));
  const f32x16 small = __builtin_convertvector(bits_as<i32x16>(magnitude), f32x16) * 0x1p-9f;
  const f32x16 v = magnitude < 8u ? small : normal;
  return bits_as<f32x16>(bits_as<u32x16>(v) | ((code & 0x80u) << 24));
}

// Sixteen e2m1 codes: bias 1, one mantissa bit.
CED_INLINE f32x16 decode_e2m1(const u32x16 &code) {
  const u32x16 magnitude = code & 7u;
  const f32x16 normal = bits_as<f32x16>((magnitude << 22) + (126u << 23));
  const f32x16 small = __builtin_convertvector(bits_as<i32x16>(magnitude), f32x16) * 0.5f;
  const f32x16 v = magnitude < 2u ? small : normal;
  return bits_as<f32x16>(bits_as<u32x16>(v) | ((code & 8u) << 28));
}

CED_INLINE void decode_window(const Key &key, int64_t dim, float *out) {
  for (int64_t d = 0; d < dim; d += kLanes) {
    const u32x16 code = __builtin_convertvector(load<u8x16>(key.codes + d), u32x16);
    store(out + d, decode_e4m3(code) * e8m0_to_f32(key.scales[d / 32]));
  }
}

CED_INLINE void decode_global(const Key &key, int64_t dim, float *out) {
  for (int64_t d = 0; d < dim; d += kLanes) {
    const u8x8 pair = load<u8x8>(key.codes + d / 2), low = pair & 15, high = pair >> 4;
    const u8x16 code =
        __builtin_shufflevector(low, high, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    store(out + d, decode_e2m1(__builtin_convertvector(code, u32x16)) * e4m3_to_f32(key.scales[d / 16]));
  }
}

// logits[i][j] = scale * q row i . key j, i < kTile.
CED_INLINE void score_tile(const uint16_t *const *q, const float *const *keys, int64_t dim, float scale,
                           float (*logits)[kTile]) {
  f32x16 sum[kTile][kTile] = {};
  for (int64_t d = 0; d < dim; d += kLanes) {
    f32x16 x[kTile];
    for (int i = 0; i < kTile; i++) x[i] = load_bf16(q[i] + d);
    for (int j = 0; j < kTile; j++) {
      const f32x16 k = load<f32x16>(keys[j] + d);
      for (int i = 0; i < kTile; i++) sum[i][j] += x[i] * k;
    }
  }
  for (int i = 0; i < kTile; i++)
    for (int j = 0; j < kTile; j++) logits[i][j] = sum16(sum[i][j]) * scale;
}

// Logits of one head to BF16 probabilities; updates the head's maximum and denominator, returns the factor that
// carries the old accumulator over. l holds 64 places, the unused ones -inf.
CED_INLINE float soften(float *l, float *top, float *total) {
  f32x16 v[kBlock / kLanes], widest = splat(*top), sum = {};
  for (int i = 0; i < kBlock / kLanes; i++) widest = max16(v[i] = load<f32x16>(l + i * kLanes), widest);
  float next = widest[0];
  for (int i = 1; i < kLanes; i++) next = f32_max(next, widest[i]);
  for (int i = 0; i < kBlock / kLanes; i++) {
    const f32x16 p = exp16(v[i] - next);
    sum += p;
    store(l + i * kLanes, round_bf16(p));
  }
  const float carry = exp16(splat(*top - next))[0];
  *top = next;
  *total = *total * carry + sum16(sum);
  return carry;
}

// acc[i] = acc[i] * carry[i] + p[i] V for kTile heads and 32 channels.
CED_INLINE void mix_tile(const float *const *p, const float *carry, const float *values, int n, int64_t dim,
                         float *const *acc) {
  f32x16 sum[kTile][2] = {};
  for (int j = 0; j < n; j++) {
    const f32x16 v0 = load<f32x16>(values + j * dim), v1 = load<f32x16>(values + j * dim + kLanes);
    for (int i = 0; i < kTile; i++) {
      sum[i][0] += v0 * p[i][j];
      sum[i][1] += v1 * p[i][j];
    }
  }
  for (int i = 0; i < kTile; i++)
    for (int half = 0; half < 2; half++) {
      float *place = acc[i] + half * kLanes;
      store(place, load<f32x16>(place) * carry[i] + sum[i][half]);
    }
}

}  // namespace

CED_MULTIVERSION void csa2_attend_decode(const Key *keys, int n, int64_t dim, float *out) {
  for (int j = 0; j < n; j++) {
    if (keys[j].global) {
      decode_global(keys[j], dim, out + j * dim);
    } else {
      decode_window(keys[j], dim, out + j * dim);
    }
  }
}

// One block of n keys joins the running softmax of heads [begin, end).
CED_MULTIVERSION void csa2_attend_block(const AttendScratch &w, const uint16_t *q, int64_t begin, int64_t end,
                                        int n, int64_t dim, float scale) {
  for (int64_t h = begin; h < end; h += kTile) {
    const int64_t heads = end - h < kTile ? end - h : kTile;
    // A short tile repeats its last head or key; the repeated results are dropped.
    const uint16_t *rows[kTile];
    for (int64_t i = 0; i < kTile; i++) rows[i] = q + (h + (i < heads ? i : heads - 1)) * dim;
    float l[kTile][kBlock];
    for (int j = 0; j < n; j += kTile) {
      const float *keys[kTile];
      for (int i = 0; i < kTile; i++) keys[i] = w.keys + (j + i < n ? j + i : n - 1) * dim;
      float tile[kTile][kTile];
      score_tile(rows, keys, dim, scale, tile);
      for (int i = 0; i < kTile; i++) memcpy(&l[i][j], tile[i], sizeof tile[i]);
    }
    float carry[kTile];
    const float *p[kTile];
    for (int64_t i = 0; i < heads; i++) {
      for (int j = n; j < kBlock; j++) l[i][j] = -INFINITY;
      carry[i] = soften(l[i], w.top + h + i, w.total + h + i);
    }
    float spill[32] = {};
    for (int64_t d = 0; d < dim; d += 32) {
      float *acc[kTile];
      for (int64_t i = 0; i < kTile; i++) {
        const bool used = i < heads;
        acc[i] = used ? w.acc + (h + i) * dim + d : spill;
        p[i] = l[used ? i : 0];
        if (!used) carry[i] = 0;
      }
      mix_tile(p, carry, w.keys + d, n, dim, acc);
    }
  }
}

CED_MULTIVERSION void csa2_attend_finish(const float *acc, float total, int64_t dim, uint16_t *o) {
  for (int64_t d = 0; d < dim; d += kLanes) store_bf16(o + d, load<f32x16>(acc + d) / total);
}

void csa2_attend_cpu(ced_stream *s, const ced_csa2_attend_args &a) {
  const int64_t rows = row_count(a.rows), heads = a.heads, dim = a.head_dim;
  const float scale = attend_scale(a);
  // Few rows are split by heads; every part dequantises the row's keys again, so parts stay large.
  const int64_t wanted = 2 * ced_stream_threads(s), parts_wanted = rows > 0 ? (wanted + rows - 1) / rows : 1;
  int64_t part = (heads + parts_wanted - 1) / parts_wanted;
  part = std::min(std::max<int64_t>((part + kTile - 1) / kTile * kTile, 8), heads);
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
        csa2_attend_decode(keys, n, dim, w.keys);
        csa2_attend_block(w, at<const uint16_t>(a.q) + r * heads * dim, begin, end, n, dim, scale);
      }
      for (int64_t h = begin; h < end; h++) {
        const float sink = weight_at(a.sink, CED_F32, static_cast<size_t>(h));
        const float total = w.total[h] + f32_exp(sink - w.top[h]);
        csa2_attend_finish(w.acc + h * dim, total, dim, at<uint16_t>(a.o) + (r * heads + h) * dim);
      }
    }
  });
}

}  // namespace ced
