#include "num/bf16.h"
#include "test/check.h"
#include "test/golden.h"
#include "test/prng.h"
#include "test/rig.h"
#include "test/rules.h"

namespace {

// The golden's rows: ordinary, zero, and with a mean square near and far below eps.
std::vector<uint16_t> golden_rows(uint32_t n) {
  auto x = prng::xb("op/rmsnorm/x" + std::to_string(n), 5 * n, 0);
  for (uint32_t i = 0; i < n; i++) {
    x[n + i] = 0;
    x[2 * n + i] = ced::f32_to_bf16(ced::bf16_to_f32(x[2 * n + i]) * 0x1p-34f);
    x[3 * n + i] = ced::f32_to_bf16(ced::bf16_to_f32(x[3 * n + i]) * 0x1p-60f);
  }
  return x;
}

ced_norm_quant_args arguments(Rig &rig, uint32_t n, const std::vector<uint16_t> &x,
                              const std::vector<uint16_t> &weight) {
  const size_t rows = x.size() / n;
  ced_norm_quant_args a{};
  a.rows = rig.rows(static_cast<int32_t>(rows));
  a.x = rig.put(x), a.y = rig.out<uint16_t>(rows * n);
  if (!weight.empty()) a.weight = rig.put(weight);
  if (n % 32 == 0) a.codes = rig.out<uint8_t>(rows * n), a.scales = rig.out<uint8_t>(rows * n / 32);
  a.max_rows = static_cast<uint32_t>(rows), a.n = n, a.weight_format = CED_BF16, a.eps = 1e-20f;
  return a;
}

struct Result {
  std::vector<uint16_t> y;
  std::vector<uint8_t> codes, scales;
};
Result run(Rig &rig, const ced_norm_quant_args &a) {
  rig.run(ced_norm_quant, a);
  const size_t n = a.max_rows * a.n;
  Result r;
  if (a.y) r.y = rig.get<uint16_t>(a.y, n);
  if (a.codes) r.codes = rig.get<uint8_t>(a.codes, n), r.scales = rig.get<uint8_t>(a.scales, n / 32);
  return r;
}

}  // namespace

TEST("norm_quant: the reference has the golden norm's bits, the CPU its tolerance") {
  for (uint32_t n : {5120u, 1280u, 512u, 128u}) {
    const auto x = golden_rows(n);
    const auto w = prng::norm("op/rmsnorm/w" + std::to_string(n), n, -2);
    const auto &want = golden::ops()["rmsnorm.y" + std::to_string(n)];
    for (ced_kind kind : bodies("norm_quant")) {
      CONTEXT("n=" << n << " kind=" << kind);
      Rig rig(kind);
      const auto got = run(rig, arguments(rig, n, x, w)).y;
      if (kind == CED_REF) CHECK_BITS(got.data(), want.as<uint16_t>(), want.count());
      CHECK_ROWS(got.data(), want.as<uint16_t>(), 5, n, check::kLinear);
    }
  }
}

TEST("norm_quant: quantising alone gives the golden codes and scales on every body, and keeps x") {
  const auto &ops = golden::ops();
  const auto &in = ops["quant.groups_in"];
  const std::vector<uint16_t> x(in.as<uint16_t>(), in.as<uint16_t>() + in.count());
  for (ced_kind kind : bodies("norm_quant")) {
    CONTEXT("kind=" << kind);
    Rig rig(kind);
    const Result r = run(rig, arguments(rig, 32, x, {}));
    CHECK_BITS(r.codes.data(), ops["quant.fp8_codes"].as<uint8_t>(), x.size());
    CHECK_BITS(r.scales.data(), ops["quant.fp8_scales"].as<uint8_t>(), x.size() / 32);
    CHECK_BITS(r.y.data(), x.data(), x.size());
  }
}

TEST("norm_quant: codes are those of the rounded y, with or without y, in place or not") {
  const uint32_t n = 512;
  const auto x = golden_rows(n), w = prng::norm("norm_quant/w", n, -2);
  for (ced_kind kind : bodies("norm_quant")) {
    CONTEXT("kind=" << kind);
    Rig rig(kind);
    auto a = arguments(rig, n, x, w);
    const Result both = run(rig, a);
    const Result again = run(rig, arguments(rig, n, both.y, {}));
    CHECK_BITS(again.codes.data(), both.codes.data(), x.size());
    CHECK_BITS(again.scales.data(), both.scales.data(), x.size() / 32);
    a.y = 0;
    CHECK_BITS(run(rig, a).codes.data(), both.codes.data(), x.size());
    a.y = a.x;
    CHECK_BITS(run(rig, a).y.data(), both.y.data(), x.size());
  }
}

TEST("norm_quant: a weight in F32 at any byte, and lengths that are no multiple of 32") {
  for (ced_kind kind : bodies("norm_quant")) {
    for (uint32_t n : {1u, 20u, 50u}) {
      CONTEXT("kind=" << kind << " n=" << n);
      Rig rig(kind);
      const auto x = prng::xb("norm_quant/x", 2 * n, 0), w = prng::norm("norm_quant/w", n, -2);
      auto a = arguments(rig, n, x, w);
      const auto want = run(rig, a).y;
      std::vector<char> bytes(4 * n + 1);
      for (uint32_t i = 0; i < n; i++) {
        const float f = ced::bf16_to_f32(w[i]);
        memcpy(&bytes[1 + 4 * i], &f, 4);
      }
      a.weight = rig.put(bytes) + 1, a.weight_format = CED_F32;
      CHECK_BITS(run(rig, a).y.data(), want.data(), want.size());
      Rig ref(CED_REF);
      CHECK_ROWS(want.data(), run(ref, arguments(ref, n, x, w)).y.data(), 2, n, check::kLinear);
    }
  }
}

TEST("norm_quant: a row has the same bits alone, in a batch and on any number of threads") {
  const uint32_t n = 1280, rows = 7;
  const auto x = prng::xb("norm_quant/x", rows * n, 0), w = prng::norm("norm_quant/w", n, -2);
  Rig one(CED_CPU, 1);
  const Result batch = run(one, arguments(one, n, x, w));
  for (int threads : {2, 3}) {
    Rig many(CED_CPU, threads);
    const Result r = run(many, arguments(many, n, x, w));
    CHECK_BITS(r.y.data(), batch.y.data(), rows * n);
    CHECK_BITS(r.codes.data(), batch.codes.data(), rows * n);
    const Result last = run(many, arguments(many, n, {x.end() - n, x.end()}, w));
    CHECK_BITS(last.y.data(), &batch.y[(rows - 1) * n], n);
    CHECK_BITS(last.scales.data(), &batch.scales[(rows - 1) * n / 32], n / 32);
  }
}

TEST(
    "norm_quant: 1 to 1024 rows: the reference's values, a row's own bits, no NaN of what lay there before") {
  const uint32_t n = 160;
  const auto w = prng::norm("norm_quant/w", n, -2);
  for (size_t rows : {1, 17, 65, 300, 1024}) {
    CONTEXT("rows=" << rows);
    const auto x = prng::xb("norm_quant/rows", rows * n, 0);
    Rig ref(CED_REF);
    const Result want = run(ref, arguments(ref, n, x, w));
    for (ced_kind kind : fast_bodies("norm_quant")) {
      CONTEXT("kind=" << kind);
      Rig rig(kind);
      const auto a = arguments(rig, n, x, w);
      Result got[2];
      for (Result &r : got) {
        rig.poison<uint16_t>(a.y, rows * n);
        rig.poison<uint8_t>(a.codes, rows * n), rig.poison<uint8_t>(a.scales, rows * n / 32);
        r = run(rig, a);
      }
      CHECK_ROWS(got[0].y.data(), want.y.data(), rows, n, check::kLinear);
      CHECK_BITS(got[1].y.data(), got[0].y.data(), rows * n);
      CHECK_BITS(got[1].codes.data(), got[0].codes.data(), rows * n);
      CHECK_BITS(got[1].scales.data(), got[0].scales.data(), rows * n / 32);
      const Result again = run(rig, arguments(rig, n, got[0].y, {}));  // codes are those of the rounded y
      CHECK_BITS(again.codes.data(), got[0].codes.data(), rows * n);
      for (size_t r : {size_t{0}, rows / 2, rows - 1}) {
        const Result one = run(rig, arguments(rig, n, {&x[r * n], &x[r * n] + n}, w));
        CHECK_BITS(one.y.data(), &got[0].y[r * n], n);
        CHECK_BITS(one.codes.data(), &got[0].codes[r * n], n);
        CHECK_BITS(one.scales.data(), &got[0].scales[r * n / 32], n / 32);
      }
    }
  }
}

TEST("norm_quant: refuses bad arguments and accepts no rows") {
  Rig rig(CED_CPU);
  const auto good = arguments(rig, 64, std::vector<uint16_t>(64), std::vector<uint16_t>(64));
  auto a = good;
  const auto refusal = [&] { return rig.refusal(ced_norm_quant, a); };
  a.max_rows = 0;
  CHECK_EQ(refusal(), "norm_quant: rows holds 1 rows, outside 0..max_rows = 0");
  a = good, a.rows = 0;
  CHECK_EQ(refusal(), "norm_quant: rows is missing");
  a = good, a.n = 0;
  CHECK(says(refusal(), "norm_quant: n is 0"));
  a = good, a.n = 33;
  CHECK_EQ(refusal(), "norm_quant: n is 33, must be a positive multiple of 32");
  a = good, a.weight_format = CED_FP8;
  CHECK(says(refusal(), "weight_format is 2"));
  a = good, a.y = a.codes = 0;
  CHECK_EQ(refusal(), "norm_quant: neither y nor codes is wanted");
  a = good, a.scales = 0;
  CHECK_EQ(refusal(), "norm_quant: scales is missing");
  a = good, a.x += 2;
  CHECK(says(refusal(), "is not aligned to 64 bytes"));
  a = arguments(rig, 64, {}, std::vector<uint16_t>(64));
  rig.run(ced_norm_quant, a);
}
