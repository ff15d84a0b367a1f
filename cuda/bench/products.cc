// products.cc: the matrix products and the experts.
#include <algorithm>
#include <memory>
#include <set>

#include "bench/rig.h"

namespace ced::bench {
namespace {

uint64_t bytes_of(ced_format f, uint64_t n) {
  return f == CED_FP4 ? n / 2 : f == CED_FP8 ? n : f == CED_BF16 ? 2 * n : 4 * n;
}

Call dense(Rig &r, uint32_t rows, ced_format x, ced_format w, uint32_t n, uint32_t k, uint32_t groups) {
  ced_dense_gemm_args a{};
  const uint64_t width = uint64_t{k} * groups, outputs = uint64_t{n} * groups;
  a.rows = r.rows(rows, kPosition), a.y = r.space(2 * rows * outputs);
  if (x == CED_FP8) {
    a.x = r.fp8s(rows * width), a.x_scales = r.bytes(rows * width / 32, 0x79);
  } else {
    a.x = r.bf16s(rows * width);
  }
  a.max_rows = rows, a.n = n, a.k = k, a.groups = groups;
  a.x_format = x, a.w_format = w, a.y_format = CED_BF16;
  const uint64_t size = bytes_of(w, outputs * k),
                 scales = w == CED_FP8 ? (outputs + 31) / 32 * ((k + 31) / 32) : 0;
  Call c;
  c.weights = size + scales, c.activations = bytes_of(x, rows * width) + 2 * rows * outputs;
  c.flops = 2.0 * rows * static_cast<double>(outputs) * k;
  c.run = [&r, a, size, scales](ced_err *err) mutable {
    a.w = r.weights(size), a.w_scales = scales > 0 ? r.scales(scales) : 0;
    return ced_dense_gemm(r.stream(), &a, err);
  };
  return c;
}

// Expert ids of rows: uniform, or the e-th as often as 1/(e+1).
std::vector<int32_t> choices(Rig &r, uint32_t rows, bool skewed) {
  const Geometry &g = r.g;
  std::vector<double> up_to;
  double sum = 0;
  for (uint32_t e = 0; e < g.experts; e++) up_to.push_back(sum += skewed ? 1.0 / (e + 1) : 1.0);
  std::vector<int32_t> ids;
  for (uint32_t row = 0; row < rows; row++) {
    std::set<int32_t> mine;
    while (mine.size() < g.top_k) {
      const double at = sum * r.random(1 << 30) / (1 << 30);
      const auto e = static_cast<int32_t>(std::upper_bound(up_to.begin(), up_to.end(), at) - up_to.begin());
      if (mine.insert(e).second) ids.push_back(e);
    }
  }
  return ids;
}

ced_expert expert(Rig &r, uint64_t bytes, uint64_t scales) {
  ced_expert e{};
  for (uint64_t *w : {&e.w1, &e.w3, &e.w2}) *w = r.weights(bytes);
  for (uint64_t *w : {&e.w1_scales, &e.w3_scales, &e.w2_scales}) *w = r.scales(scales);
  return e;
}

Call experts(Rig &r, uint32_t rows, bool skewed) {
  const Geometry &g = r.g;
  const uint64_t matrix = uint64_t{g.inter} * g.dim,
                 shared_scales = uint64_t{(g.inter + 31) / 32} * ((g.dim + 31) / 32);
  const std::vector<int32_t> ids = choices(r, rows, skewed);
  ced_expert_gemm_args a{};
  a.rows = r.rows(rows, kPosition), a.x = r.fp8s(uint64_t{rows} * g.dim);
  a.x_scales = r.bytes(uint64_t{rows} * g.dim / 32, 0x79), a.idx = r.put(ids);
  a.weights = r.f32s(ids.size(), 0, 1), a.y = r.space(uint64_t{2} * rows * g.dim);
  a.max_rows = rows, a.experts_count = g.experts, a.top_k = g.top_k, a.dim = g.dim, a.inter = g.inter,
  a.limit = 10;
  a.layout = CED_EXPERTS_PACKED;
  a.workspace = r.space(ced_expert_gemm_workspace(r.stream(), &a));
  uint64_t w2 = 0;
  const uint64_t packed = ced_expert_pack_bytes(g.dim, g.inter, &w2);
  // Tables of other places in turn, so that no cache holds what the last call read.
  struct Set {
    uint64_t table;
    ced_expert shared;
  };
  auto sets = std::make_shared<std::vector<Set>>();
  for (int i = 0; i < 4; i++) {
    std::vector<ced_expert> table;
    for (uint32_t e = 0; e < g.experts; e++) {
      const uint64_t at = r.packed(packed);
      table.push_back({at, 0, 0, 0, at + w2, 0});
    }
    r.weights(97 * matrix / 2 + static_cast<uint64_t>(i) * matrix);  // the next set begins elsewhere
    sets->push_back({r.put(table), expert(r, matrix, shared_scales)});
  }
  const uint64_t distinct = std::set<int32_t>(ids.begin(), ids.end()).size();
  Call c;
  c.weights = distinct * packed + 3 * (matrix + shared_scales);
  c.activations = uint64_t{3} * rows * g.dim;
  c.flops = 2.0 * rows * (g.top_k + 1) * 3 * static_cast<double>(matrix);
  c.run = [&r, a, sets, i = size_t{0}](ced_err *err) mutable {
    const Set &set = (*sets)[i++ % sets->size()];
    a.experts = set.table, a.shared = set.shared;
    return ced_expert_gemm(r.stream(), &a, err);
  };
  return c;
}

}  // namespace

void add_products(std::vector<Case> *all, const Geometry &g, bool quick) {
  const auto add = [&](const char *what, ced_format x, ced_format w, uint32_t n, uint32_t k,
                       uint32_t groups = 1, bool prefill = true) {
    all->push_back({"dense_gemm",
                    std::string(what) + " " + std::to_string(n * groups) + " x " + std::to_string(k),
                    prefill ? all_rows(g, quick) : decode_rows(g, quick),
                    [=](Rig &r, uint32_t rows) { return dense(r, rows, x, w, n, k, groups); }});
  };
  add("wq_a", CED_FP8, CED_FP8, g.q_lora, g.dim);
  add("wq_b", CED_FP8, CED_FP8, g.heads * g.head_dim, g.q_lora);
  add("wkv", CED_FP8, CED_FP8, g.head_dim, g.dim);
  add("wo_a", CED_BF16, CED_FP8, g.o_lora, g.heads * g.head_dim / g.o_groups, g.o_groups);
  add("wo_b", CED_FP8, CED_FP8, g.dim, g.o_groups * g.o_lora);
  add("compressor", CED_BF16, CED_BF16, g.head_dim, g.dim);
  add("indexer wq_b", CED_FP8, CED_FP8, g.index_heads * g.index_dim, g.q_lora);
  add("indexer wk", CED_BF16, CED_BF16, g.index_dim, g.head_dim);
  add("router", CED_BF16, CED_BF16, g.experts, g.dim);
  add("engram wkv", CED_FP8, CED_FP8, g.dim * (g.streams + 1), g.engram_columns * g.engram_dim);
  add("head", CED_BF16, CED_BF16, g.vocab, g.dim, 1, false);

  std::vector<uint32_t> many = all_rows(g, quick);
  all->push_back(
      {"expert_gemm", "uniform", many, [](Rig &r, uint32_t rows) { return experts(r, rows, false); }});
  if (many.size() > 1) many.erase(many.begin());
  all->push_back(
      {"expert_gemm", "skewed", many, [](Rig &r, uint32_t rows) { return experts(r, rows, true); }});
}

}  // namespace ced::bench
