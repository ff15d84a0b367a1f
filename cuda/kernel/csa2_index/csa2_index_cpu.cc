#include "kernel/csa2_index/csa2_index.h"
#include "kernel/lanes.h"
#include "num/quant.h"

namespace ced {

constexpr int kKeys = kLanes;  // keys scored together, one to an i32 lane
constexpr int kHeadTile = 4;   // heads of a register tile
constexpr int kChunk = 256;    // keys of a work item
constexpr int kPairs = 16;     // channel pairs of a block of 32 channels

// Sixteen decoded keys. A 32-bit word of a key's codes holds channels 8w .. 8w+7; step n of the word puts twice the
// values of channels 8w+n and 8w+4+n into the two halves of the key's lane.
struct KeyTile {
  alignas(64) int16_t pairs[kMaxIndexDim / 2][2 * kKeys];
  alignas(64) float scales[kMaxIndexDim / 32][kKeys];
};

namespace {

// Twice the value of e2m1 codes 0..15: 0 1 2 3 4 6 8 12 and their negatives.
template <int W>
CED_INLINE i16<W> twice_e2m1(const i16<W> &code) {
  typedef i16<W> V;
  const V m = code & int16_t{7}, none = {};
  const V past4 = where_less(V::of(int16_t{4}), m, m - int16_t{4}, none);
  const V past6 = where_less(V::of(int16_t{6}), m, V::of(int16_t{2}), none);
  const V sign = none - (code >> 3);
  return ((m + past4 + past6) ^ sign) - sign;
}

// A pair of channels in every key's lane. One expression from scalar to vector: GCC builds i32<W>::of() by lanes here.
template <int W>
CED_INLINE i16<W> splat_pair(int32_t pair) {
  i16<W> r;
  for (int i = 0; i < 16 / W; i++) r.v[i] = (typename i16<W>::V)(typename i32<W>::V{} + pair);
  return r;
}

struct DecodeKeys {
  template <int W>
  static CED_INLINE void run(const KvRow *rows, int dim, KeyTile *tile) {
    for (int w = 0; w < dim / 8; w++) {
      alignas(64) uint32_t word[kKeys];
      for (int i = 0; i < kKeys; i++) memcpy(&word[i], rows[i].index_codes + 4 * w, 4);
      const auto x = load<i16<W>>(word);
      for (int n = 0; n < 4; n++) store(tile->pairs[4 * w + n], twice_e2m1((x >> (4 * n)) & int16_t{15}));
    }
    for (int b = 0; b < dim / 32; b++)
      for (int i = 0; i < kKeys; i++) tile->scales[b][i] = e8m0_to_f32(rows[i].index_scales[b]);
  }
};

// Scores of one query against the tile. q [heads][dim/2] pairs, q_scales [heads][dim/32] (a quarter of the scale,
// for the doubled values of both sides), w [heads]; heads is a multiple of kHeadTile.
struct ScoreKeys {
  template <int W>
  static CED_INLINE void run(const KeyTile *tile, const int32_t *q, const float *q_scales, const float *w,
                             int heads, int dim, Score *out) {
    f32<W> total = {};
    for (int h = 0; h < heads; h += kHeadTile) {
      f32<W> dot[kHeadTile] = {};
      for (int b = 0; b < dim / 32; b++) {
        i16<W> products[kHeadTile] = {};  // at most 16 of at most 144 in a lane
        for (int p = b * kPairs; p < (b + 1) * kPairs; p++) {
          const auto k = load<i16<W>>(tile->pairs[p]);
          for (int i = 0; i < kHeadTile; i++) products[i] += k * splat_pair<W>(q[(h + i) * (dim / 2) + p]);
        }
        const auto key_scale = load<f32<W>>(tile->scales[b]);
        for (int i = 0; i < kHeadTile; i++) {
          const i32<W> both = bits_as<int32_t>(products[i]), one = ((both << 16) >> 16) + (both >> 16);
          dot[i] += to_f32(one) * q_scales[(h + i) * (dim / 32) + b] * key_scale;
        }
      }
      for (int i = 0; i < kHeadTile; i++)
        total += round_bf16(larger(round_bf16(dot[i]), f32<W>{}) * w[h + i]);
    }
    uint16_t bits[kKeys];
    store_bf16(bits, total);
    for (int i = 0; i < kKeys; i++) out[i] = score_of(bits[i]);
  }
};

// Rows of one tile and what has to be done for each.
struct Tile {
  const ced_csa2_index_args &a;
  const IndexScratch scratch;
  int64_t first = 0;
  int rows = 0;
  int32_t slot[kIndexTile], seen[kIndexTile];
  int scored[kIndexTile];             // scores wanted: of all seen groups, of the candidates, or none
  const int32_t *blocks[kIndexTile];  // restricted rows

  explicit Tile(const ced_csa2_index_args &args) : a(args), scratch(args) {}

  void open(int64_t from, int n) {
    first = from, rows = n;
    const auto &all = *at<const ced_rows>(a.rows);
    for (int t = 0; t < n; t++) {
      slot[t] = at<const int32_t>(all.slot)[from + t];
      seen[t] = index_seen(a, from + t);
      const bool everything = seen[t] <= static_cast<int32_t>(a.top_k) && a.scores == 0;
      const bool all_blocks = !a.publish || seen[t] <= static_cast<int64_t>(a.max_blocks) * a.block;
      scored[t] = everything && all_blocks ? 0 : seen[t];
      if (!a.restrict_ || scored[t] == 0) continue;
      const int blocks_seen = index_blocks(a, from + t, seen[t], &blocks[t]);
      const int block = static_cast<int>(a.block);
      scored[t] = blocks_seen == 0 ? 0
                                   : (blocks_seen - 1) * block +
                                         std::min(block, seen[t] - blocks[t][blocks_seen - 1] * block);
    }
  }

  // The group whose score is the i-th of row t.
  int32_t group(int t, int i) const {
    const int block = static_cast<int>(a.block);
    return a.restrict_ ? blocks[t][i / block] * block + i % block : i;
  }

  // Rotates and quantises the query of row t.
  void prepare(int t) const {
    const int heads = static_cast<int>(a.heads), dim = static_cast<int>(a.kv.index_dim);
    const int64_t r = first + t;
    auto *pairs = scratch.codes<int32_t>(static_cast<uint64_t>(t));
    float *scales = scratch.scales(static_cast<uint64_t>(t), a.kv.index_dim);
    float *w = scratch.weights(static_cast<uint64_t>(t), a.kv.index_dim);
    for (int h = 0; h < static_cast<int>(scratch.heads); h++) {
      float x[kMaxIndexDim] = {};
      w[h] = 0;
      if (h < heads) {
        load_row(at<const uint16_t>(a.q) + (r * heads + h) * dim, dim, x);
        rotate(x, dim, static_cast<int>(a.rope_dim), at<const float>(a.freqs),
               at<const int32_t>(at<const ced_rows>(a.rows)->pos)[r]);
        w[h] = bf16_round(bf16_to_f32(at<const uint16_t>(a.w)[r * heads + h]) * a.scale);
      }
      for (int b = 0; b < dim / 32; b++) {
        uint8_t codes[32], scale;
        fp4_quant_e8m0(x + 32 * b, codes, &scale);
        scales[h * (dim / 32) + b] = e8m0_to_f32(scale) * 0.25f;
        for (int p = 0; p < kPairs; p++) {
          const int low = p / 4 * 8 + p % 4;
          const auto twice = [&](int i) { return static_cast<int32_t>(2 * e2m1_to_f32(codes[i])); };
          pairs[h * (dim / 2) + b * kPairs + p] =
              static_cast<int32_t>((static_cast<uint32_t>(twice(low + 4)) << 16) | (twice(low) & 0xFFFF));
        }
      }
    }
  }

  // Scores [begin, end) of rows t0 .. t1-1, which share their keys.
  void score(int t0, int t1, int begin, int end) const {
    const int dim = static_cast<int>(a.kv.index_dim);
    KeyTile keys;
    for (int i = begin; i < end; i += kKeys) {
      KvRow rows_of[kKeys];
      for (int l = 0; l < kKeys; l++)  // lanes past the end repeat the last key
        rows_of[l] = kv_row(a.kv, slot[t0], group(t0, std::min(i + l, end - 1)));
      vectorised<DecodeKeys>(rows_of, dim, &keys);
      for (int t = t0; t < t1; t++) {
        const auto u = static_cast<uint64_t>(t);
        if (scored[t] <= i) continue;
        vectorised<ScoreKeys>(&keys, scratch.codes<int32_t>(u), scratch.scales(u, a.kv.index_dim),
                              scratch.weights(u, a.kv.index_dim), static_cast<int>(scratch.heads), dim,
                              scratch.scores(u) + i);
      }
    }
  }

  // Selection of a restricted row from its candidates' scores; fewer than top_k: groups outside follow, lowest first.
  int restricted(int t, const Score *scores, int32_t *sel) const {
    const int k = std::min(static_cast<int>(a.top_k), seen[t]);
    const auto finite =
        static_cast<int>(std::count_if(scores, scores + scored[t], [](Score s) { return s != kMasked; }));
    if (finite >= k) {
      top_k(scores, scored[t], k, sel);
      for (int i = 0; i < k; i++) sel[i] = group(t, sel[i]);
      return k;
    }
    int spare = k - finite, n = 0, i = 0;
    for (int32_t j = 0; n < k; j++) {
      const bool listed = i < scored[t] && group(t, i) == j;
      const bool candidate = listed && scores[i] != kMasked;
      i += listed;
      if (!candidate && spare == 0) continue;
      spare -= !candidate;
      sel[n++] = j;
    }
    return n;
  }

  void select(int t) const {
    const int64_t r = first + t;
    const Score *scores = scratch.scores(static_cast<uint64_t>(t));
    const int n = scored[t], block = static_cast<int>(a.block), max_blocks = static_cast<int>(a.max_blocks);
    int32_t *candidates = at<int32_t>(a.candidates) + r * max_blocks;
    if (a.publish && n > 0) {
      candidate_blocks(scores, n, block, max_blocks, scratch.maxima(static_cast<uint64_t>(t)), candidates);
    } else if (a.publish) {
      for (int b = 0; b < max_blocks; b++) candidates[b] = b * static_cast<int64_t>(block) < seen[t] ? b : -1;
    }
    int32_t *sel = at<int32_t>(a.sel) + r * a.top_k;
    const int k = static_cast<int>(a.top_k);
    const int picked = seen[t] <= k  ? top_k(nullptr, seen[t], k, sel)
                       : a.restrict_ ? restricted(t, scores, sel)
                                     : top_k(scores, n, k, sel);
    std::fill(sel + picked, sel + k, -1);
    if (a.scores == 0) return;
    float *out = at<float>(a.scores) + r * a.score_stride;
    std::fill(out, out + a.score_stride, score_value(kMasked));
    for (int i = 0; i < n; i++) {
      const int32_t j = group(t, i);
      if (static_cast<uint32_t>(j) < a.score_stride) out[j] = score_value(scores[i]);
    }
  }
};

}  // namespace

void csa2_index_cpu(ced_stream *s, const ced_csa2_index_args &a) {
  const int64_t rows = row_count(a.rows);
  Tile tile(a);
  for (int64_t from = 0; from < rows; from += kIndexTile) {
    tile.open(from, static_cast<int>(std::min<int64_t>(kIndexTile, rows - from)));
    parallel_for(s, tile.rows, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; t++)
        if (tile.scored[t] > 0) tile.prepare(static_cast<int>(t));
    });
    // Runs of rows of one sequence share their keys; restricted rows have keys of their own.
    struct Run {
      int t0, t1, keys, first_chunk;
    } runs[kIndexTile];
    int n = 0, chunks = 0;
    for (int t = 0; t < tile.rows; t++) {
      const bool joins = n > 0 && !a.restrict_ && tile.slot[runs[n - 1].t0] == tile.slot[t];
      if (!joins) runs[n++] = {t, t, 0, 0};
      runs[n - 1].t1 = t + 1;
      runs[n - 1].keys = std::max(runs[n - 1].keys, tile.scored[t]);
    }
    for (int i = 0; i < n; i++) {
      runs[i].first_chunk = chunks;
      chunks += (runs[i].keys + kChunk - 1) / kChunk;
    }
    parallel_for(s, chunks, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t c = begin; c < end; c++) {
        const Run *run = runs + n - 1;
        while (run->first_chunk > c) run--;
        const int i = static_cast<int>(c - run->first_chunk) * kChunk;
        tile.score(run->t0, run->t1, i, std::min(i + kChunk, run->keys));
      }
    });
    parallel_for(s, tile.rows, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; t++) tile.select(static_cast<int>(t));
    });
  }
}

}  // namespace ced
