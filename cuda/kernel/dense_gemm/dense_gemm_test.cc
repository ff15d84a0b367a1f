#include <memory>
#include <string>

#include "kernel/dense_gemm/tile.h"
#include "num/bf16.h"
#include "num/quant.h"
#include "test/check.h"
#include "test/golden.h"
#include "test/prng.h"
#include "test/rig.h"
#include "test/rules.h"

namespace {

// One product's operands in host memory.
struct Problem {
  uint32_t rows = 0, n = 0, k = 0, groups = 1;
  ced_format x_format = CED_FP8, w_format = CED_FP8, y_format = CED_BF16;
  std::vector<uint8_t> x, x_scales, w, w_scales, y;  // raw bytes
};

template <class T>
std::vector<uint8_t> raw(const std::vector<T> &v) {
  const auto *p = reinterpret_cast<const uint8_t *>(v.data());
  return {p, p + v.size() * sizeof(T)};
}

void set_activations(Problem &p, const std::vector<uint16_t> &x) {
  if (p.x_format == CED_BF16) {
    p.x = raw(x);
    return;
  }
  p.x.resize(x.size()), p.x_scales.resize(x.size() / 32);
  for (size_t g = 0; g < p.x_scales.size(); g++) {
    float v[32];
    for (size_t i = 0; i < 32; i++) v[i] = ced::bf16_to_f32(x[32 * g + i]);
    ced::act_quant32(v, &p.x[32 * g], &p.x_scales[g]);
  }
}

// Activations x [rows, groups*k] at stream `name`/x, weights [groups*n, k] at `name`, scales from base.
Problem problem(const std::string &name, uint32_t rows, uint32_t groups, uint32_t n, uint32_t k,
                ced_format x_format, ced_format w_format, ced_format y_format = CED_BF16,
                uint32_t base = 117) {
  Problem p;
  p.rows = rows, p.n = n, p.k = k, p.groups = groups;
  p.x_format = x_format, p.w_format = w_format, p.y_format = y_format;
  const size_t size = static_cast<size_t>(groups) * n * k, outputs = static_cast<size_t>(groups) * n;
  set_activations(p, prng::xb(name + "/x", static_cast<size_t>(rows) * groups * k, -1));
  switch (w_format) {
    case CED_FP8:
      p.w = prng::e4m3(name + "/weight", size);
      p.w_scales = prng::e8m0(name + "/scale", (outputs + 31) / 32 * ((k + 31) / 32), base);
      break;
    case CED_FP4:
      p.w = prng::bytes(name + "/weight", size / 2);
      p.w_scales = prng::e8m0(name + "/scale", size / 32, base);
      break;
    case CED_BF16:
      p.w = raw(prng::xb(name + "/weight", size, -6));
      break;
    case CED_F32:  // all mantissa bits in use
      p.w = raw(prng::generate<float>(
          size, [&](size_t i) { return prng::Stream(name)[i] % 16777213 * 0x1p-27f - 0.06f; }));
  }
  return p;
}

ced_dense_gemm_args arguments(Rig &rig, const Problem &p, uint64_t offset = 0) {
  ced_dense_gemm_args a{};
  const auto unaligned = [&](const std::vector<uint8_t> &v) {
    std::vector<uint8_t> bytes(offset);
    bytes.insert(bytes.end(), v.begin(), v.end());
    return rig.put(bytes) + offset;
  };
  a.rows = rig.rows(static_cast<int32_t>(p.rows));
  a.x = rig.put(p.x), a.x_scales = rig.put(p.x_scales);
  a.w = unaligned(p.w), a.w_scales = unaligned(p.w_scales);
  a.y = rig.out<float>(static_cast<size_t>(p.rows) * p.groups * p.n);
  a.max_rows = p.rows, a.n = p.n, a.k = p.k, a.groups = p.groups;
  a.x_format = p.x_format, a.w_format = p.w_format, a.y_format = p.y_format;
  return a;
}

template <class T>
std::vector<T> product(Rig &rig, const Problem &p, uint64_t offset = 0) {
  const auto a = arguments(rig, p, offset);
  rig.run(ced_dense_gemm, a);
  return rig.get<T>(a.y, static_cast<size_t>(p.rows) * p.groups * p.n);
}

// Some rows of a problem: one, or the first.
Problem rows_from(const Problem &p, size_t first, size_t rows) {
  Problem some = p;
  const auto cut = [&](const std::vector<uint8_t> &v) {
    const size_t bytes = v.size() / p.rows;
    return std::vector<uint8_t>(v.begin() + static_cast<long>(first * bytes),
                                v.begin() + static_cast<long>((first + rows) * bytes));
  };
  some.rows = static_cast<uint32_t>(rows), some.x = cut(p.x), some.x_scales = cut(p.x_scales);
  return some;
}
Problem row_of(const Problem &p, size_t r) { return rows_from(p, r, 1); }
Problem rows_of(const Problem &p, size_t rows) { return rows_from(p, 0, rows); }

// Every combination of formats that the contract knows.
const struct {
  ced_format x, w, y;
} kFormats[] = {{CED_FP8, CED_FP8, CED_BF16},  {CED_FP8, CED_FP4, CED_BF16}, {CED_BF16, CED_BF16, CED_BF16},
                {CED_BF16, CED_BF16, CED_F32}, {CED_BF16, CED_F32, CED_F32}, {CED_BF16, CED_F32, CED_BF16},
                {CED_BF16, CED_FP8, CED_BF16}, {CED_BF16, CED_FP8, CED_F32}};

void check_golden(const Problem &p, const std::string &tensor, const check::Rule &rule) {
  const auto &want = golden::ops()[tensor];
  const size_t columns = static_cast<size_t>(p.groups) * p.n;
  for (ced_kind kind : bodies("dense_gemm")) {
    CONTEXT(tensor << " kind=" << kind);
    Rig rig(kind);
    if (p.y_format == CED_F32) {
      const auto got = product<float>(rig, p);
      if (kind == CED_REF) CHECK_BITS(got.data(), want.as<float>(), got.size());
      CHECK_ROWS(got.data(), want.as<float>(), p.rows, columns, rule);
    } else {
      const auto got = product<uint16_t>(rig, p);
      if (kind == CED_REF) CHECK_BITS(got.data(), want.as<uint16_t>(), got.size());
      CHECK_ROWS(got.data(), want.as<uint16_t>(), p.rows, columns, rule);
    }
  }
}

// Small products of many rows: every form that a row count chooses, twice over outputs that were NaN.
template <class T>
void check_row_count(const Problem &p, const check::Rule &rule) {
  const size_t n = static_cast<size_t>(p.groups) * p.n;
  Rig ref(CED_REF);
  const auto want = product<T>(ref, p);
  for (ced_kind kind : fast_bodies("dense_gemm")) {
    CONTEXT("kind=" << kind);
    Rig rig(kind);
    const auto a = arguments(rig, p);
    std::vector<T> got[2];
    for (auto &y : got) {
      rig.poison<T>(a.y, p.rows * n);
      rig.run(ced_dense_gemm, a);
      y = rig.get<T>(a.y, p.rows * n);
    }
    CHECK_ROWS(got[0].data(), want.data(), p.rows, n, rule);
    CHECK_BITS(got[1].data(), got[0].data(), got[0].size());
    for (size_t r : {size_t{0}, size_t{p.rows / 2}, size_t{p.rows - 1}})
      CHECK_BITS(product<T>(rig, row_of(p, r)).data(), &got[0][r * n], n);
  }
}

}  // namespace

TEST(
    "dense_gemm: 1 to 1024 rows: the reference's values, a row's own bits, no NaN of what lay there before") {
  for (const auto &f : kFormats) {
    for (uint32_t rows : {1u, 17u, 65u, 300u, 1024u}) {
      CONTEXT("x=" << f.x << " w=" << f.w << " y=" << f.y << " rows=" << rows);
      const Problem p = problem("dense_gemm/rows", rows, 1, 40, 160, f.x, f.w, f.y);
      if (f.y == CED_F32) {
        check_row_count<float>(p, check::kLogit);
      } else {
        check_row_count<uint16_t>(p, check::kLinear);
      }
    }
  }
}

TEST("dense_gemm: FP8 linears at release widths: golden bits on the reference, tolerance on the CPU") {
  const struct {
    const char *name;
    uint32_t n, k;
  } cases[] = {{"wq_a", 1280, 5120}, {"wq_b", 32768, 1280},        {"wkv", 512, 5120},
               {"wo_b", 5120, 8192}, {"indexer_wq_b", 4096, 1280}, {"main_proj", 5120, 15360}};
  for (const auto &c : cases)
    check_golden(problem(std::string("op/") + c.name, 2, 1, c.n, c.k, CED_FP8, CED_FP8),
                 std::string(c.name) + ".y", check::kLinear);
}

TEST("dense_gemm: FP4 linears at release widths: golden bits on the reference, tolerance on the CPU") {
  for (const char *w : {"w1", "w3"}) {
    const std::string name = std::string("op/expert_fp4/") + w;
    Problem p = problem(name, 3, 1, 2304, 5120, CED_FP8, CED_FP4, CED_BF16, 121);
    set_activations(p, prng::xb("op/expert_fp4/x", 3 * 5120, -1));
    check_golden(p, std::string("expert_fp4.") + w + "_out", check::kLinear);
  }
}

TEST("dense_gemm: BF16 activations with BF16 weights to F32: router and head") {
  Problem head = problem("op/head", 1, 1, 4096, 5120, CED_BF16, CED_BF16, CED_F32);
  set_activations(head, prng::xb("op/head/x", 5120, 0));
  check_golden(head, "head.logits", check::kLogit);
  Problem gate = problem("op/gate", 4, 1, 384, 5120, CED_BF16, CED_BF16, CED_F32);
  gate.w = raw(prng::xb("op/gate/weight", 384 * 5120, -5));
  auto x = prng::xb("op/gate/x", 4 * 5120, -1);
  for (size_t i = 2 * 5120; i < 3 * 5120; i++) x[i] = ced::f32_to_bf16(ced::bf16_to_f32(x[i]) * 16);
  set_activations(gate, x);
  check_golden(gate, "gate.logits", check::kLogit);
}

TEST("dense_gemm: a head of the released vocabulary of 129,280 columns") {
  const Problem p = problem("op/head_columns", 2, 1, 129280, 64, CED_BF16, CED_BF16, CED_F32);
  Rig ref(CED_REF);
  const auto want = product<float>(ref, p);
  for (ced_kind kind : bodies("dense_gemm")) {
    CONTEXT("kind=" << kind);
    Rig rig(kind, 3);
    const auto got = product<float>(rig, p);
    CHECK_ROWS(got.data(), want.data(), p.rows, p.n, check::kLogit);
  }
}

TEST("dense_gemm: the output projection: eight groups of wo_a, then wo_b") {
  Problem a = problem("op/wo_a", 2, 8, 1024, 4096, CED_BF16, CED_FP8);
  set_activations(a, prng::xb("op/wo_a/o", 2 * 8 * 4096, -1));
  Problem b = problem("op/wo_a/wo_b", 2, 1, 5120, 8192, CED_FP8, CED_FP8, CED_BF16, 113);
  const auto &want = golden::ops()["wo_a.y"];
  for (ced_kind kind : bodies("dense_gemm")) {
    CONTEXT("kind=" << kind);
    Rig rig(kind);
    set_activations(b, product<uint16_t>(rig, a));
    const auto got = product<uint16_t>(rig, b);
    if (kind == CED_REF) CHECK_BITS(got.data(), want.as<uint16_t>(), got.size());
    CHECK_ROWS(got.data(), want.as<uint16_t>(), 2, 5120, check::kExpert);
  }
}

TEST("dense_gemm: every combination of formats: CPU against reference, odd sizes, weights at any byte") {
  for (const auto &f : kFormats) {
    for (uint32_t n : {1u, 17u, 40u}) {
      for (uint32_t k : {32u, 96u, 544u, 20u, 33u, 530u}) {
        if (k % 32 != 0 && f.x == CED_FP8) continue;
        for (uint32_t groups : {1u, 3u}) {
          CONTEXT("x=" << f.x << " w=" << f.w << " y=" << f.y << " n=" << n << " k=" << k
                       << " groups=" << groups);
          const Problem p = problem("dense_gemm", 5, groups, n, k, f.x, f.w, f.y);
          Rig ref(CED_REF);
          for (ced_kind kind : bodies("dense_gemm")) {
            CONTEXT("kind=" << kind);
            Rig rig(kind);
            for (uint64_t offset : {0u, 3u}) {
              if (f.y == CED_F32) {
                const auto want = product<float>(ref, p, 1), got = product<float>(rig, p, offset);
                CHECK_ROWS(got.data(), want.data(), 5, groups * n, check::kLogit);
              } else {
                const auto want = product<uint16_t>(ref, p, 1), got = product<uint16_t>(rig, p, offset);
                CHECK_ROWS(got.data(), want.data(), 5, groups * n, check::kLinear);
              }
            }
          }
        }
      }
    }
  }
}

TEST("dense_gemm: groups read their own part of the row and their own weights") {
  // Two groups of one weight row each: y = (x[0] * 2, x[1] * 8) through an exact dot product of one element.
  Problem p;
  p.rows = 1, p.n = 1, p.k = 1, p.groups = 2, p.x_format = CED_BF16, p.w_format = CED_F32,
  p.y_format = CED_F32;
  p.x = raw(std::vector<uint16_t>{ced::f32_to_bf16(3), ced::f32_to_bf16(5)});
  p.w = raw(std::vector<float>{2, 8});
  for (ced_kind kind : bodies("dense_gemm")) {
    Rig rig(kind);
    const auto y = product<float>(rig, p);
    CHECK_EQ(y[0], 6.0f);
    CHECK_EQ(y[1], 40.0f);
  }
}

TEST("dense_gemm: a row has the same bits alone, in a batch and on any number of threads") {
  for (const auto &f : kFormats) {
    CONTEXT("x=" << f.x << " w=" << f.w << " y=" << f.y);
    const size_t n = 50;
    const Problem p = problem("dense_gemm", 15, 1, n, 1056, f.x, f.w, CED_BF16);  // 15 rows: 8 + 4 + 2 + 1
    for (ced_kind kind : bodies("dense_gemm")) {
      Rig one(kind, 1);
      const auto batch = product<uint16_t>(one, p);
      for (int threads : {2, 3}) {
        Rig many(kind, threads);
        CHECK_BITS(product<uint16_t>(many, p).data(), batch.data(), batch.size());
        for (size_t r : {0u, 7u, 11u, 13u, 14u})
          CHECK_BITS(product<uint16_t>(many, row_of(p, r)).data(), &batch[r * n], n);
      }
    }
  }
}

TEST("dense_gemm: a row of a prompt has the bits that it has alone") {
  const struct {
    uint32_t rows, groups, n, k;
  } shapes[] = {{17, 1, 50, 1056}, {64, 2, 16, 544}, {65, 1, 150, 32}, {130, 1, 129, 96}, {129, 3, 20, 640}};
  for (const auto &f : kFormats) {
    if (f.y != CED_BF16) continue;
    for (const auto &c : shapes) {
      CONTEXT("x=" << f.x << " w=" << f.w << " rows=" << c.rows << " n=" << c.n << " k=" << c.k);
      const size_t n = static_cast<size_t>(c.groups) * c.n;
      const Problem p = problem("dense_gemm", c.rows, c.groups, c.n, c.k, f.x, f.w, CED_BF16);
      for (ced_kind kind : fast_bodies("dense_gemm")) {
        Rig rig(kind);
        const auto all = product<uint16_t>(rig, p);
        for (uint32_t r : {0u, 7u, 8u, 16u, c.rows / 2, c.rows - 1})
          CHECK_BITS(product<uint16_t>(rig, row_of(p, r)).data(), &all[r * n], n);
      }
    }
  }
}

TEST("dense_gemm: aligned weights have the bits of those that start at any byte, in any batch") {
  const struct {
    uint32_t groups, n, k;
  } cases[] = {{1, 640, 1152}, {3, 48, 640}, {1, 50, 128}, {1, 300, 2304}, {1, 24, 5120}};
  for (const auto &f : kFormats) {
    for (const auto &c : cases) {
      if (c.k == 5120 && f.x != CED_FP8) continue;
      // With scales around 1 in one of them.
      const Problem p =
          problem("dense_gemm", 17, c.groups, c.n, c.k, f.x, f.w, CED_BF16, c.k == 640 ? 126 : 117);
      const size_t columns = static_cast<size_t>(c.groups) * c.n;
      for (ced_kind kind : fast_bodies("dense_gemm")) {
        CONTEXT("x=" << f.x << " w=" << f.w << " groups=" << c.groups << " n=" << c.n << " k=" << c.k
                     << " kind=" << kind);
        Rig rig(kind);
        const auto batch = product<uint16_t>(rig, p);
        CHECK_BITS(product<uint16_t>(rig, p, 1).data(), batch.data(), batch.size());
        for (size_t rows : {1u, 7u, 8u, 9u, 16u}) {
          CONTEXT("rows=" << rows);
          const auto got = product<uint16_t>(rig, rows_of(p, rows));
          CHECK_BITS(got.data(), batch.data(), rows * columns);
        }
      }
    }
  }
}

TEST(
    "dense_gemm: every instruction set gives the same bits: any row count, odd k, unaligned rows, extreme "
    "scales") {
  // Codes and scales at random; the last kinds of operands bring sums of subnormals, infinities and NaN.
  const prng::Stream random("dense_gemm/isa");
  size_t draw = 0;
  const auto below = [&](uint64_t n) { return random.below(draw++, n); };
  enum Kind { kUsual, kTiny, kWild, kKinds };
  const auto fill = [&](std::vector<uint8_t> &bytes, ced_format f, Kind kind) {
    for (auto &b : bytes) b = static_cast<uint8_t>(below(256));
    const auto has_nan = [&] { return kind == kWild && below(400) == 0; };
    if (f == CED_FP8)
      for (auto &b : bytes)
        if ((b & 0x7F) == 0x7F && !has_nan()) b = static_cast<uint8_t>(b & 0x80);
    for (size_t i = 1; (f == CED_BF16 && i < bytes.size()) || (f == CED_F32 && 2 * i + 1 < bytes.size());
         i += 2) {
      uint8_t *top = f == CED_BF16 ? &bytes[i] : &bytes[2 * i + 1];  // sign and 7 bits of the exponent
      const uint64_t exponent = kind == kUsual ? 58 + below(8) : kind == kTiny ? below(34) : below(128);
      *top = static_cast<uint8_t>((*top & 0x80) | (exponent == 127 && !has_nan() ? 64 : exponent));
    }
  };
  const auto scale = [&](Kind kind) {
    return static_cast<uint8_t>(kind == kUsual ? 110 + below(20) : kind == kTiny ? below(70) : below(255));
  };
  const auto bytes32 = [](ced_format f) {
    return f == CED_F32 ? 128 : f == CED_BF16 ? 64 : f == CED_FP8 ? 32 : 16;
  };
  const auto sums = std::make_unique<ced::GemmSums[]>(2);
  for (const auto &f : kFormats) {
    if (f.y != CED_BF16) continue;
    for (int round = 0; round < 90; round++) {
      const auto kind = static_cast<Kind>(round % kKinds);
      const bool kept = f.w == CED_BF16 && round % 6 == 5;  // activation rows that stay BF16
      const auto k = static_cast<uint32_t>(kept             ? 32 * (33 + below(32))
                                           : f.x == CED_FP8 ? 32 * (1 + below(45))
                                                            : 1 + below(1400));
      const int rows = static_cast<int>(kept ? 5 + below(4) : round < 30 ? 1 + round / 3 : 1 + below(70));
      const int count = static_cast<int>(1 + below(round % 4 == 0 ? ced::kTileWeights : 40));
      CONTEXT("x=" << f.x << " w=" << f.w << " kind=" << kind << " k=" << k << " rows=" << rows
                   << " n=" << count);
      const size_t groups = (k + 31) / 32, xb = static_cast<size_t>(bytes32(f.x)) * k / 32,
                   wb = static_cast<size_t>(bytes32(f.w)) * k / 32;
      std::vector<uint8_t> x(rows * xb), w(count * wb), x_scales(rows * groups), w_scales(count * groups);
      fill(x, f.x, kind), fill(w, f.w, kind);
      for (auto &b : x_scales) b = scale(kind);
      for (auto &b : w_scales) b = scale(kind);
      w.insert(w.begin(), 3, 0);
      std::vector<ced::GemmRow> xr, wr(count);
      for (int r = 0; r < rows; r++) xr.push_back({&x[r * xb], &x_scales[r * groups]});
      ced::weight_rows(f.w, &w[3], w_scales.data(), k, 0, count, wr.data());
      ced::gemm_tile(ced::Isa::kPlain, f.x, f.w, k, wr.data(), count, xr.data(), rows, sums[0]);
      for (ced::Isa isa : {ced::Isa::kAvx2, ced::Isa::kAvx512, ced::Isa::kAvx512Bf16, ced::Isa::kNeon}) {
        if (!ced::isa_supported(isa)) continue;
        CONTEXT("isa=" << ced::isa_name(isa));
        ced::gemm_tile(isa, f.x, f.w, k, wr.data(), count, xr.data(), rows, sums[1]);
        for (int r = 0; r < rows; r++) CHECK_BITS(sums[1][r], sums[0][r], static_cast<size_t>(count));
      }
      // A row alone, among fewer weights.
      const int r = static_cast<int>(below(static_cast<uint64_t>(rows))),
                i = static_cast<int>(below(static_cast<uint64_t>(count)));
      ced::gemm_tile(ced::isa(), f.x, f.w, k, &wr[i], count - i, &xr[r], 1, sums[1]);
      CHECK_BITS(sums[1][0], &sums[0][r][i], static_cast<size_t>(count - i));
    }
  }
}

TEST("dense_gemm: all weight codes and extreme scales decode exactly") {
  // One activation 1.0 at k = i picks weight i: y is the dequantised weight, exact in F32.
  std::vector<uint8_t> codes(256);
  for (size_t i = 0; i < 256; i++) codes[i] = static_cast<uint8_t>((i & 127) == 127 ? 0 : i);
  for (int scale : {0, 8, 117, 134, 135, 150, 240}) {
    for (ced_kind kind : bodies("dense_gemm")) {
      if (kind == CED_CUDA && scale == 0) continue;  // 2^-127 times a code: BF16 operands end at 2^-133
      CONTEXT("scale=" << scale << " kind=" << kind);
      Problem p;
      p.rows = 32, p.n = 8, p.k = 32, p.x_format = CED_BF16, p.w_format = CED_FP8, p.y_format = CED_F32;
      std::vector<uint16_t> identity(32 * 32);
      for (size_t i = 0; i < 32; i++) identity[33 * i] = ced::f32_to_bf16(1);
      p.x = raw(identity), p.w = codes, p.w_scales = {static_cast<uint8_t>(scale)};
      Rig rig(kind);
      const auto y = product<float>(rig, p);
      for (size_t i = 0; i < 256; i++)
        CHECK_EQ(y[i % 32 * 8 + i / 32], ced::e4m3_to_f32(codes[i]) * ced::e8m0_to_f32(p.w_scales[0]));
    }
  }
}

TEST("dense_gemm: NaN weights and NaN activations show in their outputs only") {
  for (ced_kind kind : bodies("dense_gemm")) {
    CONTEXT("kind=" << kind);
    Problem p = problem("dense_gemm", 3, 1, 5, 64, CED_FP8, CED_FP8);
    p.w[2 * 64 + 7] = 0xFF;
    p.x[1 * 64 + 40] = 0x7F;
    Rig rig(kind);
    const auto y = product<uint16_t>(rig, p);
    for (size_t r = 0; r < 3; r++)
      for (size_t i = 0; i < 5; i++) CHECK_EQ(std::isnan(ced::bf16_to_f32(y[r * 5 + i])), r == 1 || i == 2);
  }
}

TEST("dense_gemm: refuses bad arguments and accepts no rows") {
  Rig rig(CED_CPU);
  const auto good = arguments(rig, problem("dense_gemm", 1, 1, 32, 64, CED_FP8, CED_FP8));
  auto a = good;
  const auto refusal = [&] { return rig.refusal(ced_dense_gemm, a); };
  a.max_rows = 0;
  CHECK_EQ(refusal(), "dense_gemm: rows holds 1 rows, outside 0..max_rows = 0");
  a = good, a.k = 48;
  CHECK_EQ(refusal(), "dense_gemm: k is 48, must be a positive multiple of 32");
  a = good, a.groups = 0;
  CHECK(says(refusal(), "dense_gemm: groups is 0"));
  a = good, a.x_format = CED_FP4;
  CHECK_EQ(refusal(), "dense_gemm: x_format is 3, must be BF16 or FP8");
  a = good, a.w_format = CED_BF16;
  CHECK_EQ(refusal(), "dense_gemm: w_format is 0, must be FP8 or FP4 with FP8 activations");
  a = good, a.x_format = CED_BF16, a.w_format = CED_FP4;
  CHECK_EQ(refusal(), "dense_gemm: w_format is 3, must be BF16, F32 or FP8 with BF16 activations");
  a = good, a.y_format = CED_F32;
  CHECK_EQ(refusal(), "dense_gemm: y_format is 1, must be BF16 with FP8 activations");
  a = good, a.x_scales = 0;
  CHECK_EQ(refusal(), "dense_gemm: x_scales is missing");
  a = good, a.w_scales = 0;
  CHECK_EQ(refusal(), "dense_gemm: w_scales is missing");
  a = good, a.w = 0;
  CHECK_EQ(refusal(), "dense_gemm: w is missing");
  a = good, a.y += 4;
  CHECK(says(refusal(), "is not aligned to 64 bytes"));
  rig.run(ced_dense_gemm, arguments(rig, problem("dense_gemm", 0, 1, 32, 64, CED_FP8, CED_FP8)));
}
