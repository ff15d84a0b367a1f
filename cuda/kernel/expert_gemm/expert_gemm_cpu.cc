#include "kernel/dense_gemm/tile.h"
#include "kernel/expert_gemm/expert_gemm.h"
#include "num/quant.h"

namespace ced {
namespace {

// One expert's share of the step: the assignments that use it.
struct Share {
  const ced_expert *expert;
  ced_format format;
  const int32_t *assignments;  // shared expert: null, assignment base + i
  int64_t count, base;

  int64_t assignment(int64_t i) const { return assignments != nullptr ? assignments[i] : base + i; }
};

struct Context {
  const ced_expert_gemm_args &a;
  ExpertWorkspace work;
  int64_t rows, routed;  // routed: first assignment of the shared expert

  int64_t row(int64_t assignment) const {
    return assignment < routed ? assignment / a.top_k : assignment - routed;
  }
  float weight(int64_t assignment) const {
    return assignment < routed ? at<const float>(a.weights)[assignment] : 1.0f;
  }
};

constexpr int64_t kRowsOnce = 32;  // rows whose gate and up are kept on the stack

// Inner channels [n, n + 32) of an expert for its rows: gate, up, activation and their quantisation group.
void up(const Context &c, const Share &share, int64_t n) {
  const ced_expert &e = *share.expert;
  const int64_t dim = c.a.dim, inter = c.a.inter;
  const GemmWeight weights[2] = {{at<const uint8_t>(e.w1), at<const uint8_t>(e.w1_scales), c.a.dim},
                                 {at<const uint8_t>(e.w3), at<const uint8_t>(e.w3_scales), c.a.dim}};
  for (int64_t begin = 0; begin < share.count; begin += kRowsOnce) {
    const int64_t left = share.count - begin, rows = left < kRowsOnce ? left : kRowsOnce;
    const auto row = [&](int64_t i) {
      const int64_t r = c.row(share.assignment(begin + i));
      return GemmRow{at<const uint8_t>(c.a.x) + r * dim, at<const uint8_t>(c.a.x_scales) + r * (dim / 32)};
    };
    float v[2][kRowsOnce][32];  // gate, up
    for (int m = 0; m < 2; m++)
      for (int i0 = 0; i0 < 32; i0 += kTileWeights)
        gemm_tiles(CED_FP8, share.format, weights[m], n + i0, kTileWeights, rows, row,
                   [&](int i, int64_t r, float sum) { v[m][r][i0 + i] = bf16_round(sum); });
    for (int64_t r = 0; r < rows; r++) {
      const int64_t assignment = share.assignment(begin + r);
      for (int i = 0; i < 32; i++)
        v[0][r][i] = swiglu(v[0][r][i], v[1][r][i], c.a.limit, c.weight(assignment));
      act_quant32(v[0][r], at<uint8_t>(c.work.codes) + assignment * inter + n,
                  at<uint8_t>(c.work.scales) + (assignment * inter + n) / 32);
    }
  }
}

// Outputs [n, n + 32) of an expert for its rows.
void down(const Context &c, const Share &share, int64_t n) {
  const ced_expert &e = *share.expert;
  const int64_t dim = c.a.dim, inter = c.a.inter;
  const GemmWeight weight{at<const uint8_t>(e.w2), at<const uint8_t>(e.w2_scales), c.a.inter};
  const auto row = [&](int64_t i) {
    const int64_t assignment = share.assignment(i);
    return GemmRow{at<const uint8_t>(c.work.codes) + assignment * inter,
                   at<const uint8_t>(c.work.scales) + assignment * (inter / 32)};
  };
  for (int i0 = 0; i0 < 32; i0 += kTileWeights)
    gemm_tiles(CED_FP8, share.format, weight, n + i0, kTileWeights, share.count, row,
               [&](int i, int64_t r, float sum) {
                 at<uint16_t>(c.work.out)[share.assignment(r) * dim + n + i0 + i] = f32_to_bf16(sum);
               });
}

// Groups the routed assignments by expert, keeping their order; returns the number of active experts.
int64_t group(const Context &c) {
  const int64_t experts = c.a.experts_count;
  int32_t *order = at<int32_t>(c.work.order), *first = at<int32_t>(c.work.first),
          *active = at<int32_t>(c.work.active);
  const int32_t *idx = at<const int32_t>(c.a.idx);
  for (int64_t e = 0; e <= experts; e++) first[e] = 0;
  for (int64_t i = 0; i < c.routed; i++) first[idx[i] + 1]++;
  int64_t n = 0;
  for (int64_t e = 0; e < experts; e++) {
    if (first[e + 1] > 0) active[n++] = static_cast<int32_t>(e);
    first[e + 1] += first[e];
  }
  for (int64_t i = 0; i < c.routed; i++) order[first[idx[i]]++] = static_cast<int32_t>(i);
  for (int64_t e = experts; e > 0; e--) first[e] = first[e - 1];  // the starts again
  first[0] = 0;
  return n;
}

// y of row r from its experts' outputs, in ascending expert id.
void combine(const Context &c, int64_t r) {
  const int64_t dim = c.a.dim, top_k = c.a.top_k;
  const int32_t *idx = at<const int32_t>(c.a.idx) + r * top_k;
  const uint16_t *parts[65];
  int64_t sorted[64], count = 0;
  for (int64_t j = 0; j < top_k; j++) {
    int64_t i = j;
    for (; i > 0 && idx[sorted[i - 1]] > idx[j]; i--) sorted[i] = sorted[i - 1];
    sorted[i] = j;
  }
  const uint16_t *out = at<const uint16_t>(c.work.out);
  for (int64_t j = 0; j < top_k; j++) parts[count++] = out + (r * top_k + sorted[j]) * dim;
  if (c.a.shared.w1 != 0) parts[count++] = out + (c.routed + r) * dim;
  uint16_t *y = at<uint16_t>(c.a.y) + r * dim;
  for (int64_t d = 0; d < dim; d++) {
    float sum = 0;
    for (int64_t p = 0; p < count; p++) sum = sum + bf16_to_f32(parts[p][d]);
    y[d] = f32_to_bf16(sum);
  }
}

}  // namespace

void expert_gemm_cpu(ced_stream *s, const ced_expert_gemm_args &a) {
  const int64_t rows = row_count(a.rows);
  if (rows == 0) return;
  const Context c{a, expert_workspace(a), rows, rows * a.top_k};
  const int64_t active = group(c), shares = active + (a.shared.w1 != 0 ? 1 : 0);
  const auto share = [&](int64_t i) {
    if (i == active) return Share{&a.shared, CED_FP8, nullptr, rows, c.routed};
    const int32_t e = at<const int32_t>(c.work.active)[i], *first = at<const int32_t>(c.work.first) + e;
    return Share{at<const ced_expert>(a.experts) + e, CED_FP4, at<const int32_t>(c.work.order) + first[0],
                 first[1] - first[0], 0};
  };
  const auto each = [&](int64_t width, auto half) {
    const int64_t blocks = width / 32;
    parallel_for(s, shares * blocks, 1,
                 [&](int64_t piece, int64_t, int) { half(c, share(piece / blocks), piece % blocks * 32); });
  };
  each(a.inter, up);
  each(a.dim, down);
  parallel_for(s, rows, 1, [&](int64_t r, int64_t, int) { combine(c, r); });
}

}  // namespace ced
