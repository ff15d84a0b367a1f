#include "kernel/csa2_attend/csa2_attend.h"
#include "num/bf16.h"
#include "num/e8m0.h"
#include "num/fp4.h"
#include "num/fp8.h"
#include "test/check.h"
#include "test/golden.h"
#include "test/pages.h"
#include "test/prng.h"
#include "test/rig.h"
#include "test/rules.h"

namespace {

// Against f64 without P rounding: 1 % of the row's rms, or two BF16 units where those are more: the golden o itself
// is up to 1.9 % of a row's rms away from o_exact.
constexpr check::Rule kExact{"attention against f64", 0, 0, 2, 0.01, 0, 0};

constexpr size_t kHeads = 64, kDim = 512, kRow = kDim + kDim / 32, kWindow = 128;

// The golden's two queries as two sequences with the same window and global rows. A: all 128 window rows and 512
// selected; B: 100 window rows and 50 selected. `packed` of each window's rows belong to this step, the others are
// in the ring; with `late` sequence B stands at position 127 and its window starts at 28.
struct Golden {
  std::vector<uint8_t> window, codes, scales;
  std::vector<std::vector<int32_t>> sel;

  Golden() {
    const auto c = prng::e4m3("op/attention/window_codes", kWindow * kDim);
    const auto s = prng::e8m0("op/attention/window_scales", kWindow * kDim / 32, 125, 3);
    for (size_t r = 0; r < kWindow; r++) {
      window.insert(window.end(), &c[r * kDim], &c[r * kDim] + kDim);
      window.insert(window.end(), &s[r * kDim / 32], &s[r * kDim / 32] + kDim / 32);
    }
    codes = prng::bytes("op/attention/main_packed", 1024 * 256);
    scales = prng::e4m3("op/attention/main_scales", 1024 * 32);
    for (uint8_t &x : scales) x &= 127;
    for (const char *name : {"attention.selection_a", "attention.selection_b"}) {
      const auto &t = golden::ops()[name];
      sel.emplace_back(t.as<int32_t>(), t.as<int32_t>() + t.count());
    }
  }

  ced_csa2_attend_args arguments(Rig &rig, const std::vector<int> &queries, size_t packed, bool late) const {
    const Pages pages(rig, 2, 1024, 64, 1);
    for (size_t slot : {size_t{0}, size_t{1}}) {
      pages.write(rig, slot, pages.kv.main_codes, 256, codes);
      pages.write(rig, slot, pages.kv.main_scales, 32, scales);
    }
    const auto q = prng::xb("op/attention/q", 2 * kHeads * kDim, 1);
    std::vector<int32_t> pos, slot, key_pos, key_slot, selected;
    std::vector<uint16_t> rows;
    std::vector<uint8_t> step;
    std::vector<uint8_t> ring(2 * kWindow * kRow, 0x55);
    for (int query : queries) {
      const int seen = query == 0 ? 128 : 100, first = query == 1 && late ? 28 : 0;
      const auto *x = &q[static_cast<size_t>(query) * kHeads * kDim];
      rows.insert(rows.end(), x, x + kHeads * kDim);
      pos.push_back(first + seen - 1), slot.push_back(query);
      auto chosen = sel[static_cast<size_t>(query)];
      chosen.resize(512, -1);
      selected.insert(selected.end(), chosen.begin(), chosen.end());
      for (int i = 0; i < seen; i++) {
        const uint8_t *row = &window[static_cast<size_t>(i) * kRow];
        if (static_cast<size_t>(seen - i) <= packed) {
          key_pos.push_back(first + i), key_slot.push_back(query);
          step.insert(step.end(), row, row + kRow);
        } else {
          const auto place = static_cast<size_t>(query) * kWindow + static_cast<size_t>(first + i) % kWindow;
          std::copy(row, row + kRow, &ring[place * kRow]);
        }
      }
    }
    ced_csa2_attend_args a{};
    a.rows = rig.sequence_rows(pos, slot), a.key_rows = rig.sequence_rows(key_pos, key_slot);
    a.q = rig.put(rows), a.packed = rig.put(step), a.ring = rig.put(ring);
    a.window_start = rig.put(std::vector<int32_t>{0, late ? 28 : 0});
    a.sel = rig.put(selected), a.sink = rig.put(prng::xf("op/attention/sink", kHeads));
    a.o = rig.out<uint16_t>(rows.size());
    a.kv = pages.kv;
    a.max_rows = static_cast<uint32_t>(queries.size()), a.heads = kHeads, a.head_dim = kDim;
    a.window = kWindow, a.ring_rows = kWindow, a.top_k = 512;
    a.workspace = rig.out<uint8_t>(ced_csa2_attend_workspace(rig.stream(), &a));
    return a;
  }
};

const Golden &inputs() {
  static const Golden g;
  return g;
}

std::vector<uint16_t> attend(Rig &rig, const ced_csa2_attend_args &a) {
  rig.run(ced_csa2_attend, a);
  return rig.get<uint16_t>(a.o, static_cast<size_t>(a.max_rows) * a.heads * a.head_dim);
}

}  // namespace

TEST("csa2_attend: the reference has the golden's bits, the CPU its tolerance") {
  const auto &want = golden::ops()["attention.o"], &exact = golden::ops()["attention.o_exact"];
  for (ced_kind kind : bodies("csa2_attend")) {
    CONTEXT("kind=" << kind);
    Rig rig(kind);
    const auto got = attend(rig, inputs().arguments(rig, {0, 1}, 1, false));
    if (kind == CED_REF) CHECK_BITS(got.data(), want.as<uint16_t>(), want.count());
    CHECK_ROWS(got.data(), want.as<uint16_t>(), 2 * kHeads, kDim, check::kAttention);
    CHECK_ROWS(got.data(), exact.as<float>(), 2 * kHeads, kDim, kExact);
  }
}

TEST("csa2_attend: the bits do not depend on batch, threads, the window's start or where its rows lie") {
  for (ced_kind kind : fast_bodies("csa2_attend")) {
    CONTEXT("kind=" << kind);
    Rig one(kind, 1), many(kind, 5);
    const auto want = attend(one, inputs().arguments(one, {0, 1}, 1, false));
    const size_t row = kHeads * kDim;
    CHECK_BITS(attend(many, inputs().arguments(many, {0, 1}, 1, false)).data(), want.data(), 2 * row);
    CHECK_BITS(attend(many, inputs().arguments(many, {0}, 1, false)).data(), want.data(), row);
    CHECK_BITS(attend(one, inputs().arguments(one, {1}, 1, false)).data(), &want[row], row);
    CHECK_BITS(attend(many, inputs().arguments(many, {0, 1}, 128, false)).data(), want.data(), 2 * row);
    CHECK_BITS(attend(many, inputs().arguments(many, {0, 1}, 37, true)).data(), want.data(), 2 * row);
  }
}

// Small shapes whose window is no multiple of 64, so that a block holds window and selected rows, and a head count
// and key counts that fill no tile; against attention in f64 without any rounding.
TEST("csa2_attend: a row sees its window and its selection, nothing else") {
  constexpr size_t heads = 6, dim = 32, row = dim + 1;
  struct {
    int pos, start, window;
    std::vector<int32_t> sel;
    bool sliding_only;
  } cases[] = {
      {0, 0, 48, {}, true},
      {9,
       0,
       48,
       {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 25, 29},
       false},
      {75, 0, 48, {3, 30}, false},
      {75, 70, 48, {1}, false},
      {75, 0, 8, {}, false},
      {75, 76, 8, {}, true},  // no key at all
  };
  const auto codes = prng::e4m3("csa2_attend/window", 80 * dim),
             main = prng::bytes("csa2_attend/main", 32 * dim / 2);
  const auto scales = prng::e8m0("csa2_attend/window_scales", 80, 126, 3);
  const auto main_scales = prng::e4m3("csa2_attend/main_scales", 32 * dim / 16);
  const auto q = prng::xb("csa2_attend/q", heads * dim, 0);
  const auto sink = prng::xf("csa2_attend/sink", heads);
  for (const auto &c : cases) {
    for (ced_kind kind : bodies("csa2_attend")) {
      CONTEXT("pos=" << c.pos << " start=" << c.start << " window=" << c.window << " kind=" << kind);
      Rig rig(kind);
      const Pages pages(rig, 1, 32, 8, 2, dim, 32);
      pages.write(rig, 0, pages.kv.main_codes, dim / 2, main);
      pages.write(rig, 0, pages.kv.main_scales, dim / 16, main_scales);
      const size_t ring_rows = static_cast<size_t>(c.window) + 5;
      std::vector<uint8_t> ring(ring_rows * row), packed;
      std::vector<std::vector<double>> keys;
      for (int p = std::max(0, c.pos - static_cast<int>(ring_rows) + 1); p <= c.pos; p++) {
        std::vector<uint8_t> bytes(&codes[static_cast<size_t>(p) * dim],
                                   &codes[static_cast<size_t>(p) * dim] + dim);
        bytes.push_back(scales[static_cast<size_t>(p)]);
        std::copy(bytes.begin(), bytes.end(), &ring[static_cast<size_t>(p) % ring_rows * row]);
        if (p == c.pos) packed = bytes;
        if (p < c.start || p <= c.pos - c.window) continue;
        keys.emplace_back();
        for (size_t d = 0; d < dim; d++)
          keys.back().push_back(ced::e4m3_to_f32(bytes[d]) * ced::e8m0_to_f32(bytes[dim]));
      }
      for (int32_t j : c.sel) {
        keys.emplace_back();
        for (size_t d = 0; d < dim; d++) {
          const auto at = static_cast<size_t>(j) * dim + d;
          keys.back().push_back(ced::e2m1_to_f32(static_cast<uint8_t>(main[at / 2] >> (at % 2 * 4))) *
                                ced::e4m3_to_f32(main_scales[at / 16]));
        }
      }
      std::vector<float> want(heads * dim);
      for (size_t h = 0; h < heads; h++) {
        double total = std::exp(static_cast<double>(sink[h]));
        std::vector<double> o(dim);
        for (const auto &k : keys) {
          double l = 0;
          for (size_t d = 0; d < dim; d++)
            l += ced::bf16_to_f32(q[h * dim + d]) * k[d] / std::sqrt(double(dim));
          total += std::exp(l);
          for (size_t d = 0; d < dim; d++) o[d] += std::exp(l) * k[d];
        }
        for (size_t d = 0; d < dim; d++) want[h * dim + d] = static_cast<float>(o[d] / total);
      }

      auto sel = c.sel;
      sel.resize(32, -1);
      ced_csa2_attend_args a{};
      a.rows = a.key_rows = rig.sequence_rows({c.pos}, {0});
      a.q = rig.put(q), a.packed = rig.put(packed), a.ring = rig.put(ring);
      a.window_start = rig.put(std::vector<int32_t>{c.start});
      a.sel = c.sliding_only ? 0 : rig.put(sel), a.sink = rig.put(sink), a.o = rig.out<uint16_t>(heads * dim);
      a.kv = c.sliding_only ? ced_kv{} : pages.kv;
      a.max_rows = 1, a.heads = heads, a.head_dim = dim, a.window = static_cast<uint32_t>(c.window);
      a.ring_rows = static_cast<uint32_t>(ring_rows), a.top_k = 32;
      a.workspace = rig.out<uint8_t>(ced_csa2_attend_workspace(rig.stream(), &a));
      CHECK_ROWS(attend(rig, a).data(), want.data(), heads, dim, kExact);
    }
  }
}

// A prompt's rows around a full window and a full selection.
TEST("csa2_attend: a row of a prompt has the bits that it has alone, on both sides of every limit") {
  constexpr size_t heads = 9, dim = 64, row = dim + dim / 32, positions = 520, top_k = 512;
  auto window = prng::e4m3("csa2_attend/edge_packed", positions * row);
  for (size_t i = 0; i < window.size(); i++)
    if (i % row >= dim) window[i] = static_cast<uint8_t>(124 + window[i] % 3);
  auto scales = prng::e4m3("csa2_attend/edge_scales", positions * dim / 16);
  const auto main = prng::bytes("csa2_attend/edge_main", positions * dim / 2);
  const auto q = prng::xb("csa2_attend/edge_q", positions * heads * dim, -2);
  const auto arguments = [&](Rig &rig, size_t from, size_t to) {
    const size_t rows = to - from, start = from < 128 ? 0 : from - 128;
    const Pages pages(rig, 1, positions, 8, 1, dim, 32);
    pages.write(rig, 0, pages.kv.main_codes, dim / 2, main);
    pages.write(rig, 0, pages.kv.main_scales, dim / 16, scales);
    std::vector<int32_t> pos, sel(rows * top_k, -1);
    for (size_t r = 0; r < rows; r++) {
      pos.push_back(static_cast<int32_t>(from + r));
      const size_t seen = from + r + 1, skipped = seen > top_k ? seen - top_k : 0;
      for (size_t j = skipped; j < seen; j++) sel[r * top_k + j - skipped] = static_cast<int32_t>(j);
    }
    std::vector<uint8_t> ring(positions * row);
    std::copy(&window[start * row], &window[from * row], &ring[start * row]);
    ced_csa2_attend_args a{};
    a.rows = a.key_rows = rig.sequence_rows(pos, std::vector<int32_t>(rows, 0));
    a.q = rig.put(&q[from * heads * dim], rows * heads * dim),
    a.packed = rig.put(&window[from * row], rows * row);
    a.ring = rig.put(ring), a.window_start = rig.put(std::vector<int32_t>{0}), a.sel = rig.put(sel);
    a.sink = rig.put(prng::xf("csa2_attend/edge_sink", heads)), a.o = rig.out<uint16_t>(rows * heads * dim);
    a.kv = pages.kv, a.max_rows = static_cast<uint32_t>(rows), a.heads = heads, a.head_dim = dim;
    a.window = 128, a.ring_rows = positions, a.top_k = top_k;
    a.workspace = rig.out<uint8_t>(ced_csa2_attend_workspace(rig.stream(), &a));
    return a;
  };
  for (ced_kind kind : fast_bodies("csa2_attend")) {
    CONTEXT("kind=" << kind);
    Rig all(kind, 3);
    const auto want = attend(all, arguments(all, 0, positions));
    for (size_t r : {0u, 1u, 63u, 64u, 126u, 127u, 128u, 129u, 510u, 511u, 512u, 513u}) {
      CONTEXT("row " << r);
      Rig one(kind, 1);
      CHECK_BITS(attend(one, arguments(one, r, r + 1)).data(), &want[r * heads * dim], heads * dim);
    }
  }
}

// Key counts around the borders of a block of 64 and of what is kept on a processor at a time, with blocks that hold no
// key; few rows, whose key blocks a device spreads over its processors, and many.
TEST("csa2_attend: a row has the same bits among any number of rows and with room for any number") {
  constexpr size_t heads = 17, dim = 96, row = dim + dim / 32, positions = 860, rows = 17;
  struct {
    size_t window, top_k, chosen, pos;
  } cases[] = {{128, 512, 0, 0},     {128, 512, 1, 62},   {128, 512, 512, 600},
               {128, 512, 64, 20},   {70, 700, 571, 800}, {70, 700, 700, 800},
               {704, 130, 129, 640}, {65, 0, 0, 300},     {0, 65, 65, 300}};
  const auto ring = [&] {
    auto all = prng::e4m3("csa2_attend/split_ring", positions * row);
    for (size_t i = 0; i < all.size(); i++)
      if (i % row >= dim) all[i] = static_cast<uint8_t>(124 + all[i] % 3);
    return all;
  }();
  const auto scales = prng::e4m3("csa2_attend/split_scales", positions * dim / 16);
  const auto main = prng::bytes("csa2_attend/split_main", positions * dim / 2);
  const auto q = prng::xb("csa2_attend/split_q", rows * heads * dim, -2);
  const auto sink = prng::xf("csa2_attend/split_sink", heads);
  for (const auto &c : cases) {
    CONTEXT("window=" << c.window << " top_k=" << c.top_k << " chosen=" << c.chosen << " pos=" << c.pos);
    const auto arguments = [&](Rig &rig, size_t from, size_t n, size_t room) {
      const Pages pages(rig, 1, positions, 8, 1, dim, 32);
      pages.write(rig, 0, pages.kv.main_codes, dim / 2, main);
      pages.write(rig, 0, pages.kv.main_scales, dim / 16, scales);
      std::vector<int32_t> pos, sel(n * c.top_k, -1);
      for (size_t r = 0; r < n; r++) {
        pos.push_back(static_cast<int32_t>(c.pos + from + r));
        for (size_t i = 0; i < c.chosen; i++) sel[r * c.top_k + i] = static_cast<int32_t>(i + (from + r) % 5);
      }
      ced_csa2_attend_args a{};
      a.rows = rig.sequence_rows(pos, std::vector<int32_t>(n, 0)), a.key_rows = rig.sequence_rows({}, {});
      a.q = rig.put(&q[from * heads * dim], n * heads * dim), a.packed = a.ring = rig.put(ring);
      a.window_start = rig.put(std::vector<int32_t>{0}), a.sel = c.top_k > 0 ? rig.put(sel) : 0;
      a.sink = rig.put(sink), a.o = rig.out<uint16_t>(room * heads * dim), a.kv = pages.kv;
      a.max_rows = static_cast<uint32_t>(room), a.heads = heads, a.head_dim = dim;
      a.window = static_cast<uint32_t>(c.window), a.top_k = static_cast<uint32_t>(c.top_k);
      a.ring_rows = positions;
      a.workspace = rig.out<uint8_t>(ced_csa2_attend_workspace(rig.stream(), &a));
      return a;
    };
    for (ced_kind kind : fast_bodies("csa2_attend")) {
      CONTEXT("kind=" << kind);
      Rig rig(kind), reference(CED_REF);
      const auto want = attend(rig, arguments(rig, 0, rows, rows));
      const auto exact = attend(reference, arguments(reference, 0, rows, rows));
      CHECK_ROWS(want.data(), exact.data(), rows * heads, dim, check::kAttention);
      const auto check = [&](size_t from, size_t n, size_t room) {
        CONTEXT(n << " rows from " << from << " of " << room);
        Rig some(kind, 3);
        const auto got = attend(some, arguments(some, from, n, room));
        CHECK_BITS(got.data(), &want[from * heads * dim], n * heads * dim);
      };
      check(0, 16, 16), check(16, 1, 1), check(3, 2, 40);
    }
  }
}

// A device has another form for rows of prompts, and two bodies of that: three sequences of different length in one step,
// windows that begin in the ring or at a start of their own, more and fewer keys than are kept.
TEST("csa2_attend: rows of prompts have the bits that they have in a step of their own") {
  struct {
    size_t heads, dim, rows, top_k;
    const char *wgmma;
  } cases[] = {{17, 128, 17, 70, "1"},
               {64, 128, 130, 70, "0"},
               {70, 128, 40, 200, "1"},
               {64, 512, 17, 130, "1"},
               {64, 512, 17, 130, "0"}};
  constexpr size_t window = 128, slots = 3, groups = 600, ring_rows = 160;
  const char *set = getenv("CEDRUN_WGMMA");
  const std::string before = set != nullptr ? set : "";
  for (const auto &c : cases) {
    const size_t row = c.dim + c.dim / 32;
    const std::string name = "csa2_attend/prompts" + std::to_string(c.dim);
    const auto bytes = [&](const char *what, size_t n) {
      auto all = prng::e4m3(name + what, n);
      for (size_t i = 0; i < n; i++)
        if (i % row >= c.dim) all[i] = static_cast<uint8_t>(124 + all[i] % 3);
      return all;
    };
    const auto packed = bytes("/packed", c.rows * row), ring = bytes("/ring", slots * ring_rows * row);
    const auto main = prng::bytes(name + "/main", groups * c.dim / 2);
    const auto scales = prng::e4m3(name + "/scales", groups * c.dim / 16);
    const auto q = prng::xb(name + "/q", c.rows * c.heads * c.dim, -3);
    const auto sink = prng::xf(name + "/sink", c.heads);
    // Of each sequence: its rows, and the position of the first.
    const size_t share = c.rows / 4, counts[slots] = {c.rows - share - 1, share, 1};
    const int32_t starts[slots] = {0, 150, 1100};
    const prng::Stream random(name + "/sel");
    // `few` rows at most from the sequence's row `from` on; all rows: slot 3.
    const auto arguments = [&](Rig &rig, size_t slot, size_t from, size_t few) {
      const Pages pages(rig, slots, groups, 8, 1, static_cast<uint32_t>(c.dim), 32);
      for (size_t i = 0; i < slots; i++) {
        pages.write(rig, i, pages.kv.main_codes, static_cast<uint32_t>(c.dim / 2), main);
        pages.write(rig, i, pages.kv.main_scales, static_cast<uint32_t>(c.dim / 16), scales);
      }
      std::vector<int32_t> pos, slot_of, key_pos, key_slot, sel;
      std::vector<uint16_t> queries;
      std::vector<uint8_t> step;
      size_t index = 0;
      for (size_t i = 0; i < slots; i++)
        for (size_t r = 0; r < counts[i]; r++, index++) {
          const int32_t at = starts[i] + static_cast<int32_t>(r);
          if (slot != slots && i != slot) continue;
          key_pos.push_back(at), key_slot.push_back(static_cast<int32_t>(i));
          step.insert(step.end(), &packed[index * row], &packed[index * row] + row);
          if (slot != slots && (r < from || r >= from + few)) continue;
          pos.push_back(at), slot_of.push_back(static_cast<int32_t>(i));
          queries.insert(queries.end(), &q[index * c.heads * c.dim],
                         &q[index * c.heads * c.dim] + c.heads * c.dim);
          const size_t seen = std::min(static_cast<size_t>(at + 1) / 2, groups);
          const size_t chosen = std::min(seen, c.top_k),
                       skip = seen > chosen ? random.below(index, seen - chosen) : 0;
          for (size_t k = 0; k < c.top_k; k++)
            sel.push_back(k < chosen ? static_cast<int32_t>(skip + k) : -1);
        }
      ced_csa2_attend_args a{};
      a.rows = rig.sequence_rows(pos, slot_of), a.key_rows = rig.sequence_rows(key_pos, key_slot);
      a.q = rig.put(queries), a.packed = rig.put(step), a.ring = rig.put(ring);
      a.window_start = rig.put(std::vector<int32_t>{0, 120, 0}), a.sel = rig.put(sel), a.sink = rig.put(sink);
      a.o = rig.out<uint16_t>(queries.size()), a.kv = pages.kv;
      a.max_rows = static_cast<uint32_t>(pos.size()), a.heads = static_cast<uint32_t>(c.heads);
      a.head_dim = static_cast<uint32_t>(c.dim), a.window = window, a.ring_rows = ring_rows;
      a.top_k = static_cast<uint32_t>(c.top_k);
      a.workspace = rig.out<uint8_t>(ced_csa2_attend_workspace(rig.stream(), &a));
      return a;
    };
    for (ced_kind kind : fast_bodies("csa2_attend")) {
      if (kind != CED_CUDA) continue;  // the others have one form
      CONTEXT("heads=" << c.heads << " dim=" << c.dim << " rows=" << c.rows << " wgmma=" << c.wgmma);
      setenv("CEDRUN_WGMMA", c.wgmma, 1);
      Rig rig(kind);
      const auto all = attend(rig, arguments(rig, slots, 0, 0));
      size_t index = 0;
      for (size_t i = 0; i < slots; i++)
        for (size_t r = 0; r < counts[i]; index++, r++) {
          if (r != 0 && r + 1 != counts[i] && r != counts[i] / 2) continue;
          CONTEXT("sequence " << i << " row " << r);
          Rig alone(kind);
          const auto one = attend(alone, arguments(alone, i, r, 1));
          CHECK_BITS(&all[index * c.heads * c.dim], one.data(), c.heads * c.dim);
        }
      if (set != nullptr) {
        setenv("CEDRUN_WGMMA", before.c_str(), 1);
      } else {
        unsetenv("CEDRUN_WGMMA");
      }
    }
  }
}

// Random bytes in every format, queries over some 100 binades with zeros among them; shapes that fill no tile.
TEST("csa2_attend: every instruction set gives the same bits") {
  struct {
    size_t heads, dim;
    int pos, window;
    size_t chosen;
  } cases[] = {{1, 32, 0, 8, 0}, {5, 96, 40, 33, 1}, {8, 544, 90, 64, 63}, {19, 256, 129, 128, 130}};
  for (const auto &c : cases) {
    CONTEXT("heads=" << c.heads << " dim=" << c.dim);
    const size_t row = c.dim + c.dim / 32, rows = 2;
    Rig rig(CED_CPU, 3);
    const Pages pages(rig, 1, 160, 8, 1, static_cast<uint32_t>(c.dim), 32);
    const std::string name = "csa2_attend/isa" + std::to_string(c.dim);
    pages.write(rig, 0, pages.kv.main_codes, static_cast<uint32_t>(c.dim / 2),
                prng::bytes(name + "/main", 160 * c.dim / 2));
    auto scales = prng::bytes(name + "/scales", 160 * c.dim / 16);
    for (uint8_t &s : scales) s = (s & 127) == 127 ? 0 : s;
    pages.write(rig, 0, pages.kv.main_scales, static_cast<uint32_t>(c.dim / 16), scales);
    auto ring = prng::bytes(name + "/ring", 160 * row);
    const auto exponents = prng::e8m0(name + "/exponents", ring.size(), 105, 40);
    for (size_t i = 0; i < ring.size(); i++)
      if (i % row >= c.dim) ring[i] = exponents[i];
    auto q = prng::xb(name + "/q", rows * c.heads * c.dim, 0);
    const prng::Stream random(name + "/binade");
    for (size_t i = 0; i < q.size(); i++)
      q[i] = random.below(i, 8) == 0
                 ? 0
                 : ced::f32_to_bf16(std::ldexp(ced::bf16_to_f32(q[i]),
                                               10 - static_cast<int>(random.below(i, i % 3 == 0 ? 90 : 14))));
    std::vector<int32_t> sel(rows * 160, -1);
    for (size_t r = 0; r < rows; r++)
      for (size_t i = 0; i < c.chosen; i++) sel[r * 160 + i] = static_cast<int32_t>(i + r);
    ced_csa2_attend_args a{};
    a.rows = rig.sequence_rows({c.pos, c.pos + 1}, {0, 0}), a.key_rows = rig.sequence_rows({}, {});
    a.q = rig.put(q), a.packed = rig.out<uint8_t>(row), a.ring = rig.put(ring);
    a.window_start = rig.put(std::vector<int32_t>{0}), a.sel = rig.put(sel);
    a.sink = rig.put(prng::xf(name + "/sink", c.heads)), a.o = rig.out<uint16_t>(q.size());
    a.kv = pages.kv, a.max_rows = rows, a.heads = static_cast<uint32_t>(c.heads);
    a.head_dim = static_cast<uint32_t>(c.dim), a.window = static_cast<uint32_t>(c.window), a.ring_rows = 160;
    a.top_k = 160;
    a.workspace = rig.out<uint8_t>(ced_csa2_attend_workspace(rig.stream(), &a));
    const auto want = attend(rig, a);
    for (const ced::Isa isa : {ced::Isa::kPlain, ced::Isa::kAvx2, ced::Isa::kAvx512, ced::Isa::kNeon}) {
      if (!ced::isa_supported(isa)) continue;
      CONTEXT(ced::isa_name(isa));
      ced::csa2_attend_on(isa, rig.stream(), a);
      CHECK_BITS(rig.get<uint16_t>(a.o, q.size()).data(), want.data(), q.size());
    }
  }
}

TEST("csa2_attend: refuses bad arguments and accepts no rows") {
  Rig rig(CED_CPU);
  const auto good = inputs().arguments(rig, {}, 0, false);
  rig.run(ced_csa2_attend, good);
  auto a = good;
  a.head_dim = 48;
  CHECK(says(rig.refusal(ced_csa2_attend, a), "csa2_attend: head_dim is 48"));
  a = good, a.ring_rows = 100;
  CHECK(says(rig.refusal(ced_csa2_attend, a), "ring_rows is 100"));
  a = good, a.kv.head_dim = 256;
  CHECK(says(rig.refusal(ced_csa2_attend, a), "kv.head_dim is 256 but head_dim is 512"));
  a = good, a.workspace = 0;
  CHECK(says(rig.refusal(ced_csa2_attend, a), "workspace is missing"));
  a = good, a.workspace += 4;
  CHECK(says(rig.refusal(ced_csa2_attend, a), "workspace"));
}
