#include <algorithm>

#include "kernel/dense_gemm/tile.h"
#include "kernel/expert_gemm/expert_gemm.h"
#include "kernel/lanes.h"
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
  int64_t active;        // routed experts that have rows

  int64_t row(int64_t assignment) const {
    return assignment < routed ? assignment / a.top_k : assignment - routed;
  }
  float weight(int64_t assignment) const {
    return assignment < routed ? at<const float>(a.weights)[assignment] : 1.0f;
  }
  int64_t shares() const { return active + (a.shared.w1 != 0 ? 1 : 0); }
  Share share(int64_t i) const {
    if (i == active) return Share{&a.shared, CED_FP8, nullptr, rows, routed};
    const int32_t e = at<const int32_t>(work.active)[i], *first = at<const int32_t>(work.first) + e;
    return Share{at<const ced_expert>(a.experts) + e, CED_FP4, at<const int32_t>(work.order) + first[0],
                 first[1] - first[0], 0};
  }
};

// Gate and up of n inner channels to the activation's codes and scales. swiglu with e^x in f32.
struct SwigluQuant {
  template <int W>
  static CED_INLINE void run(const float *gate, const float *up, int n, float limit, float weight,
                             uint8_t *codes, uint8_t *scales) {
    for (int i = 0; i < n; i += 32) {
      float v[32], u[32];
      for (int l = 0; l < 32; l++) {
        const float g = bf16_round(gate[i + l]), x = bf16_round(up[i + l]);
        v[l] = limit > 0 && g > limit ? limit : g;
        u[l] = limit > 0 && x > limit ? limit : limit > 0 && x < -limit ? -limit : x;
      }
      for (int l = 0; l < 32; l += kLanes) {
        const f32<W> g = load<f32<W>>(v + l), zero{}, minus = zero - g;
        const f32<W> e = exp_negative(where_less(g, zero, g, minus));
        const f32<W> silu = where_less(g, zero, g * e, g) / (e + 1.0f);
        store(v + l, silu * load<f32<W>>(u + l) * weight);
      }
      for (int l = 0; l < 32; l++) v[l] = bf16_round(v[l]);
      act_quant32(v, codes + i, scales + i / 32);
    }
  }
};

// A row's routed parts added in order, then the addend and the shared part, if there are such: n elements, into
// rounded or, if that is null, into exact.
struct AddParts {
  template <int W>
  static CED_INLINE void run(const uint16_t *const *parts, int64_t count, const float *addend,
                             const uint16_t *shared, int64_t n, uint16_t *rounded, float *exact) {
    for (int64_t i = 0; i < n; i += 32) {
      float sum[32] = {};
      for (int64_t p = 0; p < count; p++)
        for (int l = 0; l < 32; l++) sum[l] = sum[l] + bf16_to_f32(parts[p][i + l]);
      if (addend != nullptr)
        for (int l = 0; l < 32; l++) sum[l] = sum[l] + addend[i + l];
      if (shared != nullptr)
        for (int l = 0; l < 32; l++) sum[l] = sum[l] + bf16_to_f32(shared[i + l]);
      if (rounded == nullptr)
        for (int l = 0; l < 32; l++) exact[i + l] = sum[l];
      else
        for (int l = 0; l < 32; l++) rounded[i + l] = f32_to_bf16(sum[l]);
    }
  }
};

// Inner channels [n, n + count) of an expert for its rows [begin, begin + rows): gate, up, activation and its codes.
void up(const Context &c, const Share &share, int64_t n, int count, int64_t begin, int rows) {
  const ced_expert &e = *share.expert;
  const int64_t dim = c.a.dim, inter = c.a.inter;
  GemmRow w[kTileWeights], x[kTileRows];
  weight_rows(share.format, at<const uint8_t>(e.w1), at<const uint8_t>(e.w1_scales), c.a.dim, n, count, w);
  weight_rows(share.format, at<const uint8_t>(e.w3), at<const uint8_t>(e.w3_scales), c.a.dim, n, count,
              w + count);
  for (int i = 0; i < rows; i++) {
    const int64_t r = c.row(share.assignment(begin + i));
    x[i] = {at<const uint8_t>(c.a.x) + r * dim, at<const uint8_t>(c.a.x_scales) + r * (dim / 32)};
  }
  alignas(64) GemmSums sums;
  gemm_tile(isa(), CED_FP8, share.format, c.a.dim, w, 2 * count, x, rows, sums);
  for (int i = 0; i < rows; i++) {
    const int64_t assignment = share.assignment(begin + i);
    vectorised<SwigluQuant>(static_cast<const float *>(sums[i]), static_cast<const float *>(sums[i] + count),
                            count, c.a.limit, c.weight(assignment),
                            at<uint8_t>(c.work.codes) + assignment * inter + n,
                            at<uint8_t>(c.work.scales) + (assignment * inter + n) / 32);
  }
}

// Outputs [n, n + count) of an expert for its rows [begin, begin + rows).
void down(const Context &c, const Share &share, int64_t n, int count, int64_t begin, int rows) {
  const ced_expert &e = *share.expert;
  const int64_t dim = c.a.dim, inter = c.a.inter;
  GemmRow w[kTileWeights], x[kTileRows];
  weight_rows(share.format, at<const uint8_t>(e.w2), at<const uint8_t>(e.w2_scales), c.a.inter, n, count, w);
  for (int i = 0; i < rows; i++) {
    const int64_t assignment = share.assignment(begin + i);
    x[i] = {at<const uint8_t>(c.work.codes) + assignment * inter,
            at<const uint8_t>(c.work.scales) + assignment * (inter / 32)};
  }
  alignas(64) GemmSums sums;
  gemm_tile(isa(), CED_FP8, share.format, c.a.inter, w, count, x, rows, sums);
  for (int i = 0; i < rows; i++)
    vectorised<RoundRow>(static_cast<const float *>(sums[i]), count,
                         at<uint16_t>(c.work.out) + share.assignment(begin + i) * dim + n);
}

// Groups the routed assignments that are computed here by expert, keeping their order; returns the number of active experts.
int64_t group(const ced_expert_gemm_args &a, const ExpertWorkspace &work, int64_t routed) {
  const int64_t experts = a.experts_count;
  int32_t *order = at<int32_t>(work.order), *first = at<int32_t>(work.first),
          *active = at<int32_t>(work.active);
  const int32_t *idx = at<const int32_t>(a.idx);
  for (int64_t e = 0; e <= experts; e++) first[e] = 0;
  for (int64_t i = 0; i < routed; i++)
    if (has_expert(a, idx[i])) first[idx[i] + 1]++;
  int64_t n = 0;
  for (int64_t e = 0; e < experts; e++) {
    if (first[e + 1] > 0) active[n++] = static_cast<int32_t>(e);
    first[e + 1] += first[e];
  }
  for (int64_t i = 0; i < routed; i++)
    if (has_expert(a, idx[i])) order[first[idx[i]]++] = static_cast<int32_t>(i);
  for (int64_t e = experts; e > 0; e--) first[e] = first[e - 1];  // the starts again
  first[0] = 0;
  return n;
}

// y of row r from its experts' outputs, in ascending expert id.
void combine(const Context &c, int64_t r) {
  const int64_t dim = c.a.dim, top_k = c.a.top_k;
  const int32_t *idx = at<const int32_t>(c.a.idx) + r * top_k;
  const uint16_t *parts[64];
  int64_t sorted[64], count = 0;
  for (int64_t j = 0; j < top_k; j++) {
    int64_t i = j;
    for (; i > 0 && idx[sorted[i - 1]] > idx[j]; i--) sorted[i] = sorted[i - 1];
    sorted[i] = j;
  }
  const uint16_t *out = at<const uint16_t>(c.work.out);
  for (int64_t j = 0; j < top_k; j++)
    if (has_expert(c.a, idx[sorted[j]])) parts[count++] = out + (r * top_k + sorted[j]) * dim;
  const bool exact = c.a.y_format == CED_F32;
  vectorised<AddParts>(static_cast<const uint16_t *const *>(parts), count,
                       c.a.addend != 0 ? at<const float>(c.a.addend) + r * dim : nullptr,
                       c.a.shared.w1 != 0 ? out + (c.routed + r) * dim : nullptr, dim,
                       exact ? nullptr : at<uint16_t>(c.a.y) + r * dim,
                       exact ? at<float>(c.a.y) + r * dim : nullptr);
}

}  // namespace

void expert_gemm_cpu(ced_stream *s, const ced_expert_gemm_args &a) {
  const int64_t rows = row_count(a.rows);
  if (rows == 0) return;
  const ExpertWorkspace work = expert_workspace(a);
  const Context c{a, work, rows, rows * a.top_k, group(a, work, rows * a.top_k)};
  int32_t *tiles = at<int32_t>(work.tiles);
  tiles[0] = 0;
  for (int64_t i = 0; i < c.shares(); i++) {
    const int64_t count = c.share(i).count, some = tile_rows(count);
    tiles[i + 1] = tiles[i] + static_cast<int32_t>((count + some - 1) / some);
  }
  // Pieces: expert, then weights, then rows, so that a tile's weights stay in the caches for the next rows.
  const auto each = [&](int64_t width, int64_t most, int64_t ns, auto half) {
    const int64_t blocks = (width + most - 1) / most;
    parallel_for(s, tiles[c.shares()] * blocks, grain_of(ns), [&](int64_t piece, int64_t end, int) {
      for (; piece < end; piece++) {
        const int64_t i = std::upper_bound(tiles, tiles + c.shares(), piece / blocks) - tiles - 1;
        const Share share = c.share(i);
        const int64_t many = tiles[i + 1] - tiles[i], q = piece - tiles[i] * blocks,
                      some = tile_rows(share.count);
        const int64_t n = q / many * most, begin = q % many * some;
        half(c, share, n, static_cast<int>(std::min(most, width - n)), begin,
             static_cast<int>(std::min(some, share.count - begin)));
      }
    });
  };
  const int64_t products = kTileWeights * rows * (a.top_k + 1) / std::max(tiles[c.shares()], 1);
  each(a.inter, kTileWeights / 2, products * a.dim / kProductsPerNs, up);
  each(a.dim, kTileWeights, products * a.inter / kProductsPerNs, down);
  parallel_for(s, rows, grain_of(20 + a.dim * (a.top_k + 1) / 16), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; r++) combine(c, r);
  });
}

}  // namespace ced
