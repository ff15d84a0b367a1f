#include <numeric>

#include "kernel/csa2_index/csa2_index.h"
#include "kernel/lanes.h"
#include "num/quant.h"

namespace ced {
namespace {

constexpr uint32_t kRowsTogether = 32;  // rows of a step that are scored together
constexpr int kChunk = 256;             // keys of a work item, of a row at least
constexpr uint64_t kRowSpan = 8192, kLeastSpan = 65536;
constexpr int kMostHeadTiles = static_cast<int>(kMaxIndexHeads) / kIndexHeads;

// A rotated head's doubled FP4 values, and the scales of its blocks, 0 for a block of zeros. Compiled for wide vectors.
struct Quantise {
  template <int W>
  static CED_INLINE void run(const uint16_t *q, int dim, int pairs, const float *cosine, const float *sine,
                             int8_t *twice, uint8_t *scales) {
    float x[kMaxIndexDim];
    load_row(q, dim, x);
    rotate_pairs(x + dim - 2 * pairs, pairs, cosine, sine);
    for (int b = 0; b < dim / 32; b++, twice += 32) {
      uint8_t codes[32];
      fp4_quant_e8m0(x + 32 * b, codes, scales + b);
      int any = 0;
      for (int i = 0; i < 32; i++) {
        const int m = codes[i] & 7, v = m + (m > 4 ? m - 4 : 0) + (m > 6 ? 2 : 0);  // 0 1 2 3 4 6 8 12
        any |= m;
        twice[i] = static_cast<int8_t>(codes[i] > 7 ? -v : v);
      }
      if (any == 0) scales[b] = 0;
    }
  }
};

// The even bytes of eight.
inline uint32_t even_bytes(uint64_t x) {
  x &= 0x00FF00FF00FF00FF;
  x = (x | x >> 8) & 0x0000FFFF0000FFFF;
  return static_cast<uint32_t>(x | x >> 16);
}

// A block's channels as words, kIndexHeads words apart, times 2^fold.
inline void put_words(const int8_t *twice, int fold, int8_t *words) {
  for (int i = 0; i < 4; i++) {
    int8_t folded[8];
    for (int c = 0; c < 8; c++) folded[c] = static_cast<int8_t>(twice[8 * i + c] * (1 << fold));
    uint64_t all;
    memcpy(&all, folded, 8);
    const uint32_t even = even_bytes(all), odd = even_bytes(all >> 8);
    memcpy(words + 2 * i * kIndexHeads * 4, &even, 4);
    memcpy(words + (2 * i + 1) * kIndexHeads * 4, &odd, 4);
  }
}

// The workspace: queries and lists of the best of a tile of rows, then scores of a span of groups, shared by as many
// rows as there are.
class Scratch {
 public:
  explicit Scratch(const ced_csa2_index_args &a)
      : rows_(std::max(std::min(a.max_rows, kRowsTogether), 1u)),
        block_(a.block),
        base_(a.workspace),
        heads((a.heads + uint64_t{kIndexHeads - 1}) / kIndexHeads * kIndexHeads),
        dim(a.kv.index_dim),
        best(std::min(a.top_k, a.max_groups)),
        blocks(a.publish ? std::min(a.max_blocks, a.max_groups / a.block + 1) : 0) {
    query_bytes_ = aligned(heads * (2 * dim + dim / 32 * 8 + 12));
    best_bytes_ = aligned(Best::bytes(best));
    block_bytes_ = blocks > 0 ? aligned(Best::bytes(blocks)) : 0;
    const uint64_t all = padded(a.max_groups + uint64_t{a.block} + kTileKeys);
    scores_ = std::min(rows_ * all, std::max(rows_ * padded(kRowSpan + a.block), kLeastSpan + a.block));
  }

  uint64_t bytes() const { return rows_ * row_bytes() + aligned(scores_ * sizeof(Score)); }

  IndexQuery query(int t) const {
    const uint64_t words = at_row(t), offset = words + 2 * heads * dim;
    const uint64_t scales = offset + heads * (dim / 32) * 4, w = scales + heads * (dim / 32) * 4;
    return {at<int8_t>(words),
            at<int32_t>(offset),
            at<float>(scales),
            at<float>(w),
            at<int8_t>(words + heads * dim),
            at<int32_t>(w + heads * 4),
            at<float>(w + heads * 8),
            false};
  }
  void *best_of(int t) const { return at<void>(at_row(t) + query_bytes_); }
  void *blocks_of(int t) const { return at<void>(at_row(t) + query_bytes_ + best_bytes_); }

  // With `rows` rows: scores of a row, and how many from one row's to the next.
  int64_t span(int rows) const {
    const int64_t n = stride(rows) - kTileKeys;
    return blocks > 0 ? n / block_ * block_ : n;
  }
  int64_t stride(int rows) const { return static_cast<int64_t>(scores_) / rows / kTileKeys * kTileKeys; }
  Score *scores(int t, int rows) const { return at<Score>(base_ + rows_ * row_bytes()) + t * stride(rows); }

 private:
  static uint64_t aligned(uint64_t bytes) { return (bytes + 63) / 64 * 64; }
  static uint64_t padded(uint64_t keys) { return (keys + kTileKeys - 1) / kTileKeys * kTileKeys; }
  uint64_t row_bytes() const { return query_bytes_ + best_bytes_ + block_bytes_; }
  uint64_t at_row(int t) const { return base_ + static_cast<uint64_t>(t) * row_bytes(); }

  uint64_t rows_, block_, base_, query_bytes_, best_bytes_, block_bytes_, scores_;

 public:
  const uint64_t heads, dim, best, blocks;  // padded heads, channels, lengths of the lists
};

// Rows of one tile and what has to be done for each. Scores are those of positions 0 .. scored-1, which are the groups
// of an unrestricted row and the candidates of a restricted one.
class Tile {
 public:
  Tile(const ced_csa2_index_args &args, const ScoreOps &ops) : a(args), ops_(ops), scratch_(args) {}

  int rows() const { return rows_; }

  void open(int64_t from, int n) {
    first_ = from, rows_ = n;
    const auto &all = *at<const ced_rows>(a.rows);
    for (int t = 0; t < n; t++) {
      slot_[t] = at<const int32_t>(all.slot)[from + t];
      seen_[t] = index_seen(a, from + t);
      const bool everything = seen_[t] <= static_cast<int32_t>(a.top_k) && a.scores == 0;
      const bool all_blocks = !a.publish || seen_[t] <= static_cast<int64_t>(a.max_blocks) * a.block;
      scored_[t] = everything && all_blocks ? 0 : seen_[t];
      if (a.restrict_ && scored_[t] > 0) {
        const int listed = index_blocks(a, from + t, seen_[t], &blocks_[t]),
                  block = static_cast<int>(a.block);
        scored_[t] = listed == 0
                         ? 0
                         : (listed - 1) * block + std::min(block, seen_[t] - blocks_[t][listed - 1] * block);
      }
      query_[t] = scratch_.query(t);
      best_[t].open(scratch_.best_of(t), static_cast<int>(scratch_.best), a.restrict_ ? kMasked : -1);
      if (a.publish) best_blocks_[t].open(scratch_.blocks_of(t), static_cast<int>(scratch_.blocks), kMasked);
    }
    // Runs of rows of one sequence share their keys; restricted rows have keys of their own.
    runs_ = 0;
    for (int t = 0; t < n; t++) {
      const bool joins = runs_ > 0 && !a.restrict_ && slot_[run_[runs_ - 1].t0] == slot_[t];
      if (!joins) run_[runs_++] = {t, t, 0, 0};
      run_[runs_ - 1].t1 = t + 1;
      run_[runs_ - 1].keys = std::max(run_[runs_ - 1].keys, scored_[t]);
    }
  }

  void process(ced_stream *s) {
    const int head_tiles = static_cast<int>(scratch_.heads) / kIndexHeads;
    parallel_for(s, rows_ * head_tiles, 8, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; i++)
        prepare(static_cast<int>(i / head_tiles), static_cast<int>(i % head_tiles));
    });
    for (int t = 0; t < rows_; t++)
      query_[t].folds =
          ops_.folds && std::all_of(folds_[t], folds_[t] + head_tiles, [](bool f) { return f; });
    const auto most = *std::max_element(scored_, scored_ + rows_);
    const int64_t span = scratch_.span(rows_);
    int64_t from = 0;
    do {
      score_span(s, static_cast<int>(from), static_cast<int>(std::min<int64_t>(span, most - from)));
      from += span;
      parallel_for(s, rows_, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t t = begin; t < end; t++) {
          take(static_cast<int>(t), static_cast<int>(from - span), static_cast<int>(span));
          if (from >= most) finish(static_cast<int>(t));
        }
      });
    } while (from < most);
  }

 private:
  struct Run {
    int t0, t1, keys, first_chunk;
  };

  // The group whose score is the i-th of row t.
  int32_t group(int t, int i) const {
    const int block = static_cast<int>(a.block);
    return a.restrict_ ? blocks_[t][i / block] * block + i % block : i;
  }

  // Rotates and quantises eight heads of row t's query.
  void prepare(int t, int tile) {
    folds_[t][tile] = true;
    if (scored_[t] == 0) return;
    const int dim = static_cast<int>(scratch_.dim), blocks = dim / 32,
              pairs = static_cast<int>(a.rope_dim) / 2;
    const int64_t r = first_ + t;
    const IndexQuery &q = query_[t];
    float angles[kMaxIndexDim];
    const float *rotation = angles;
    rope_angles(at<const float>(a.freqs), pairs, at<const int32_t>(at<const ced_rows>(a.rows)->pos)[r],
                angles, angles + pairs);
    for (int i = 0; i < kIndexHeads; i++) {
      const int h = tile * kIndexHeads + i;
      float w = 0;
      int8_t twice[kMaxIndexDim] = {};
      uint8_t scales[kMaxIndexDim / 32] = {};
      if (h < static_cast<int>(a.heads)) {
        const auto *head = at<const uint16_t>(a.q) + (r * a.heads + h) * dim;
        vectorised<Quantise>(head, dim, pairs, rotation, rotation + pairs, static_cast<int8_t *>(twice),
                             static_cast<uint8_t *>(scales));
        w = bf16_round(bf16_to_f32(at<const uint16_t>(a.w)[r * a.heads + h]) * a.scale);
      }
      int low = 255, high = 0;  // of blocks that are not zero
      for (int b = 0; b < blocks; b++)
        if (scales[b] != 0) low = std::min<int>(low, scales[b]), high = std::max<int>(high, scales[b]);
      const float base = high == 0 ? 0 : e8m0_to_f32(static_cast<uint8_t>(low)) * 0.25f, fold_w = w * base;
      folds_[t][tile] &=
          high == 0 || (high - low <= kMaxFold && moderate(base) && (w == 0 || moderate(fold_w)));
      int total = 0;
      for (int b = 0; b < blocks; b++) {
        const int fold = scales[b] == 0 ? 0 : std::min(scales[b] - low, kMaxFold);
        const int64_t place = (((tile * blocks + b) * kBlockWords) * kIndexHeads + i) * 4;
        put_words(twice + 32 * b, 0, q.words + place);
        put_words(twice + 32 * b, fold, q.folded + place);
        const int sum = std::accumulate(twice + 32 * b, twice + 32 * (b + 1), 0);
        q.offset[h * blocks + b] = -kKeyOffset * sum;
        q.scales[h * blocks + b] = scales[b] == 0 ? 0 : e8m0_to_f32(scales[b]) * 0.25f;
        total += sum * (1 << fold);
      }
      q.w[h] = w;
      q.fold_offset[h] = -kFoldOffset * total;
      q.fold_w[h] = fold_w;
    }
  }

  static bool moderate(float x) { return std::fabs(x) >= 0x1p-60f && std::fabs(x) <= 0x1p60f; }

  // Scores positions [from, from+n) of all rows.
  void score_span(ced_stream *s, int from, int n) {
    int chunks = 0;
    for (int i = 0; i < runs_; i++) {
      run_[i].first_chunk = chunks;
      chunks += (std::max(std::min(run_[i].keys - from, n), 0) + kChunk - 1) / kChunk;
    }
    const int64_t products =
        int64_t{kChunk} * run_[0].t1 * static_cast<int64_t>(scratch_.heads * scratch_.dim);
    parallel_for(s, chunks, (1 << 20) / products + 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t c = begin; c < end; c++) {
        const Run *run = run_ + runs_ - 1;
        while (run->first_chunk > c) run--;
        const int i = from + static_cast<int>(c - run->first_chunk) * kChunk;
        score(*run, from, i, std::min({i + kChunk, from + n, run->keys}));
      }
    });
  }

  // The keys of positions [i, end) of row t, at most a tile's; places past the end repeat the last one.
  void locate(int t, int i, int end, IndexKey *keys) const {
    const auto codes = static_cast<size_t>(scratch_.dim / 2), scales = static_cast<size_t>(scratch_.dim / 32);
    int l = 0;
    for (const int n = std::min(end - i, kTileKeys); l < n;) {
      const int32_t j = group(t, i + l);
      const KvRow row = kv_row(a.kv, slot_[t], j);
      int run =
          static_cast<int>(a.kv.page_rows - static_cast<uint32_t>(j) % a.kv.page_rows);  // of neighbours
      if (a.restrict_) run = std::min(run, static_cast<int>(a.block) - (i + l) % static_cast<int>(a.block));
      run = std::min(run, n - l);
      for (int r = 0; r < run; r++)
        keys[l + r] = {row.index_codes + r * codes, row.index_scales + r * scales};
      l += run;
    }
    for (; l < kTileKeys; l++) keys[l] = keys[l - 1];
  }

  // Scores [begin, end) of a run's rows, whose buffers start at `from`.
  void score(const Run &run, int from, int begin, int end) const {
    const int dim = static_cast<int>(scratch_.dim);
    KeyTile tile;
    IndexKey keys[kTileKeys], next[kTileKeys];
    locate(run.t0, begin, end, next);
    for (int i = begin; i < end; i += kTileKeys) {
      std::copy(next, next + kTileKeys, keys);
      if (i + kTileKeys < end) locate(run.t0, i + kTileKeys, end, next);
      for (const IndexKey &key : next) {
        __builtin_prefetch(key.codes);
        __builtin_prefetch(key.scales);
      }
      bool words = false, folded = false;
      for (int t = run.t0; t < run.t1; t++) (query_[t].folds ? folded : words) |= scored_[t] > i;
      ops_.decode(keys, dim, words, folded, &tile);
      for (int t = run.t0; t < run.t1; t++)
        if (scored_[t] > i)
          ops_.score(tile, query_[t], static_cast<int>(scratch_.heads), dim,
                     scratch_.scores(t, rows_) + (i - from));
    }
  }

  // Picks from the scores of the n positions after `from`.
  void take(int t, int from, int n) {
    const int64_t r = first_ + t;
    const Score *scores = scratch_.scores(t, rows_);
    n = std::max(std::min(scored_[t] - from, n), 0);
    best_[t].add(scores, n, from);
    if (a.publish) {
      const int block = static_cast<int>(a.block), newest = (scored_[t] - 1) / block;
      const bool last = n > 0 && from + n == scored_[t];
      add_blocks(scores, last ? newest * block - from : n, block, from / block, &best_blocks_[t]);
      if (last) best_blocks_[t].add(kForced, newest);
    }
    if (a.scores == 0) return;
    float *out = at<float>(a.scores) + r * a.score_stride;
    if (from == 0) std::fill(out, out + a.score_stride, score_value(kMasked));
    for (int i = 0; i < n; i++) {
      const int32_t j = group(t, from + i);
      if (static_cast<uint32_t>(j) < a.score_stride) out[j] = score_value(scores[i]);
    }
  }

  void finish(int t) {
    const int64_t r = first_ + t;
    if (a.publish) {
      const int max_blocks = static_cast<int>(a.max_blocks);
      int32_t *candidates = at<int32_t>(a.candidates) + r * max_blocks;
      if (scored_[t] == 0) {
        for (int b = 0; b < max_blocks; b++)
          candidates[b] = b * static_cast<int64_t>(a.block) < seen_[t] ? b : -1;
      } else {
        const int32_t *kept;
        const int n = best_blocks_[t].finish(&kept);
        std::fill(std::copy(kept, kept + n, candidates), candidates + max_blocks, -1);
      }
    }
    int32_t *sel = at<int32_t>(a.sel) + r * a.top_k;
    const int k = std::min(static_cast<int>(a.top_k), seen_[t]);
    std::fill(sel + k, sel + a.top_k, -1);
    if (k == seen_[t]) {
      for (int j = 0; j < k; j++) sel[j] = j;
      return;
    }
    const int32_t *picked;
    const int n = best_[t].finish(&picked);
    int i = 0, m = 0, spare = k - n;
    // Of a restricted row fewer than k may be left: groups outside follow, lowest first.
    for (int32_t j = 0; spare > 0; j++) {
      const bool candidate = i < n && group(t, picked[i]) == j;
      sel[m++] = j, i += candidate, spare -= !candidate;
    }
    while (i < n) sel[m++] = group(t, picked[i++]);
  }

  const ced_csa2_index_args &a;
  const ScoreOps &ops_;
  const Scratch scratch_;
  int64_t first_ = 0;
  int rows_ = 0, runs_ = 0;
  int32_t slot_[kRowsTogether], seen_[kRowsTogether];
  int scored_[kRowsTogether];             // scores wanted: of all seen groups, of the candidates, or none
  const int32_t *blocks_[kRowsTogether];  // restricted rows
  IndexQuery query_[kRowsTogether];
  bool folds_[kRowsTogether][kMostHeadTiles];
  Best best_[kRowsTogether], best_blocks_[kRowsTogether];
  Run run_[kRowsTogether];
};

}  // namespace

uint64_t csa2_index_cpu_workspace(const ced_csa2_index_args &a) { return Scratch(a).bytes(); }

void csa2_index_cpu(ced_stream *s, const ced_csa2_index_args &a) { csa2_index_on(isa(), s, a); }

void csa2_index_on(Isa isa, ced_stream *s, const ced_csa2_index_args &a) {
  const int64_t rows = row_count(a.rows);
  Tile tile(a, score_ops(isa));
  for (int64_t from = 0; from < rows; from += kRowsTogether) {
    tile.open(from, static_cast<int>(std::min<int64_t>(kRowsTogether, rows - from)));
    tile.process(s);
  }
}

}  // namespace ced
