#include <algorithm>

#include "kernel/csa2_index/csa2_index.h"
#include "num/bf16.h"
#include "num/e8m0.h"
#include "num/fp4.h"
#include "test/check.h"
#include "test/golden.h"
#include "test/pages.h"
#include "test/prng.h"
#include "test/rig.h"
#include "test/sha256.h"

namespace {

// The value recorded for a name in testdata/ops/digests.json.
std::string digest(const std::string &name) {
  std::ifstream in(golden::path("ops/digests.json"));
  const std::string all{std::istreambuf_iterator<char>(in), {}};
  const size_t at = all.find('"' + name), from = all.find(": \"", at) + 3;
  REQUIRE(at != std::string::npos);
  return all.substr(from, 64);
}

template <class T>
void append(std::vector<T> &to, const std::vector<T> &from) {
  to.insert(to.end(), from.begin(), from.end());
}

// ---- release shapes against the goldens -------------------------------------------------------------------------

constexpr int32_t kGroups = 17003, kSeen[4] = {17003, 16392, 17003, 300};
constexpr size_t kHeads = 32, kDim = 128, kTopK = 512, kMaxBlocks = 2048;

// The golden's queries as four one-row sequences over the same keys. The golden's q are FP4 values already: zero
// frequencies leave them alone, and quantising FP4 values with a power-of-two scale gives them back.
ced_csa2_index_args release(Rig &rig, const std::string &role, const std::vector<size_t> &queries) {
  const Pages pages(rig, queries.size(), kGroups, 64, 1);
  for (size_t i = 0; i < queries.size(); i++) {
    pages.write(rig, i, pages.kv.index_codes, 64, prng::bytes("op/indexer/key_packed", kGroups * 64));
    pages.write(rig, i, pages.kv.index_scales, 4, prng::e8m0("op/indexer/key_scales", kGroups * 4, 125, 3));
  }
  const auto packed = prng::bytes("op/indexer/" + role + "_q_packed", 4 * kHeads * kDim / 2);
  const auto scales = prng::e8m0("op/indexer/" + role + "_q_scales", 4 * kHeads * kDim / 32, 125, 3);
  auto weights = prng::xb("op/indexer/" + role + "_weights", 4 * kHeads, -6);
  std::fill_n(&weights[2 * kHeads], kHeads, 0);
  std::vector<uint16_t> q, w;
  std::vector<int32_t> pos, slot;
  for (size_t query : queries) {
    for (size_t i = query * kHeads * kDim; i < (query + 1) * kHeads * kDim; i++) {
      const auto code = static_cast<uint8_t>(packed[i / 2] >> (i % 2 * 4));
      q.push_back(ced::f32_to_bf16(ced::e2m1_to_f32(code) * ced::e8m0_to_f32(scales[i / 32])));
    }
    append(w, {&weights[query * kHeads], &weights[query * kHeads] + kHeads});
    slot.push_back(static_cast<int32_t>(pos.size()));
    pos.push_back(kSeen[query] - 1);
  }
  const size_t rows = queries.size();
  ced_csa2_index_args a{};
  a.rows = rig.sequence_rows(pos, slot), a.q = rig.put(q), a.w = rig.put(w);
  a.freqs = rig.put(std::vector<float>(32, 0));
  a.candidates = rig.out<int32_t>(rows * kMaxBlocks), a.sel = rig.out<int32_t>(rows * kTopK);
  a.score_stride = kGroups, a.scores = rig.out<float>(rows * kGroups);
  a.kv = pages.kv;
  a.max_rows = static_cast<uint32_t>(rows), a.heads = kHeads, a.rope_dim = 64, a.top_k = kTopK;
  a.max_groups = kGroups, a.block = 8, a.max_blocks = kMaxBlocks, a.scale = 1;
  a.publish = role == "source", a.restrict_ = !a.publish;
  a.workspace = rig.out<uint8_t>(ced_csa2_index_workspace(rig.stream(), &a));
  return a;
}

// Candidate blocks of the golden's four rows.
std::vector<int32_t> golden_candidates() {
  const auto &bitmap = golden::ops()["indexer.kept_blocks_bitmap"];
  const size_t width = bitmap.shape[1];
  std::vector<int32_t> all(4 * kMaxBlocks, -1);
  for (size_t r = 0; r < 4; r++) {
    size_t n = 0;
    for (size_t b = 0; b < width * 8; b++)
      if (bitmap.as<uint8_t>()[r * width + b / 8] >> (b % 8) & 1)
        all[r * kMaxBlocks + n++] = static_cast<int32_t>(b);
  }
  return all;
}

// ---- small shapes with many ties ---------------------------------------------------------------------------------

struct Small {
  static constexpr size_t kHeads = 3, kDim = 64, kRows = 40;
  static constexpr uint32_t kTopK = 4, kBlock = 2, kMaxBlocks = 3;
  uint32_t ratio;
  // Sequence 0 has positions 0..29, sequence 1 has 100..109.
  std::vector<int32_t> pos, slot;

  explicit Small(uint32_t r) : ratio(r) {
    for (int32_t i = 0; i < 40; i++) pos.push_back(i < 30 ? i : 70 + i), slot.push_back(i < 30 ? 0 : 1);
  }

  // Rows [from, to) of the 40. Candidates of a restricted call are given, [rows, kMaxBlocks].
  ced_csa2_index_args arguments(Rig &rig, size_t from, size_t to,
                                const std::vector<int32_t> &candidates) const {
    const Pages pages(rig, 2, 110, 8, ratio, 64, kDim);
    for (size_t s : {size_t{0}, size_t{1}}) {
      auto codes = prng::bytes(s ? "csa2_index/k1" : "csa2_index/k0", 110 * kDim / 2);
      for (size_t i = 0; i < codes.size(); i++)
        codes[i] = codes[i % (7 * kDim / 2)];  // seven different keys: ties
      pages.write(rig, s, pages.kv.index_codes, kDim / 2, codes);
      pages.write(rig, s, pages.kv.index_scales, kDim / 32, std::vector<uint8_t>(110 * kDim / 32, 127));
    }
    const auto q = prng::xb("csa2_index/q", kRows * kHeads * kDim, 0),
               w = prng::xb("csa2_index/w", kRows * kHeads, 0);
    const size_t rows = to - from;
    ced_csa2_index_args a{};
    a.rows = rig.sequence_rows({&pos[from], &pos[from] + rows}, {&slot[from], &slot[from] + rows});
    a.q = rig.put(&q[from * kHeads * kDim], rows * kHeads * kDim);
    a.w = rig.put(&w[from * kHeads], rows * kHeads);
    a.freqs = rig.put(prng::xf("csa2_index/freqs", 8));
    a.restrict_ = !candidates.empty(), a.publish = !a.restrict_;
    a.candidates = a.restrict_ ? rig.put(&candidates[from * kMaxBlocks], rows * kMaxBlocks)
                               : rig.out<int32_t>(rows * kMaxBlocks);
    a.sel = rig.out<int32_t>(rows * kTopK);
    a.kv = pages.kv;
    a.max_rows = static_cast<uint32_t>(rows), a.heads = kHeads, a.rope_dim = 16, a.top_k = kTopK;
    a.max_groups = 110, a.block = kBlock, a.max_blocks = kMaxBlocks, a.scale = 0.072f;
    a.workspace = rig.out<uint8_t>(ced_csa2_index_workspace(rig.stream(), &a));
    return a;
  }
};

struct Picked {
  std::vector<int32_t> sel, candidates;
};

Picked pick(Rig &rig, const ced_csa2_index_args &a) {
  rig.run(ced_csa2_index, a);
  return {rig.get<int32_t>(a.sel, size_t{a.max_rows} * a.top_k),
          rig.get<int32_t>(a.candidates, size_t{a.max_rows} * a.max_blocks)};
}

// The k best of v by full sort, ties to the lower index.
std::vector<int> best(const std::vector<float> &v, size_t k) {
  std::vector<int> order(v.size());
  for (size_t i = 0; i < v.size(); i++) order[i] = static_cast<int>(i);
  std::stable_sort(order.begin(), order.end(), [&](int x, int y) { return v[size_t(x)] > v[size_t(y)]; });
  order.resize(std::min(k, v.size()));
  return order;
}

// What the reference does with a row's scores, G groups wide (spec 4.8, 4.9, the leak of D4 included).
std::vector<int32_t> naive_selection(const std::vector<float> &scores, int seen) {
  std::vector<int32_t> sel;
  for (int j : best(scores, Small::kTopK))
    if (j < seen) sel.push_back(j);
  std::sort(sel.begin(), sel.end());
  sel.resize(Small::kTopK, -1);
  return sel;
}

std::vector<int32_t> naive_candidates(const std::vector<float> &scores, int seen) {
  std::vector<float> maxima;
  for (size_t j = 0; j < scores.size(); j++) {
    if (j % Small::kBlock == 0) maxima.push_back(-INFINITY);
    maxima.back() = std::max(maxima.back(), scores[j]);
  }
  if (seen > 0) maxima[static_cast<size_t>(seen - 1) / Small::kBlock] = INFINITY;
  std::vector<int32_t> kept;
  for (int b : best(maxima, Small::kMaxBlocks))
    if (maxima[static_cast<size_t>(b)] > -INFINITY) kept.push_back(b);
  std::sort(kept.begin(), kept.end());
  kept.resize(Small::kMaxBlocks, -1);
  return kept;
}

}  // namespace

TEST("csa2_index: scores, candidate blocks and selections have the golden's bits") {
  const std::vector<size_t> queries = {0, 1, 2, 3};
  for (ced_kind kind : bodies("csa2_index")) {
    for (const std::string role : {"source", "consumer"}) {
      CONTEXT(role << " kind=" << kind);
      Rig rig(kind);
      auto a = release(rig, role, queries);
      const auto blocks = golden_candidates();
      if (role == "consumer") a.candidates = rig.put(blocks);
      rig.run(ced_csa2_index, a);
      std::vector<uint16_t> bits;
      for (float v : rig.get<float>(a.scores, 4 * kGroups)) bits.push_back(ced::f32_to_bf16(v));
      const std::string name = "indexer." + role;
      const auto &head = golden::ops()[name + "_scores_first_256"],
                 &tail = golden::ops()[name + "_scores_last_64"];
      for (size_t r = 0; r < 4; r++) {
        CHECK_BITS(&bits[r * kGroups], head.as<uint16_t>() + r * 256, 256);
        CHECK_BITS(&bits[(r + 1) * kGroups - 64], tail.as<uint16_t>() + r * 64, 64);
      }
      CHECK_EQ(check::sha256(bits.data(), bits.size() * 2), digest(name + "_scores"));
      CHECK_BITS(rig.get<int32_t>(a.sel, 4 * kTopK).data(), golden::ops()[name + "_selection"].as<int32_t>(),
                 4 * kTopK);
      CHECK_BITS(rig.get<int32_t>(a.candidates, 4 * kMaxBlocks).data(), blocks.data(), blocks.size());
    }
  }
}

TEST("csa2_index: a row alone, without its scores written out, selects what it selects in the batch") {
  for (const std::string role : {"source", "consumer"}) {
    for (size_t query : {size_t{1}, size_t{3}}) {
      for (ced_kind kind : fast_bodies("csa2_index")) {
        CONTEXT(role << " query " << query << " kind=" << kind);
        Rig rig(kind, 3);
        auto a = release(rig, role, {query});
        a.scores = 0;
        const auto blocks = golden_candidates();
        if (role == "consumer") a.candidates = rig.put(&blocks[query * kMaxBlocks], kMaxBlocks);
        const Picked got = pick(rig, a);
        const auto *want = golden::ops()["indexer." + role + "_selection"].as<int32_t>() + query * kTopK;
        CHECK_BITS(got.sel.data(), want, kTopK);
        CHECK_BITS(got.candidates.data(), &blocks[query * kMaxBlocks], kMaxBlocks);
      }
    }
  }
}

TEST("csa2_index: agrees with a full sort over ties, few groups and masked picks, whatever the batch") {
  for (uint32_t ratio : {1u, 2u}) {
    const Small small(ratio);
    for (ced_kind kind : bodies("csa2_index")) {
      CONTEXT("ratio=" << ratio << " kind=" << kind);
      Rig rig(kind, 3);
      auto source = small.arguments(rig, 0, Small::kRows, {});
      source.scores = rig.out<float>(Small::kRows * 110), source.score_stride = 110;
      const Picked open = pick(rig, source);
      const auto scores = rig.get<float>(source.scores, Small::kRows * 110);
      // The restricted layer keeps every third row's candidates to one block, so that masked groups are picked.
      auto candidates = open.candidates;
      for (size_t r = 0; r < Small::kRows; r += 3) candidates[r * 3 + 1] = candidates[r * 3 + 2] = -1;
      const Picked closed = pick(rig, small.arguments(rig, 0, Small::kRows, candidates));
      for (size_t r = 0; r < Small::kRows; r++) {
        CONTEXT("row " << r);
        const int seen = (small.pos[r] + 1) / static_cast<int>(ratio);
        std::vector<float> row(&scores[r * 110], &scores[r * 110] + 110);
        for (int j = seen; j < 110; j++) CHECK_EQ(row[static_cast<size_t>(j)], -INFINITY);
        CHECK_BITS(&open.sel[r * 4], naive_selection(row, seen).data(), 4);
        CHECK_BITS(&open.candidates[r * 3], naive_candidates(row, seen).data(), 3);
        for (int32_t j = 0; j < 110; j++) {
          const auto *kept = &candidates[r * 3];
          if (std::find(kept, kept + 3, j / 2) == kept + 3) row[static_cast<size_t>(j)] = -INFINITY;
        }
        CHECK_BITS(&closed.sel[r * 4], naive_selection(row, seen).data(), 4);
      }
      for (size_t cut : {size_t{1}, size_t{17}, size_t{33}}) {
        CONTEXT("rows from " << cut);
        const Picked part = pick(rig, small.arguments(rig, cut, Small::kRows, {}));
        CHECK_BITS(part.sel.data(), &open.sel[cut * 4], part.sel.size());
        CHECK_BITS(part.candidates.data(), &open.candidates[cut * 3], part.candidates.size());
        const Picked masked = pick(rig, small.arguments(rig, cut, cut + 1, candidates));
        CHECK_BITS(masked.sel.data(), &closed.sel[cut * 4], 4);
      }
    }
  }
}

// A prompt's rows from an empty selection to one that leaves groups out, and past a whole tile of keys and rows.
TEST("csa2_index: a row of a prompt selects what it selects alone, on both sides of every limit") {
  constexpr uint32_t heads = 8, dim = 64, groups = 560, top_k = 512, blocks = 66;
  const auto q = prng::xb("csa2_index/edge_q", groups * heads * dim, 0),
             w = prng::xb("csa2_index/edge_w", groups * heads, 0);
  const auto codes = prng::bytes("csa2_index/edge_codes", groups * dim / 2);
  const auto scales = prng::e8m0("csa2_index/edge_scales", groups * dim / 32, 125, 3);
  const auto arguments = [&](Rig &rig, int32_t from, int32_t to) {
    const auto rows = static_cast<size_t>(to - from), first = static_cast<size_t>(from);
    const Pages pages(rig, 1, groups, 8, 1, 64, dim);
    pages.write(rig, 0, pages.kv.index_codes, dim / 2, codes);
    pages.write(rig, 0, pages.kv.index_scales, dim / 32, scales);
    std::vector<int32_t> pos(rows);
    for (size_t i = 0; i < rows; i++) pos[i] = from + static_cast<int32_t>(i);
    ced_csa2_index_args a{};
    a.rows = rig.sequence_rows(pos, std::vector<int32_t>(rows, 0));
    a.q = rig.put(&q[first * heads * dim], rows * heads * dim),
    a.w = rig.put(&w[first * heads], rows * heads);
    a.freqs = rig.put(prng::xf("csa2_index/edge_freqs", 16)), a.kv = pages.kv;
    a.max_rows = static_cast<uint32_t>(rows), a.heads = heads, a.rope_dim = 32, a.top_k = top_k;
    a.max_groups = groups, a.block = 8, a.max_blocks = blocks, a.publish = 1, a.scale = 0.044f;
    a.candidates = rig.out<int32_t>(rows * blocks), a.sel = rig.out<int32_t>(rows * top_k);
    a.workspace = rig.out<uint8_t>(ced_csa2_index_workspace(rig.stream(), &a));
    return a;
  };
  for (ced_kind kind : fast_bodies("csa2_index")) {
    CONTEXT("kind=" << kind);
    Rig all(kind, 3), reference(CED_REF);
    const Picked want = pick(all, arguments(all, 0, groups));
    const Picked exact = pick(reference, arguments(reference, 0, groups));
    CHECK_BITS(want.sel.data(), exact.sel.data(), want.sel.size());
    CHECK_BITS(want.candidates.data(), exact.candidates.data(), want.candidates.size());
    for (int32_t row : {0, 1, 7, 8, 31, 32, 127, 128, 129, 510, 511, 512, 513, 527, 528, 529, 559}) {
      CONTEXT("row " << row);
      Rig one(kind, 1);
      const Picked got = pick(one, arguments(one, row, row + 1));
      CHECK_BITS(got.sel.data(), &want.sel[static_cast<size_t>(row) * top_k], top_k);
      CHECK_BITS(got.candidates.data(), &want.candidates[static_cast<size_t>(row) * blocks], blocks);
    }
  }
}

// Every sequence sees the same keys, as many as its position lets it: 0, 1 and around each power of two.
struct Shapes {
  static constexpr uint32_t kHeads = 8, kDim = 64, kTopK = 32, kBlocks = 24, kRatio = 2;
  std::vector<int32_t> seen{0, 1, 2};
  uint32_t groups;

  explicit Shapes(int largest) {
    for (int k = 2; k <= largest; k++)
      for (int32_t d : {-1, 0, 1}) seen.push_back((1 << k) + d);
    groups = static_cast<uint32_t>(seen.back());
  }

  // Sequences [from, to). restrict_ takes their candidates.
  ced_csa2_index_args arguments(Rig &rig, size_t from, size_t to,
                                const std::vector<int32_t> &candidates) const {
    const auto n = to - from;
    Pages pages(rig, 1, groups, 64, kRatio, 64, kDim);
    pages.write(rig, 0, pages.kv.index_codes, kDim / 2,
                prng::bytes("csa2_index/shape_codes", groups * kDim / 2));
    pages.write(rig, 0, pages.kv.index_scales, kDim / 32,
                prng::e8m0("csa2_index/shape_scales", groups * kDim / 32, 125, 3));
    std::vector<int32_t> table, pos, slot;
    for (size_t i = 0; i < n; i++) {
      append(table, pages.table);
      pos.push_back(std::max(static_cast<int32_t>(kRatio) * seen[from + i] - 1, 0));
      slot.push_back(static_cast<int32_t>(i));
    }
    const auto q = prng::xb("csa2_index/shape_q", seen.size() * kHeads * kDim, 0),
               w = prng::xb("csa2_index/shape_w", seen.size() * kHeads, 0);
    ced_csa2_index_args a{};
    a.rows = rig.sequence_rows(pos, slot), a.kv = pages.kv, a.kv.table = rig.put(table);
    a.q = rig.put(&q[from * kHeads * kDim], n * kHeads * kDim), a.w = rig.put(&w[from * kHeads], n * kHeads);
    a.freqs = rig.put(prng::xf("csa2_index/shape_freqs", 16));
    a.max_rows = static_cast<uint32_t>(n), a.heads = kHeads, a.rope_dim = 32, a.top_k = kTopK;
    a.max_groups = groups, a.block = 8, a.max_blocks = kBlocks, a.scale = 0.044f;
    a.restrict_ = !candidates.empty(), a.publish = !a.restrict_;
    a.candidates =
        a.restrict_ ? rig.put(&candidates[from * kBlocks], n * kBlocks) : rig.out<int32_t>(n * kBlocks);
    a.sel = rig.out<int32_t>(n * kTopK);
    const uint64_t bytes = ced_csa2_index_workspace(rig.stream(), &a);
    a.workspace = rig.out<uint8_t>(bytes);
    rig.poison<uint8_t>(a.workspace, bytes);
    return a;
  }
};

TEST("csa2_index: 0, 1, 2^k - 1, 2^k and 2^k + 1 groups: the reference's selection, in a batch and alone") {
  const Shapes shapes(getenv("CED_TEST_LARGE") != nullptr ? 20 : 11);  // a million: not on a simulated device
  const size_t n = shapes.seen.size();
  Rig ref(CED_REF);
  const Picked open = pick(ref, shapes.arguments(ref, 0, n, {}));
  const Picked closed = pick(ref, shapes.arguments(ref, 0, n, open.candidates));
  for (ced_kind kind : fast_bodies("csa2_index")) {
    CONTEXT("kind=" << kind);
    Rig rig(kind);
    const auto a = shapes.arguments(rig, 0, n, {}), b = shapes.arguments(rig, 0, n, open.candidates);
    for (int again = 0; again < 2; again++) {
      const Picked source = pick(rig, a);
      CHECK_BITS(source.sel.data(), open.sel.data(), open.sel.size());
      CHECK_BITS(source.candidates.data(), open.candidates.data(), open.candidates.size());
      CHECK_BITS(pick(rig, b).sel.data(), closed.sel.data(), closed.sel.size());
    }
    for (size_t i = 0; i < n; i += i < 12 ? 1 : 5) {
      CONTEXT(shapes.seen[i] << " groups");
      Rig one(kind);
      const Picked source = pick(one, shapes.arguments(one, i, i + 1, {}));
      CHECK_BITS(source.sel.data(), &open.sel[i * Shapes::kTopK], Shapes::kTopK);
      CHECK_BITS(source.candidates.data(), &open.candidates[i * Shapes::kBlocks], Shapes::kBlocks);
      CHECK_BITS(pick(one, shapes.arguments(one, i, i + 1, open.candidates)).sel.data(),
                 &closed.sel[i * Shapes::kTopK], Shapes::kTopK);
    }
  }
}

TEST("csa2_index: a graph captured when there were no rows serves those that come") {
  const Shapes shapes(7);
  const size_t n = shapes.seen.size();
  for (ced_kind kind : bodies("csa2_index")) {
    if (kind != CED_CUDA) continue;
    Rig ref(CED_REF), rig(kind);
    const Picked want = pick(ref, shapes.arguments(ref, 0, n, {}));
    const auto a = shapes.arguments(rig, 0, n, {});
    const auto count = [&](size_t rows) {
      const auto c = static_cast<int32_t>(rows);
      ced_err err{};
      REQUIRE_EQ(ced_upload(rig.stream(), a.rows, &c, 4, &err), CED_OK);
    };
    ced_err err{};
    ced_graph *graph = nullptr;
    count(0);
    REQUIRE_EQ(ced_capture_begin(rig.stream(), &err), CED_OK);
    CHECK_EQ(ced_csa2_index(rig.stream(), &a, &err), CED_OK);
    REQUIRE_EQ(ced_capture_end(rig.stream(), &graph, &err), CED_OK);
    for (size_t rows : {size_t{0}, n, size_t{1}, size_t{0}, n}) {
      CONTEXT(rows << " rows");
      count(rows);
      rig.poison<int32_t>(a.sel, n * Shapes::kTopK);
      REQUIRE_EQ(ced_graph_launch(rig.stream(), graph, &err), CED_OK);
      const auto sel = rig.get<int32_t>(a.sel, n * Shapes::kTopK);
      CHECK_BITS(sel.data(), want.sel.data(), rows * Shapes::kTopK);
      for (size_t i = rows * Shapes::kTopK; i < sel.size(); i++) CHECK_EQ(sel[i], -1);  // nobody's
    }
    ced_graph_close(graph);
  }
}

// Keys over many binades and with blocks of zeros, queries that do and do not fold, more groups than a span holds.
TEST("csa2_index: every instruction set gives the same bits") {
  struct {
    size_t heads, dim, groups;
    int binades;  // of the scales
  } cases[] = {{1, 32, 1, 1}, {5, 64, 31, 2}, {9, 128, 4099, 3}, {4, 160, 700, 60}, {17, 512, 300, 4}};
  constexpr size_t rows = 3;
  for (const auto &c : cases) {
    CONTEXT("heads=" << c.heads << " dim=" << c.dim);
    const std::string name = "csa2_index/isa" + std::to_string(c.dim);
    Rig rig(CED_CPU, 3);
    const auto groups = static_cast<uint32_t>(c.groups + rows), dim = static_cast<uint32_t>(c.dim);
    const Pages pages(rig, 1, groups, 8, 1, 64, dim);
    auto codes = prng::bytes(name + "/codes", groups * c.dim / 2);
    auto scales = prng::e8m0(name + "/scales", groups * c.dim / 32, 120, static_cast<uint32_t>(c.binades));
    for (size_t i = 0; i < scales.size(); i += 37) {
      scales[i] = 1;
      std::fill_n(&codes[i * 16], 16, 0);
    }
    pages.write(rig, 0, pages.kv.index_codes, dim / 2, codes);
    pages.write(rig, 0, pages.kv.index_scales, dim / 32, scales);
    auto q = prng::xb(name + "/q", rows * c.heads * c.dim, 0);
    const prng::Stream random(name + "/binade");
    for (size_t i = 0; i < q.size(); i++) {  // the second row's heads do not fold
      const auto by = static_cast<int>(random.below(i / 32, i / (c.heads * c.dim) == 1 ? 40 : 2));
      q[i] = i / 32 % 11 == 3 ? 0 : ced::f32_to_bf16(std::ldexp(ced::bf16_to_f32(q[i]), -by));
    }
    ced_csa2_index_args a{};
    const auto last = static_cast<int32_t>(c.groups);
    a.rows = rig.sequence_rows({last - 1, last, last + 1}, {0, 0, 0}), a.q = rig.put(q);
    a.w = rig.put(prng::xb(name + "/w", rows * c.heads, 0)), a.freqs = rig.put(prng::xf(name + "/freqs", 8));
    a.kv = pages.kv, a.max_rows = rows, a.heads = static_cast<uint32_t>(c.heads), a.rope_dim = 16,
    a.top_k = 100;
    a.max_groups = groups, a.block = 8, a.max_blocks = 20, a.publish = 1, a.scale = 0.072f;
    a.candidates = rig.out<int32_t>(rows * 20), a.sel = rig.out<int32_t>(rows * 100);
    a.score_stride = groups, a.scores = rig.out<float>(rows * groups);
    a.workspace = rig.out<uint8_t>(ced_csa2_index_workspace(rig.stream(), &a));
    const Picked want = pick(rig, a);
    const auto scores = rig.get<float>(a.scores, rows * groups);
    for (const ced::Isa isa : {ced::Isa::kPlain, ced::Isa::kAvx2, ced::Isa::kAvx512, ced::Isa::kNeon}) {
      if (!ced::isa_supported(isa)) continue;
      CONTEXT(ced::isa_name(isa));
      ced::csa2_index_on(isa, rig.stream(), a);
      CHECK_BITS(rig.get<float>(a.scores, scores.size()).data(), scores.data(), scores.size());
      CHECK_BITS(rig.get<int32_t>(a.sel, rows * 100).data(), want.sel.data(), rows * 100);
      CHECK_BITS(rig.get<int32_t>(a.candidates, rows * 20).data(), want.candidates.data(), rows * 20);
    }
  }
}

// More groups than one block of a device selects from, around the borders of the chunks that its blocks take, with scores
// that tie across all of them. One channel of one head counts, so that a key's code and scale are its score.
TEST("csa2_index: many groups with ties, orders and extremes of every kind: the reference's selection") {
  constexpr uint32_t dim = 32, groups = 20500;
  const std::vector<int32_t> seen{0, 1, 511, 512, 513, 4095, 4096, 4097, 8192, 8193, 16385, 20500};
  const prng::Stream random("csa2_index/many");
  struct {
    const char *scores;
    uint32_t block, max_blocks, top_k;
    uint8_t (*code)(uint64_t draw, uint32_t j);
    uint8_t (*scale)(uint64_t draw, uint32_t j);
  } cases[] = {
      {"equal", 8, 600, 512, [](uint64_t, uint32_t) -> uint8_t { return 2; },
       [](uint64_t, uint32_t) -> uint8_t { return 127; }},
      {"a few values", 24, 100, 512, [](uint64_t d, uint32_t) { return static_cast<uint8_t>(d % 4); },
       [](uint64_t, uint32_t) -> uint8_t { return 127; }},
      {"rising", 256, 9, 300, [](uint64_t, uint32_t j) { return static_cast<uint8_t>(j / 700 % 4 + 4); },
       [](uint64_t, uint32_t j) { return static_cast<uint8_t>(100 + 2 * (j / 2800)); }},
      {"falling", 512, 11, 512, [](uint64_t, uint32_t j) { return static_cast<uint8_t>(7 - j / 700 % 4); },
       [](uint64_t, uint32_t j) { return static_cast<uint8_t>(150 - 2 * (j / 2800)); }},
      {"of 250 binades", 1, 4095, 513, [](uint64_t d, uint32_t) { return static_cast<uint8_t>(d % 8); },
       [](uint64_t d, uint32_t) { return static_cast<uint8_t>(4 + d / 16 % 246); }},
  };
  for (const auto &c : cases) {
    CONTEXT("scores: " << c.scores << ", blocks of " << c.block);
    std::vector<uint8_t> codes(groups * dim / 2), scales(groups);
    for (uint32_t j = 0; j < groups; j++) {
      const uint64_t draw = random.below(j, 1 << 20);
      codes[j * dim / 2] = c.code(draw, j), scales[j] = c.scale(draw, j);
    }
    const auto arguments = [&](Rig &rig, size_t from, size_t n, const std::vector<int32_t> &candidates) {
      const Pages pages(rig, 1, groups, 64, 1, 64, dim);
      pages.write(rig, 0, pages.kv.index_codes, dim / 2, codes);
      pages.write(rig, 0, pages.kv.index_scales, 1, scales);
      std::vector<int32_t> table, pos, slot;
      for (size_t i = 0; i < n; i++) {
        append(table, pages.table);
        pos.push_back(seen[from + i] - 1), slot.push_back(static_cast<int32_t>(i));
      }
      std::vector<uint16_t> q(n * dim), w;
      for (size_t i = 0; i < n; i++) {
        q[i * dim] = 0x4000;                                 // 2
        w.push_back((from + i) % 3 == 1 ? 0xBFC0 : 0x3FC0);  // -1.5, 1.5
      }
      ced_csa2_index_args a{};
      a.rows = rig.sequence_rows(pos, slot), a.kv = pages.kv, a.kv.table = rig.put(table);
      a.q = rig.put(q), a.w = rig.put(w), a.freqs = rig.put(std::vector<float>(8, 0));
      a.max_rows = static_cast<uint32_t>(n), a.heads = 1, a.rope_dim = 16, a.top_k = c.top_k;
      a.max_groups = groups, a.block = c.block, a.max_blocks = c.max_blocks, a.scale = 1;
      a.restrict_ = !candidates.empty(), a.publish = !a.restrict_;
      a.candidates = a.restrict_ ? rig.put(&candidates[from * c.max_blocks], n * c.max_blocks)
                                 : rig.out<int32_t>(n * c.max_blocks);
      a.sel = rig.out<int32_t>(n * c.top_k);
      a.workspace = rig.out<uint8_t>(ced_csa2_index_workspace(rig.stream(), &a));
      return a;
    };
    Rig ref(CED_REF);
    const Picked open = pick(ref, arguments(ref, 0, seen.size(), {}));
    const Picked closed = pick(ref, arguments(ref, 0, seen.size(), open.candidates));
    for (ced_kind kind : fast_bodies("csa2_index")) {
      CONTEXT("kind=" << kind);
      Rig rig(kind);
      const Picked source = pick(rig, arguments(rig, 0, seen.size(), {}));
      const Picked consumer = pick(rig, arguments(rig, 0, seen.size(), open.candidates));
      for (size_t r = 0; r < seen.size(); r++) {
        CONTEXT(seen[r] << " groups");
        CHECK_BITS(&source.sel[r * c.top_k], &open.sel[r * c.top_k], c.top_k);
        CHECK_BITS(&source.candidates[r * c.max_blocks], &open.candidates[r * c.max_blocks], c.max_blocks);
        CHECK_BITS(&consumer.sel[r * c.top_k], &closed.sel[r * c.top_k], c.top_k);
      }
      const Picked alone = pick(rig, arguments(rig, seen.size() - 1, 1, {}));
      CHECK_BITS(alone.sel.data(), &open.sel[(seen.size() - 1) * c.top_k], c.top_k);
    }
  }
}

TEST("csa2_index: the best of a stream are those of all its scores at once, in whatever pieces it comes") {
  const prng::Stream random("csa2_index/best");
  struct {
    int n, k;
    uint32_t values;
    bool rising;  // every score enters the list
  } cases[] = {{0, 4, 5, false},
               {4, 4, 5, false},
               {9000, 1, 3, false},
               {20000, 512, 300, false},
               {20000, 512, 30000, true}};
  for (const auto &c : cases) {
    for (int piece : {1, 63, 64, 20000}) {
      CONTEXT("n=" << c.n << " k=" << c.k << " piece=" << piece);
      std::vector<ced::Score> scores;
      for (int i = 0; i < c.n; i++)
        scores.push_back(
            static_cast<ced::Score>(c.rising ? i : 1000 + random.below(static_cast<uint64_t>(i), c.values)));
      std::vector<int32_t> want(static_cast<size_t>(c.k));
      const int n = ced::top_k(scores.data(), c.n, c.k, want.data());
      std::vector<int64_t> memory(ced::Best::bytes(static_cast<uint64_t>(c.k)) / 8 + 1);
      ced::Best best;
      best.open(memory.data(), c.k, -1);
      for (int i = 0; i < c.n; i += piece)
        best.add(&scores[static_cast<size_t>(i)], std::min(piece, c.n - i), i);
      const int32_t *got;
      REQUIRE_EQ(best.finish(&got), n);
      CHECK_BITS(got, want.data(), static_cast<size_t>(n));
    }
  }
}

TEST("csa2_index: top_k keeps score order and gives ties to the lower index") {
  const prng::Stream random("csa2_index/top_k");
  const struct {
    int n, k;
    uint32_t values;  // number of different scores
  } cases[] = {{0, 4, 1},       {3, 4, 9},          {4, 4, 9},         {1000, 1, 3},
               {1000, 999, 40}, {5000, 512, 65536}, {1 << 20, 512, 70}};
  for (const auto &c : cases) {
    CONTEXT("n=" << c.n << " k=" << c.k);
    std::vector<ced::Score> scores;
    std::vector<float> values;
    for (int i = 0; i < c.n; i++) {
      const auto bits =
          static_cast<uint16_t>(random.below(static_cast<uint64_t>(i), c.values) * (65536 / c.values));
      const float v = ced::bf16_to_f32(bits);
      scores.push_back(ced::score_of(std::isnan(v) ? 0 : bits));
      values.push_back(ced::score_value(scores.back()));
    }
    auto want = best(values, static_cast<size_t>(c.k));
    std::sort(want.begin(), want.end());
    std::vector<int32_t> got(static_cast<size_t>(c.k), -7);
    REQUIRE_EQ(ced::top_k(scores.data(), c.n, c.k, got.data()), static_cast<int>(want.size()));
    CHECK_BITS(got.data(), want.data(), want.size());
  }
}

TEST("csa2_index: a score's integer keeps its order and its value") {
  for (int i = 0; i < 65536; i++) {
    const auto bits = static_cast<uint16_t>(i);
    const float v = ced::bf16_to_f32(bits);
    if (std::isnan(v)) continue;
    CHECK_EQ(ced::score_value(ced::score_of(bits)), v);
    CHECK_EQ(ced::score_of(bits) > ced::score_of(0x3F80), v > 1.0f);
    CHECK_EQ(ced::score_of(bits) < ced::score_of(0xBF80), v < -1.0f);
  }
  CHECK_EQ(ced::score_of(0x8000), ced::score_of(0));
  CHECK_EQ(ced::score_of(0xFF80), ced::kMasked);
  CHECK_EQ(ced::score_of(0x7F80), ced::kForced);
}

TEST("csa2_index: refuses bad arguments and accepts no rows") {
  Rig rig(CED_CPU);
  const auto good = Small(1).arguments(rig, 0, 0, {});
  rig.run(ced_csa2_index, good);
  auto a = good;
  a.restrict_ = 1;
  CHECK(says(rig.refusal(ced_csa2_index, a), "publish and restrict_ are both set"));
  a = good, a.block = 0;
  CHECK(says(rig.refusal(ced_csa2_index, a), "csa2_index: block is 0"));
  a = good, a.max_groups = 113;
  CHECK(says(rig.refusal(ced_csa2_index, a), "csa2_index: max_groups is 113"));
  a = good, a.kv.index_dim = 40;
  CHECK(says(rig.refusal(ced_csa2_index, a), "kv.index_dim is 40"));
  a = good, a.candidates = 0;
  CHECK(says(rig.refusal(ced_csa2_index, a), "candidates is missing"));
  a = good, a.workspace = 0;
  CHECK(says(rig.refusal(ced_csa2_index, a), "workspace is missing"));
}

TEST("csa2_index: a model without an indexer gets a workspace too") {
  for (ced_kind kind : bodies("csa2_index")) {
    Rig rig(kind);
    const ced_csa2_index_args none{};
    CHECK(ced_csa2_index_workspace(rig.stream(), &none) > 0);
  }
}
