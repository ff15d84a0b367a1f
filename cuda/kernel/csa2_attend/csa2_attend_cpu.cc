#include "kernel/csa2_attend/block.h"
#include "kernel/lanes.h"

namespace ced {
namespace {

// Queries of tiles [begin, end) as f32, the channels of a tile's heads interleaved.
struct Pack {
  template <int W>
  static CED_INLINE void run(const uint16_t *q, int64_t heads, int64_t dim, int64_t begin, int64_t end,
                             float *out) {
    for (int64_t t = begin; t < end; t++) {
      for (int64_t i = 0; i < kHeadTile; i++) {
        float *to = out + t * kHeadTile * dim + i * kQueryLanes;
        const int64_t h = t * kHeadTile + i;
        for (int64_t d = 0; d < dim; d += kQueryLanes)
          store(to + d * kHeadTile, h < heads ? load_bf16<W>(q + h * dim + d) : f32<W>{});
      }
    }
  }
};

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

struct Soften {
  template <int W>
  static CED_INLINE void run(const AttendScratch *w, int64_t begin, int64_t end, int n) {
    for (int64_t h = begin; h < end; h++) {
      float *l = w->p + h * kBlock;
      for (int j = n; j < kBlock; j++) l[j] = -INFINITY;
      w->carry[h] = soften<W>(l, w->top + h, w->total + h);
    }
  }
};

struct Finish {
  template <int W>
  static CED_INLINE void run(const float *acc, float total, int64_t dim, uint16_t *o) {
    for (int64_t d = 0; d < dim; d += kLanes) store_bf16(o + d, load<f32<W>>(acc + d) / total);
  }
};

// The query row's heads in tiles [begin, end).
void attend(const BlockOps &ops, const ced_csa2_attend_args &a, const AttendScratch &w, int64_t r,
            int64_t begin, int64_t end) {
  const int64_t heads = a.heads, dim = a.head_dim, tiles = end - begin;
  const int64_t first = begin * kHeadTile, last = std::min(end * kHeadTile, heads), padded = end * kHeadTile;
  const float scale = attend_scale(a);
  vectorised<Pack>(at<const uint16_t>(a.q) + r * heads * dim, heads, dim, begin, end, w.q);
  std::fill(w.acc + first * dim, w.acc + padded * dim, 0.0f);
  std::fill(w.total + first, w.total + padded, 0.0f);
  std::fill(w.top + first, w.top + padded, kNoKeyYet);
  const KeyList list(a, r);
  for (int b = 0; b < list.blocks(); b++) {
    Key keys[kBlock];
    const int n = list.block(b, keys);
    if (n == 0) continue;
    for (int j = 0; j < n; j += kChunk) {
      const int some = std::min(kChunk, n - j);
      float *values = w.keys + j * value_stride(dim);
      ops.values(keys + j, some, n - j - some, dim, values);
      ops.scores(w.q + first * dim, tiles, values, some, dim, scale, w.p + first * kBlock + j);
    }
    vectorised<Soften>(&w, first, padded, n);
    ops.mix(w.p + first * kBlock, w.carry + first, w.keys, n, dim, tiles, w.acc + first * dim);
  }
  for (int64_t h = first; h < last; h++) {
    const float sink = weight_at(a.sink, CED_F32, static_cast<size_t>(h));
    const float total = w.total[h] + f32_exp(sink - w.top[h]);
    vectorised<Finish>(w.acc + h * dim, total, dim, at<uint16_t>(a.o) + (r * heads + h) * dim);
  }
}

}  // namespace

void csa2_attend_cpu(ced_stream *s, const ced_csa2_attend_args &a) { csa2_attend_on(isa(), s, a); }

void csa2_attend_on(Isa isa, ced_stream *s, const ced_csa2_attend_args &a) {
  const int64_t rows = row_count(a.rows);
  if (rows == 0) return;
  const BlockOps &ops = block_ops(isa);
  // Rows are dequantised once for each part of the heads: no more parts than threads need, and no thread is woken for
  // less than some 10 us.
  constexpr int64_t kWorthAThread = 1 << 20;
  const int64_t threads = ced_stream_threads(s),
                tiles = static_cast<int64_t>(AttendScratch::heads(a)) / kHeadTile;
  const int64_t products = 2 * kHeadTile * int64_t{a.head_dim} * (a.window + (a.sel != 0 ? a.top_k : 0));
  const int64_t wanted = rows * tiles * products < 2 * kWorthAThread ? 1 : (threads + rows - 1) / rows;
  const int64_t part = (tiles + wanted - 1) / wanted, parts = (tiles + part - 1) / part;
  const int64_t worth = (kWorthAThread - 1) / (part * products) + 1, share = rows * parts / (4 * threads);
  parallel_for(s, rows * parts, std::max(worth, std::min<int64_t>(share, 8)),
               [&](int64_t first, int64_t last, int worker) {
                 const AttendScratch w(a, worker);
                 for (int64_t i = first; i < last; i++)
                   attend(ops, a, w, i / parts, i % parts * part, std::min((i % parts + 1) * part, tiles));
               });
}

}  // namespace ced
