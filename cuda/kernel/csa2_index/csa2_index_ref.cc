#include "kernel/csa2_index/csa2_index.h"
#include "num/quant.h"

namespace ced {
namespace {

struct Scratch {
  float *q;  // [heads, index_dim]
  Score *scores, *maxima;

  static uint64_t q_bytes(const ced_csa2_index_args &a) {
    return uint64_t{a.heads} * a.kv.index_dim * sizeof(float);
  }
  static uint64_t bytes(const ced_csa2_index_args &a) {
    const uint64_t blocks = a.publish ? a.max_groups / a.block + 1 : 0;
    return q_bytes(a) + (a.max_groups + blocks) * sizeof(Score);
  }
  explicit Scratch(const ced_csa2_index_args &a)
      : q(at<float>(a.workspace)),
        scores(at<Score>(a.workspace + q_bytes(a))),
        maxima(scores + a.max_groups) {}
};

// The head's query as the FP4 values it is scored with.
void quantised_query(const ced_csa2_index_args &a, const uint16_t *q, int32_t pos, float *out) {
  const int dim = static_cast<int>(a.kv.index_dim);
  load_row(q, dim, out);
  rotate(out, dim, static_cast<int>(a.rope_dim), at<const float>(a.freqs), pos);
  for (int b = 0; b < dim; b += 32) {
    uint8_t codes[32], scale;
    fp4_quant_e8m0(out + b, codes, &scale);
    for (int i = 0; i < 32; i++) out[b + i] = bf16_round(e2m1_to_f32(codes[i]) * e8m0_to_f32(scale));
  }
}

void dequantise(const KvRow &row, int dim, float *out) {
  for (int d = 0; d < dim; d++)
    out[d] = e2m1_to_f32(row.index_codes[d / 2] >> (d % 2 * 4)) * e8m0_to_f32(row.index_scales[d / 32]);
}

Score score(const float *q, const float *w, int heads, const float *key, int dim) {
  double total = 0;
  for (int h = 0; h < heads; h++) {
    double dot = 0;
    for (int d = 0; d < dim; d++) dot += static_cast<double>(q[h * dim + d]) * key[d];
    total += bf16_round(f32_max(bf16_round(static_cast<float>(dot)), 0) * w[h]);
  }
  return score_of(f32_to_bf16(static_cast<float>(total)));
}

// Scores outside the row's candidate blocks become -inf.
void mask(const ced_csa2_index_args &a, int64_t r, int32_t seen, Score *scores) {
  const int32_t *blocks;
  const int n = index_blocks(a, r, seen, &blocks);
  int32_t from = 0;
  for (int i = 0; i <= n; i++) {
    const int32_t to = i < n ? blocks[i] * static_cast<int32_t>(a.block) : seen;
    for (int32_t j = from; j < to; j++) scores[j] = kMasked;
    from = to + static_cast<int32_t>(a.block);
  }
}

}  // namespace

uint64_t csa2_index_ref_workspace(const ced_csa2_index_args &a) { return Scratch::bytes(a); }

void csa2_index_ref(ced_stream *, const ced_csa2_index_args &a) {
  const auto &rows = *at<const ced_rows>(a.rows);
  const int heads = static_cast<int>(a.heads), dim = static_cast<int>(a.kv.index_dim);
  const Scratch scratch(a);
  float *q = scratch.q;
  Score *scores = scratch.scores;
  for (int64_t r = 0; r < rows.count; r++) {
    const int32_t seen = index_seen(a, r), slot = at<const int32_t>(rows.slot)[r];
    float w[kMaxIndexHeads], key[kMaxIndexDim];
    for (int h = 0; h < heads; h++) {
      quantised_query(a, at<const uint16_t>(a.q) + (r * heads + h) * dim, at<const int32_t>(rows.pos)[r],
                      q + h * dim);
      w[h] = bf16_round(bf16_to_f32(at<const uint16_t>(a.w)[r * heads + h]) * a.scale);
    }
    for (int32_t j = 0; j < seen; j++) {
      dequantise(kv_row(a.kv, slot, j), dim, key);
      scores[j] = score(q, w, heads, key, dim);
    }
    if (a.publish)
      candidate_blocks(scores, seen, static_cast<int>(a.block), static_cast<int>(a.max_blocks),
                       scratch.maxima, at<int32_t>(a.candidates) + r * a.max_blocks);
    if (a.restrict_) mask(a, r, seen, scores);
    int32_t *sel = at<int32_t>(a.sel) + r * a.top_k;
    const int n = top_k(scores, seen, static_cast<int>(a.top_k), sel);
    std::fill(sel + n, sel + a.top_k, -1);
    if (a.scores == 0) continue;
    float *out = at<float>(a.scores) + r * a.score_stride;
    for (int64_t j = 0; j < a.score_stride; j++) out[j] = score_value(j < seen ? scores[j] : kMasked);
  }
}

}  // namespace ced
