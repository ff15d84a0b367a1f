// rows.cc: the kernels that work on a row at a time.
#include <algorithm>

#include "bench/rig.h"

namespace ced::bench {
namespace {

Call mix(Rig &r, uint32_t rows) {
  const Geometry &g = r.g;
  const uint32_t n = g.streams, outputs = (2 + n) * n;
  const uint64_t size = uint64_t{4} * outputs * n * g.dim;
  ced_mhc_mix_args a{};
  a.rows = r.rows(rows, kPosition), a.h = r.bf16s(uint64_t{rows} * n * g.dim),
  a.base = r.f32s(outputs, -1, 1);
  a.scale = r.f32s(3, 0, 1), a.pre = r.space(4 * rows * n), a.post = r.space(4 * rows * n);
  a.comb = r.space(4 * rows * n * n), a.max_rows = rows, a.dim = g.dim, a.streams = n, a.iters = g.iters;
  a.norm_eps = 1e-20F, a.hc_eps = 1e-6F;
  Call c;
  c.weights = size, c.activations = uint64_t{2} * rows * n * g.dim;
  c.run = [&r, a, size](ced_err *err) mutable {
    a.fn = r.weights(size);
    return ced_mhc_mix(r.stream(), &a, err);
  };
  return c;
}

Call collapse(Rig &r, uint32_t rows) {
  const Geometry &g = r.g;
  ced_mhc_collapse_args a{};
  a.rows = r.rows(rows, kPosition), a.h = r.bf16s(uint64_t{rows} * g.streams * g.dim);
  a.pre = r.f32s(rows * g.streams, 0, 1), a.x = r.space(uint64_t{2} * rows * g.dim);
  a.max_rows = rows, a.dim = g.dim, a.streams = g.streams;
  Call c;
  c.activations = uint64_t{2} * rows * (g.streams + 1) * g.dim;
  c.run = [&r, a](ced_err *err) { return ced_mhc_collapse(r.stream(), &a, err); };
  return c;
}

Call expand(Rig &r, uint32_t rows) {
  const Geometry &g = r.g;
  const uint32_t n = g.streams;
  ced_mhc_expand_args a{};
  a.rows = r.rows(rows, kPosition), a.y = r.bf16s(uint64_t{rows} * g.dim), a.post = r.f32s(rows * n, 0, 1);
  a.comb = r.f32s(rows * n * n, 0, 1 / static_cast<float>(n)), a.h = r.bf16s(uint64_t{rows} * n * g.dim);
  a.max_rows = rows, a.dim = g.dim, a.streams = n;
  Call c;
  c.activations = uint64_t{2} * rows * (2 * n + 1) * g.dim;
  c.run = [&r, a](ced_err *err) { return ced_mhc_expand(r.stream(), &a, err); };
  return c;
}

Call border(Rig &r, uint32_t rows) {
  const Geometry &g = r.g;
  const uint32_t n = g.streams, outputs = (2 + n) * n;
  const uint64_t size = uint64_t{4} * outputs * n * g.dim;
  ced_mhc_border_args a{};
  a.rows = r.rows(rows, kPosition), a.y = r.bf16s(uint64_t{rows} * g.dim);
  a.h = r.bf16s(uint64_t{rows} * n * g.dim), a.post = r.f32s(rows * n, 0, 1);
  a.comb = r.f32s(rows * n * n, 0, 1 / static_cast<float>(n)), a.pre = r.f32s(rows * n, 0, 1);
  a.next = r.space(4 * rows * n), a.base = r.f32s(outputs, -1, 1), a.scale = r.f32s(3, 0, 1);
  a.weight = r.bf16s(g.dim), a.weight_format = CED_BF16, a.x = r.space(uint64_t{2} * rows * g.dim);
  a.codes = r.space(uint64_t{rows} * g.dim), a.scales = r.space(uint64_t{rows} * g.dim / 32);
  a.max_rows = rows, a.dim = g.dim, a.streams = n, a.iters = g.iters, a.norm_eps = 1e-20F, a.hc_eps = 1e-6F;
  Call c;
  c.weights = size, c.activations = uint64_t{rows} * (4 * n + 5) * g.dim;
  c.run = [&r, a, size](ced_err *err) mutable {
    a.fn = r.weights(size);
    return ced_mhc_border(r.stream(), &a, err);
  };
  return c;
}

Call norm(Rig &r, uint32_t rows, uint32_t n) {
  ced_norm_quant_args a{};
  a.rows = r.rows(rows, kPosition), a.x = r.bf16s(uint64_t{rows} * n), a.weight = r.bf16s(n);
  a.weight_format = CED_BF16, a.y = r.space(uint64_t{2} * rows * n), a.codes = r.space(uint64_t{rows} * n);
  a.scales = r.space(uint64_t{rows} * n / 32), a.max_rows = rows, a.n = n, a.eps = 1e-20F;
  Call c;
  c.activations = uint64_t{5} * rows * n;
  c.run = [&r, a](ced_err *err) { return ced_norm_quant(r.stream(), &a, err); };
  return c;
}

Call rope(Rig &r, uint32_t rows) {
  const Geometry &g = r.g;
  ced_rope_args a{};
  a.rows = r.rows(rows, kPosition), a.x = r.bf16s(uint64_t{rows} * g.heads * g.head_dim), a.freqs = r.freqs();
  a.max_rows = rows, a.heads = g.heads, a.dim = g.head_dim, a.rope_dim = g.rope_dim;
  Call c;
  c.activations = uint64_t{4} * rows * g.heads * g.rope_dim;
  c.run = [&r, a](ced_err *err) { return ced_rope(r.stream(), &a, err); };
  return c;
}

Call route(Rig &r, uint32_t rows) {
  const Geometry &g = r.g;
  ced_route_args a{};
  a.rows = r.rows(rows, kPosition), a.logits = r.f32s(uint64_t{rows} * g.experts, -4, 4);
  a.bias = r.f32s(g.experts, 0, 0.1F), a.bias_format = CED_F32, a.idx = r.space(4 * rows * g.top_k);
  a.weights = r.space(4 * rows * g.top_k), a.max_rows = rows, a.experts = g.experts, a.top_k = g.top_k;
  a.normalise = 1, a.temperature = 1, a.route_scale = 1.5F;
  Call c;
  c.activations = uint64_t{4} * rows * (g.experts + 2 * g.top_k);
  c.run = [&r, a](ced_err *err) { return ced_route(r.stream(), &a, err); };
  return c;
}

// Rows of a table that no cache holds, other ones each time.
Call gather(Rig &r, uint32_t rows) {
  const Geometry &g = r.g;
  const uint32_t count = rows * g.engram_columns;
  const auto table_rows = static_cast<uint32_t>(r.arena_bytes() / g.engram_dim);
  std::vector<uint64_t> sets;
  for (int i = 0; i < 16; i++) {
    std::vector<int64_t> ids;
    for (uint32_t j = 0; j < count; j++) ids.push_back(r.random(table_rows));
    sets.push_back(r.put(ids));
  }
  ced_engram_gather_args a{};
  a.rows = r.rows(rows, kPosition), a.table = r.arena(), a.table_rows = table_rows;
  a.table_scales = r.repeat(uint64_t{table_rows} * g.engram_dim / 32, std::vector<uint8_t>(1 << 20, 0x7A));
  a.e = r.space(uint64_t{2} * count * g.engram_dim), a.max_rows = rows, a.cols = g.engram_columns;
  a.dim = g.engram_dim;
  Call c;
  c.weights = uint64_t{count} * (g.engram_dim + g.engram_dim / 32);
  c.activations = uint64_t{count} * (8 + 2 * g.engram_dim);
  c.run = [&r, a, sets, i = size_t{0}](ced_err *err) mutable {
    a.ids = sets[i++ % sets.size()];
    return ced_engram_gather(r.stream(), &a, err);
  };
  return c;
}

Call gate(Rig &r, uint32_t rows) {
  const Geometry &g = r.g;
  const uint32_t n = g.streams;
  ced_engram_gate_args a{};
  a.rows = r.rows(rows, kPosition), a.kv = r.bf16s(uint64_t{rows} * (n + 1) * g.dim);
  a.q_weight = r.bf16s(uint64_t{n} * g.dim), a.k_weight = r.bf16s(uint64_t{n} * g.dim);
  a.h = r.bf16s(uint64_t{rows} * n * g.dim), a.max_rows = rows, a.dim = g.dim, a.streams = n;
  a.weight_format = CED_BF16, a.eps = 1e-20F;
  Call c;
  c.activations = uint64_t{2} * rows * (3 * n + 1) * g.dim;
  c.run = [&r, a](ced_err *err) { return ced_engram_gate(r.stream(), &a, err); };
  return c;
}

Call embed(Rig &r, uint32_t rows) {
  const Geometry &g = r.g;
  ced_embed_args a{};
  a.rows = r.rows(rows, kPosition), a.table = r.arena(), a.table_format = CED_BF16;
  a.h = r.space(uint64_t{2} * rows * g.streams * g.dim), a.pre = r.space(4 * rows * g.streams);
  a.max_rows = rows, a.dim = g.dim, a.streams = g.streams;
  a.vocab = static_cast<uint32_t>(std::min<uint64_t>(g.vocab, r.arena_bytes() / 2 / g.dim));
  Call c;
  c.activations = uint64_t{2} * rows * (g.streams + 1) * g.dim;
  c.run = [&r, a](ced_err *err) { return ced_embed(r.stream(), &a, err); };
  return c;
}

Call take(Rig &r, uint32_t rows) {
  const auto vocab = static_cast<uint32_t>(r.g.vocab);
  ced_greedy_args a{};
  a.rows = r.rows(rows, kPosition), a.logits = r.space(uint64_t{4} * rows * vocab), a.ids = r.space(4 * rows);
  a.max_rows = rows, a.vocab = vocab;
  Call c;
  c.activations = uint64_t{4} * rows * vocab;
  c.run = [&r, a](ced_err *err) { return ced_greedy(r.stream(), &a, err); };
  return c;
}

// The rows that go on, of the streams.
Call compact(Rig &r, uint32_t rows) {
  const uint64_t size = uint64_t{2} * r.g.streams * r.g.dim;
  std::vector<int32_t> index;
  for (uint32_t i = 0; i < rows; i++) index.push_back(static_cast<int32_t>(i + 1));
  ced_row_gather_args a{};
  a.rows = r.rows(rows, kPosition), a.index = r.put(index), a.src = r.bf16s((rows + 1) * size / 2);
  a.dst = r.space(rows * size), a.row_bytes = size, a.max_rows = rows;
  Call c;
  c.activations = 2 * rows * size;
  c.run = [&r, a](ced_err *err) { return ced_row_gather(r.stream(), &a, err); };
  return c;
}

}  // namespace

void add_rows(std::vector<Case> *all, const Geometry &g, bool quick) {
  const std::vector<uint32_t> rows = all_rows(g, quick);
  all->push_back({"mhc_mix", "", rows, mix});
  all->push_back({"mhc_collapse", "", rows, collapse});
  all->push_back({"mhc_expand", "", rows, expand});
  all->push_back({"mhc_border", "", rows, border});
  const uint32_t dim = g.dim, out = g.o_groups * g.o_lora;
  all->push_back({"norm_quant", "hidden " + std::to_string(dim), rows,
                  [=](Rig &r, uint32_t n) { return norm(r, n, dim); }});
  all->push_back({"norm_quant", "output " + std::to_string(out), rows,
                  [=](Rig &r, uint32_t n) { return norm(r, n, out); }});
  all->push_back({"rope", std::to_string(g.heads) + " heads", rows, rope});
  all->push_back({"route", std::to_string(g.top_k) + " of " + std::to_string(g.experts), rows, route});
  all->push_back({"engram_gather", std::to_string(g.engram_columns) + " table rows a token", rows, gather});
  all->push_back({"engram_gate", "", rows, gate});
  all->push_back({"embed", "", rows, embed});
  all->push_back({"row_gather", "streams", rows, compact});
  all->push_back({"greedy", "vocabulary", rows, take});
}

}  // namespace ced::bench
