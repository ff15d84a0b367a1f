#include "test/check.h"
#include "test/golden.h"
#include "test/prng.h"
#include "test/rig.h"
#include "test/rules.h"

namespace {

struct Shape {
  uint32_t rows, dim, streams = 4;
  bool y = true, fn = true, codes = true;
  ced_format weight = CED_BF16;
  uint32_t most = 0;  // max_rows, if there may be more than there are
};

ced_mhc_border_args arguments(Rig &rig, const Shape &s, size_t first = 0, size_t shift = 0) {
  const size_t rows = s.rows, n = s.streams, outputs = (2 + n) * n;
  const std::string of = "mhc_border/" + std::to_string(s.dim) + "x" + std::to_string(n) + "/";
  const auto part = [&](auto all, size_t per_row) {
    using T = typename decltype(all)::value_type;
    return rig.put(std::vector<T>(all.begin() + static_cast<ptrdiff_t>(first * per_row), all.end()));
  };
  const auto floats = [&](const char *what, size_t per_row, int e = 0) {
    return part(prng::xf(of + what, (first + rows) * per_row, e), per_row);
  };
  ced_mhc_border_args a{};
  a.rows = rig.rows(static_cast<int32_t>(s.rows));
  if (s.y) a.y = part(prng::xb(of + "y", (first + rows) * s.dim, 0), s.dim);
  a.h = part(prng::xb(of + "h", (first + rows) * n * s.dim, 0), n * s.dim);
  a.post = floats("post", n), a.comb = floats("comb", n * n, -1), a.pre = floats("pre", n);
  a.next = rig.out<float>(rows * n);
  if (s.fn) {
    auto fn = prng::xf(of + "fn", outputs * n * s.dim, -7);
    std::vector<char> bytes(shift + fn.size() * sizeof(float));
    memcpy(bytes.data() + shift, fn.data(), bytes.size() - shift);
    a.fn = rig.put(bytes) + shift;
  }
  a.base = rig.put(prng::xf(of + "base", outputs, -1)), a.scale = rig.put(prng::xf(of + "scale", 3));
  a.weight = s.weight == CED_BF16 ? rig.put(prng::norm(of + "weight", s.dim, -2))
                                  : rig.put(prng::xf(of + "weight", s.dim, -1));
  a.x = rig.out<uint16_t>(rows * s.dim);
  if (s.codes) a.codes = rig.out<uint8_t>(rows * s.dim), a.scales = rig.out<uint8_t>(rows * s.dim / 32);
  a.max_rows = s.most > 0 ? s.most : s.rows, a.dim = s.dim, a.streams = s.streams, a.iters = 20;
  a.weight_format = s.weight, a.norm_eps = 1e-20f, a.hc_eps = 1e-6f;
  return a;
}

// All that the border writes.
struct Result {
  std::vector<uint16_t> h, x;
  std::vector<uint8_t> codes, scales;
  std::vector<float> next, post, comb;
};

Result result(Rig &rig, const ced_mhc_border_args &a, size_t rows) {
  const size_t n = a.streams, dim = a.dim;
  Result r;
  r.h = rig.get<uint16_t>(a.h, rows * n * dim), r.x = rig.get<uint16_t>(a.x, rows * dim);
  if (a.codes) r.codes = rig.get<uint8_t>(a.codes, rows * dim);
  if (a.codes) r.scales = rig.get<uint8_t>(a.scales, rows * dim / 32);
  r.next = rig.get<float>(a.next, rows * n), r.post = rig.get<float>(a.post, rows * n);
  r.comb = rig.get<float>(a.comb, rows * n * n);
  return r;
}

Result border(Rig &rig, const ced_mhc_border_args &a, size_t rows) {
  rig.run(ced_mhc_border, a);
  return result(rig, a, rows);
}

// What the four kernels make of the same.
Result in_turn(Rig &rig, const ced_mhc_border_args &a, size_t rows) {
  if (a.y) {
    ced_mhc_expand_args e{};
    e.rows = a.rows, e.y = a.y, e.post = a.post, e.comb = a.comb, e.h = a.h;
    e.max_rows = a.max_rows, e.dim = a.dim, e.streams = a.streams;
    rig.run(ced_mhc_expand, e);
  }
  if (a.fn) {
    ced_mhc_mix_args m{};
    m.rows = a.rows, m.h = a.h, m.fn = a.fn, m.base = a.base, m.scale = a.scale;
    m.pre = a.next, m.post = a.post, m.comb = a.comb;
    m.max_rows = a.max_rows, m.dim = a.dim, m.streams = a.streams, m.iters = a.iters;
    m.norm_eps = a.norm_eps, m.hc_eps = a.hc_eps;
    rig.run(ced_mhc_mix, m);
  }
  ced_mhc_collapse_args c{};
  c.rows = a.rows, c.h = a.h, c.pre = a.pre, c.x = a.x;
  c.max_rows = a.max_rows, c.dim = a.dim, c.streams = a.streams;
  rig.run(ced_mhc_collapse, c);
  ced_norm_quant_args q{};
  q.rows = a.rows, q.x = a.x, q.weight = a.weight, q.y = a.x, q.codes = a.codes, q.scales = a.scales;
  q.max_rows = a.max_rows, q.n = a.dim, q.weight_format = a.weight_format, q.eps = a.norm_eps;
  rig.run(ced_norm_quant, q);
  return result(rig, a, rows);
}

// Row `at` of all, and those behind it, as many as part has.
void check_rows(const Result &part, const Result &all, size_t at, size_t rows) {
  const auto same = [&](const auto &a, const auto &b) {
    const size_t width = a.size() / rows;
    CHECK_BITS(a.data(), b.data() + at * width, a.size());
  };
  same(part.h, all.h), same(part.x, all.x);
  same(part.codes, all.codes), same(part.scales, all.scales);
  same(part.next, all.next), same(part.post, all.post), same(part.comb, all.comb);
}

void check_shape(ced_kind kind, const Shape &s, size_t shift = 0) {
  CONTEXT("kind=" << kind << " rows=" << s.rows << " dim=" << s.dim << " streams=" << s.streams
                  << " y=" << s.y << " fn=" << s.fn << " codes=" << s.codes);
  Rig rig(kind);
  const auto want = in_turn(rig, arguments(rig, s, 0, shift), s.rows);
  check_rows(border(rig, arguments(rig, s, 0, shift), s.rows), want, 0, s.rows);
}

}  // namespace

TEST("mhc_border: has the bits of expand, mix, collapse and norm in turn, from 1 to 17 rows") {
  for (ced_kind kind : bodies("mhc_border"))
    for (uint32_t rows = 1; rows <= 17; rows++) check_shape(kind, {rows, 160});
}

TEST("mhc_border: the same at the release's width") {
  for (ced_kind kind : bodies("mhc_border")) {
    check_shape(kind, {1, 5120});
    check_shape(kind, {3, 5120});
  }
}

TEST("mhc_border: the same for every width, number of streams, format and absent operand") {
  for (ced_kind kind : bodies("mhc_border")) {
    for (uint32_t dim : {32u, 64u, 544u}) check_shape(kind, {5, dim});
    for (uint32_t streams : {1u, 2u, 3u, 5u, 8u}) check_shape(kind, {2, 96, streams});
    for (uint32_t streams : {3u, 6u, 8u}) check_shape(kind, {17, 96, streams});  // 48 KB of shared memory, 96
    check_shape(kind, {3, 192, 4, false}), check_shape(kind, {3, 192, 4, true, false});
    check_shape(kind, {3, 192, 4, true, true, false}), check_shape(kind, {3, 192, 4, false, false, false});
    check_shape(kind, {3, 192, 4, true, true, true, CED_F32});
    check_shape(kind, {2, 160}, 1), check_shape(kind, {2, 160}, 4), check_shape(kind, {20, 160}, 2);
    check_shape(kind, {1, 160, 4, true, true, true, CED_BF16, 8});
    check_shape(kind, {3, 160, 4, true, true, true, CED_BF16, 40});
  }
}

TEST("mhc_border: a row has the same bits alone, in a batch and on any number of threads") {
  const Shape shape{70, 96};
  for (ced_kind kind : fast_bodies("mhc_border")) {
    CONTEXT("kind=" << kind);
    Rig one(kind, 1), many(kind, 3);
    const auto batch = border(one, arguments(one, shape), shape.rows);
    check_rows(border(many, arguments(many, shape), shape.rows), batch, 0, shape.rows);
    for (auto [first, rows] : {std::pair{69u, 1u}, {60u, 10u}, {50u, 17u}}) {
      CONTEXT("rows " << first << " and " << rows - 1 << " more");
      const Shape some{rows, shape.dim};
      check_rows(border(many, arguments(many, some, first), rows), batch, first, rows);
    }
  }
}

TEST("mhc_border: refuses bad arguments and accepts no rows") {
  Rig rig(CED_CPU);
  const auto good = arguments(rig, {0, 64});
  rig.run(ced_mhc_border, good);
  auto a = good;
  const auto refusal = [&] { return rig.refusal(ced_mhc_border, a); };
  a.streams = 9;
  CHECK(says(refusal(), "mhc_border: streams is 9"));
  a = good, a.dim = 24;
  CHECK(says(refusal(), "mhc_border: dim is 24"));
  a = good, a.rows = rig.rows(1);
  CHECK(says(refusal(), "max_rows"));
  a = good, a.next = a.pre;
  CHECK_EQ(refusal(), "mhc_border: next is the buffer of pre");
  a = good, a.comb = 0;
  CHECK_EQ(refusal(), "mhc_border: comb is missing");
  a = good, a.weight_format = CED_FP8;
  CHECK(says(refusal(), "weight_format is 2"));
  a = good, a.scales = 0;
  CHECK_EQ(refusal(), "mhc_border: scales is missing");
  a = good, a.y = a.fn = a.post = a.comb = a.next = 0;
  rig.run(ced_mhc_border, a);
}
