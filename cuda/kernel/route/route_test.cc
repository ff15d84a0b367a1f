#include <cmath>
#include <limits>
#include <set>

#include "num/bf16.h"
#include "test/check.h"
#include "test/golden.h"
#include "test/prng.h"
#include "test/rig.h"
#include "test/rules.h"

namespace {

ced_route_args arguments(Rig &rig, const std::vector<float> &logits, const std::vector<float> &bias,
                         uint32_t top_k, const std::vector<uint32_t> &flags = {}) {
  const auto experts = static_cast<uint32_t>(bias.size());
  const size_t rows = logits.size() / experts;
  ced_route_args a{};
  a.rows = rig.sequence_rows({}, {}, flags.empty() ? std::vector<uint32_t>(rows) : flags,
                             static_cast<int32_t>(rows));
  a.logits = rig.put(logits), a.bias = rig.put(bias), a.bias_format = CED_F32;
  a.idx = rig.out<int32_t>(rows * top_k), a.weights = rig.out<float>(rows * top_k);
  a.max_rows = static_cast<uint32_t>(rows), a.experts = experts, a.top_k = top_k, a.normalise = 1;
  a.temperature = 1, a.route_scale = 1.5f;
  return a;
}

std::vector<int32_t> chosen(Rig &rig, const ced_route_args &a) {
  rig.run(ced_route, a);
  return rig.get<int32_t>(a.idx, a.max_rows * a.top_k);
}

}  // namespace

TEST("route: the golden's experts and weights, with bias_vl on the image row") {
  const auto &ops = golden::ops();
  const auto logits = ops["gate.logits"].f32();
  for (ced_kind kind : bodies("route")) {
    CONTEXT("kind=" << kind);
    Rig rig(kind);
    auto a = arguments(rig, logits, prng::xf("op/gate/bias", 384, -4), 6, {0, 0, 0, CED_ROW_IMAGE});
    a.bias_vl = rig.put(prng::xf("op/gate/bias_vl", 384, -2));
    const auto idx = chosen(rig, a);
    CHECK_BITS(idx.data(), ops["gate.idx"].as<int32_t>(), 24);
    const auto weights = rig.get<float>(a.weights, 24);
    if (kind == CED_REF) CHECK_BITS(weights.data(), ops["gate.weights"].as<float>(), 24);
    CHECK_ROWS(weights.data(), ops["gate.weights"].as<float>(), 4, 6, check::kWeight);
    a.bias_vl = 0;  // the image row then uses bias, and chooses differently
    CHECK(std::vector<int32_t>(chosen(rig, a)) != idx);
  }
}

TEST("route: equal scores go to the lower expert, in that order") {
  for (ced_kind kind : bodies("route")) {
    Rig rig(kind);
    const auto idx = chosen(rig, arguments(rig, {0, 0, 0, 0, 0, 1, 0, 1}, {0, 0, 0, 0}, 3));
    const std::vector<int32_t> want{0, 1, 2, 1, 3, 0};
    CHECK_BITS(idx.data(), want.data(), want.size());
  }
}

TEST("route: very negative and very large logits keep finite, normalised weights") {
  Rig rig(CED_CPU);
  auto a = arguments(rig, {-60, -61, -50, -1000, 30, 25, -5, 21}, {0, 0, 0, 0}, 2);
  const auto idx = chosen(rig, a);
  const std::vector<int32_t> want{2, 0, 0, 1};
  CHECK_BITS(idx.data(), want.data(), want.size());
  auto w = rig.get<float>(a.weights, 4);
  CHECK_NEAR(w[0] + w[1], 1.5f, 1e-5);
  CHECK_NEAR(w[0] / w[1], std::exp(5.0), 1e-2);
  CHECK_NEAR(w[2], 1.5 * std::sqrt(30) / (std::sqrt(30) + std::sqrt(25)), 1e-6);
  a.normalise = 0, a.temperature = 2;
  rig.run(ced_route, a);
  w = rig.get<float>(a.weights, 4);
  CHECK_NEAR(w[2], 1.5 * std::sqrt(std::log1p(std::exp(15.0))), 1e-6);
}

TEST("route: a bias in BF16 at any byte chooses like the same bias in F32") {
  auto bias = prng::xf("route/bias", 40, 0);
  std::vector<uint8_t> bytes(81);
  for (size_t i = 0; i < 40; i++) {
    const uint16_t h = ced::f32_to_bf16(bias[i]);
    bias[i] = ced::bf16_to_f32(h);
    memcpy(&bytes[1 + 2 * i], &h, 2);
  }
  Rig rig(CED_CPU);
  auto a = arguments(rig, prng::xf("route/logits", 3 * 40), bias, 5);
  const auto want = chosen(rig, a);
  a.bias = rig.put(bytes) + 1, a.bias_format = CED_BF16;
  CHECK_BITS(chosen(rig, a).data(), want.data(), want.size());
}

TEST("route: NaN logits are chosen last, and the experts stay distinct") {
  Rig rig(CED_CPU);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto idx = chosen(rig, arguments(rig, {nan, 1, nan, 2, nan, nan, nan, nan}, {0, 0, 0, 0}, 3));
  CHECK_EQ(idx[0], 3);
  CHECK_EQ(idx[1], 1);
  for (int r : {0, 3}) CHECK_EQ(std::set<int32_t>(&idx[r], &idx[r] + 3).size(), 3);
  for (int32_t e : idx) CHECK(e >= 0 && e < 4);
}

TEST("route: a row has the same bits alone, in a batch and on any number of threads") {
  const auto logits = prng::xf("route/logits", 9 * 64), bias = prng::xf("route/bias", 64, -2);
  for (ced_kind kind : fast_bodies("route")) {
    CONTEXT("kind=" << kind);
    Rig one(kind, 1), many(kind, 3);
    const auto a = arguments(one, logits, bias, 4), b = arguments(many, logits, bias, 4);
    const auto idx = chosen(one, a);
    CHECK_BITS(chosen(many, b).data(), idx.data(), idx.size());
    const auto weights = one.get<float>(a.weights, 36);
    CHECK_BITS(many.get<float>(b.weights, 36).data(), weights.data(), 36);
    const auto c = arguments(many, {logits.end() - 64, logits.end()}, bias, 4);
    CHECK_BITS(chosen(many, c).data(), &idx[32], 4);
    CHECK_BITS(many.get<float>(c.weights, 4).data(), &weights[32], 4);
  }
}

TEST("route: refuses bad arguments and accepts no rows") {
  Rig rig(CED_CPU);
  const auto good = arguments(rig, {1, 2, 3}, {0, 0, 0}, 2);
  auto a = good;
  const auto refusal = [&] { return rig.refusal(ced_route, a); };
  a.top_k = 4;
  CHECK_EQ(refusal(), "route: top_k is 4, must be 1..3");
  a = good, a.experts = 5000;
  CHECK(says(refusal(), "route: experts is 5000"));
  a = good, a.temperature = 0;
  CHECK_EQ(refusal(), "route: temperature is 0, must be positive");
  a = good, a.bias_format = CED_FP4;
  CHECK_EQ(refusal(), "route: bias_format is 3, must be F32 or BF16");
  a = good, a.weights = 0;
  CHECK_EQ(refusal(), "route: weights is missing");
  rig.run(ced_route, arguments(rig, {}, {0, 0, 0}, 2));
}
