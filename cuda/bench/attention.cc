// attention.cc: the indexer, the attention core, and what writes their rows.
#include <algorithm>
#include <cmath>

#include "bench/rig.h"

namespace ced::bench {
namespace {

constexpr uint32_t kOpenRows = 7, kRatio = 2;

enum class Kind { kPlain, kPublish, kRestricted };

Call index(Rig &r, uint32_t rows, uint32_t keys, Kind kind) {
  const Geometry &g = r.g;
  ced_csa2_index_args a{};
  a.kv = r.kv(1, Rig::slots(rows), keys);
  a.rows = r.rows(rows, static_cast<int32_t>(keys) - 1);
  a.q = r.bf16s(uint64_t{rows} * g.index_heads * g.index_dim), a.w = r.bf16s(uint64_t{rows} * g.index_heads);
  a.freqs = r.freqs(), a.sel = r.space(uint64_t{4} * rows * g.index_top_k);
  a.max_rows = rows, a.heads = g.index_heads, a.rope_dim = g.rope_dim, a.top_k = g.index_top_k;
  a.max_groups = a.kv.max_pages * a.kv.page_rows;
  a.scale = 1 / std::sqrt(static_cast<float>(g.index_heads * g.index_dim));
  uint32_t seen = keys;
  if (kind != Kind::kPlain) {
    a.block = g.block, a.max_blocks = g.max_blocks;
    a.publish = kind == Kind::kPublish, a.restrict_ = kind == Kind::kRestricted;
    const uint32_t blocks = keys / g.block, kept = std::min(blocks, g.max_blocks);
    std::vector<int32_t> list;
    for (uint32_t row = 0; row < rows; row++)
      for (uint32_t i = 0; i < g.max_blocks; i++)
        list.push_back(i < kept ? static_cast<int32_t>(uint64_t{i} * blocks / kept) : -1);
    a.candidates = r.put(list);
    if (kind == Kind::kRestricted) seen = kept * g.block;
  }
  a.workspace = r.space(ced_csa2_index_workspace(r.stream(), &a));
  Call c;
  c.weights = uint64_t{Rig::slots(rows)} * seen * (g.index_dim / 2 + g.index_dim / 32);
  c.activations = uint64_t{rows} * (2 * g.index_heads * (g.index_dim + 1) + 4 * g.index_top_k);
  c.integer_ops = 2.0 * rows * g.index_heads * g.index_dim * seen;
  c.run = [&r, a](ced_err *err) { return ced_csa2_index(r.stream(), &a, err); };
  return c;
}

// Over a full window, with a full selection or without.
Call attend(Rig &r, uint32_t rows, bool selected) {
  const Geometry &g = r.g;
  const uint32_t slots = Rig::slots(rows), ring_rows = g.window + 5;
  ced_csa2_attend_args a{};
  a.rows = a.key_rows = r.rows(rows, kPosition);
  a.q = r.bf16s(uint64_t{rows} * g.heads * g.head_dim), a.packed = r.ring(rows),
  a.ring = r.ring(slots * ring_rows);
  a.window_start = r.bytes(4 * slots, 0), a.sink = r.f32s(g.heads, -1, 1);
  a.o = r.space(uint64_t{2} * rows * g.heads * g.head_dim);
  a.max_rows = rows, a.heads = g.heads, a.head_dim = g.head_dim, a.window = g.window, a.ring_rows = ring_rows;
  a.top_k = g.index_top_k;
  uint32_t keys = g.window;
  Call c;
  c.weights = uint64_t{rows - slots + g.window * slots} * r.ring_row();
  if (selected) {
    const uint32_t seen = (kPosition - rows) / kRatio;
    a.kv = r.kv(kRatio, slots, kPosition / kRatio + 1);
    std::vector<int32_t> sel;
    for (uint32_t row = 0; row < rows; row++) {
      for (uint32_t i = 0; i < g.index_top_k; i++) {  // ascending, one of each part
        const uint32_t from = seen * i / g.index_top_k, to = seen * (i + 1) / g.index_top_k;
        sel.push_back(static_cast<int32_t>(from + r.random(std::max(to - from, 1U))));
      }
    }
    a.sel = r.put(sel), keys += g.index_top_k;
    // Rows of a chunk choose from the same keys.
    const uint64_t read = rows > Rig::kOwn ? std::min<uint64_t>(sel.size(), seen) : sel.size();
    c.weights += read * (g.head_dim / 2 + g.head_dim / 16);
  }
  a.workspace = r.space(ced_csa2_attend_workspace(r.stream(), &a));
  c.activations = uint64_t{4} * rows * g.heads * g.head_dim;
  c.flops = 4.0 * rows * g.heads * g.head_dim * keys;
  c.run = [&r, a](ced_err *err) { return ced_csa2_attend(r.stream(), &a, err); };
  return c;
}

Call window_pack(Rig &r, uint32_t rows) {
  const Geometry &g = r.g;
  ced_window_pack_args a{};
  a.rows = r.rows(rows, kPosition), a.x = r.bf16s(uint64_t{rows} * g.head_dim),
  a.weight = r.bf16s(g.head_dim);
  a.weight_format = CED_BF16, a.freqs = r.freqs(), a.packed = r.space(uint64_t{rows} * r.ring_row());
  a.max_rows = rows, a.dim = g.head_dim, a.rope_dim = g.rope_dim, a.eps = 1e-20F;
  Call c;
  c.activations = uint64_t{rows} * (2 * g.head_dim + r.ring_row());
  c.run = [&r, a](ced_err *err) { return ced_window_pack(r.stream(), &a, err); };
  return c;
}

Call window_commit(Rig &r, uint32_t rows) {
  const uint32_t slots = Rig::slots(rows), ring_rows = r.g.window + 5;
  ced_window_commit_args a{};
  a.rows = r.rows(rows, kPosition), a.packed = r.ring(rows), a.ring = r.ring(slots * ring_rows);
  a.max_rows = rows, a.row_bytes = r.ring_row(), a.ring_rows = ring_rows;
  Call c;
  c.activations = uint64_t{2} * std::min(rows, slots * ring_rows) * r.ring_row();
  c.run = [&r, a](ced_err *err) { return ced_window_commit(r.stream(), &a, err); };
  return c;
}

Call compress(Rig &r, uint32_t rows) {
  const Geometry &g = r.g;
  uint32_t groups = 0;
  ced_csa2_compress_args a{};
  a.rows = r.rows(rows, kPosition), a.groups = r.groups(rows, kRatio, &groups);
  a.a = r.f32s(uint64_t{rows} * g.head_dim, -1, 1), a.g = r.f32s(uint64_t{rows} * g.head_dim, -1, 1);
  a.open = r.f32s(uint64_t{Rig::slots(rows)} * kOpenRows * 2 * g.head_dim, -1, 1);
  a.weight = r.bf16s(g.head_dim), a.weight_format = CED_BF16,
  a.latent = r.space(uint64_t{2} * groups * g.head_dim);
  a.max_rows = rows, a.dim = g.head_dim, a.ratio = kRatio, a.open_rows = kOpenRows, a.eps = 1e-20F;
  Call c;
  c.activations = (uint64_t{8} * rows + 2 * groups) * g.head_dim;
  c.run = [&r, a](ced_err *err) { return ced_csa2_compress(r.stream(), &a, err); };
  return c;
}

Call kv_append(Rig &r, uint32_t rows) {
  const Geometry &g = r.g;
  uint32_t groups = 0;
  ced_kv_append_args a{};
  a.rows = r.rows(rows, kPosition), a.groups = r.groups(rows, kRatio, &groups);
  a.latent = r.bf16s(uint64_t{groups} * g.head_dim), a.k = r.bf16s(uint64_t{groups} * g.index_dim);
  a.k_weight = r.bf16s(g.index_dim), a.weight_format = CED_BF16, a.freqs = r.freqs();
  a.kv = r.kv(kRatio, Rig::slots(rows), kPosition / kRatio + 1);
  a.max_groups = rows, a.rope_dim = g.rope_dim, a.eps = 1e-20F;
  Call c;
  c.activations = uint64_t{groups} * (2 * (g.head_dim + g.index_dim) + g.head_dim / 2 + g.head_dim / 16 +
                                      g.index_dim / 2 + g.index_dim / 32);
  c.run = [&r, a](ced_err *err) { return ced_kv_append(r.stream(), &a, err); };
  return c;
}

}  // namespace

void add_attention(std::vector<Case> *all, const Geometry &g, bool quick) {
  const bool tiny = g.dim == kTiny.dim;
  const auto add = [&](uint32_t keys, const char *what, Kind kind, std::vector<uint32_t> rows) {
    all->push_back({"csa2_index", std::to_string(keys) + " keys" + what, std::move(rows),
                    [=](Rig &r, uint32_t n) { return index(r, n, keys, kind); }});
  };
  if (tiny) {
    add(100, "", Kind::kPlain, all_rows(g, quick));
    add(100, ", candidates", Kind::kPublish, {1});
    add(100, ", restricted", Kind::kRestricted, {1});
  } else {
    add(8192, "", Kind::kPlain, all_rows(g, quick));
    add(131072, ", candidates", Kind::kPublish, {1});
    add(524288, "", Kind::kPlain, {1});
    add(1048576, ", candidates", Kind::kPublish, {1});
    add(1048576, ", restricted", Kind::kRestricted, {1});
  }
  all->push_back(
      {"csa2_attend", "window", all_rows(g, quick), [](Rig &r, uint32_t n) { return attend(r, n, false); }});
  all->push_back({"csa2_attend", "window and " + std::to_string(g.index_top_k) + " selected",
                  all_rows(g, quick), [](Rig &r, uint32_t n) { return attend(r, n, true); }});
  all->push_back({"window_pack", "", all_rows(g, quick), window_pack});
  all->push_back({"window_commit", "", all_rows(g, quick), window_commit});
  all->push_back({"csa2_compress", "ratio 2", all_rows(g, quick), compress});
  all->push_back({"kv_append", "ratio 2", all_rows(g, quick), kv_append});
}

}  // namespace ced::bench
