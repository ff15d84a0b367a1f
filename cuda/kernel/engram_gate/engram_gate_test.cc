#include "num/bf16.h"
#include "test/check.h"
#include "test/golden.h"
#include "test/linear.h"
#include "test/prng.h"
#include "test/rig.h"
#include "test/rules.h"

namespace {

constexpr size_t kStreams = 4, kDim = 5120, kWidth = kStreams * kDim;

// kv of the golden's two tokens: the embedding through the module's wkv.
const std::vector<uint16_t> &golden_kv() {
  static const std::vector<uint16_t> kv = [] {
    const auto &e = golden::ops()["engram.embedding"];
    constexpr size_t n = kWidth + kDim, k = 6144;
    return linear::fp8({e.as<uint16_t>(), e.as<uint16_t>() + e.count()},
                       prng::e4m3("op/engram/wkv/weight", n * k),
                       prng::e8m0("op/engram/wkv/scale", n / 32 * k / 32, 117), n, k);
  }();
  return kv;
}

ced_engram_gate_args arguments(Rig &rig, const std::vector<uint16_t> &kv, const std::vector<uint16_t> &h,
                               const std::vector<uint32_t> &flags) {
  const auto rows = static_cast<int32_t>(h.size() / kWidth);
  ced_engram_gate_args a{};
  a.rows = rig.sequence_rows({}, {}, flags, rows);
  a.kv = rig.put(kv), a.h = rig.put(h);
  a.q_weight = rig.put(prng::norm("op/engram/q_weight", kWidth, -1));
  a.k_weight = rig.put(prng::norm("op/engram/k_weight", kWidth, -1));
  a.max_rows = static_cast<uint32_t>(rows), a.dim = kDim, a.streams = kStreams, a.weight_format = CED_BF16;
  a.eps = 1e-20f;
  return a;
}

std::vector<uint16_t> gate(Rig &rig, const std::vector<uint16_t> &kv, const std::vector<uint16_t> &h,
                           const std::vector<uint32_t> &flags = {}) {
  const auto a = arguments(rig, kv, h, flags);
  rig.run(ced_engram_gate, a);
  return rig.get<uint16_t>(a.h, h.size());
}

}  // namespace

TEST("engram_gate: the reference has the golden's bits, the CPU its tolerance, image rows stay") {
  const auto h = prng::xb("op/engram/h", 2 * kWidth, 0);
  for (ced_kind kind : bodies("engram_gate")) {
    for (bool masked : {false, true}) {
      CONTEXT("kind=" << kind << " masked=" << masked);
      const auto &want = golden::ops()[masked ? "engram.h_out_masked" : "engram.h_out"];
      Rig rig(kind);
      const auto got = gate(rig, golden_kv(), h,
                            masked ? std::vector<uint32_t>{0, CED_ROW_IMAGE} : std::vector<uint32_t>{});
      if (kind == CED_REF) CHECK_BITS(got.data(), want.as<uint16_t>(), want.count());
      CHECK_ROWS(got.data(), want.as<uint16_t>(), 2 * kStreams, kDim, check::kLinear);
      if (masked) CHECK_BITS(&got[kWidth], &h[kWidth], kWidth);
    }
  }
}

TEST(
    "engram_gate: a row has the same bits alone, in a batch and on any number of threads; F32 weights give "
    "them too") {
  const size_t rows = 5;
  const auto h = prng::xb("engram_gate/h", rows * kWidth, 0),
             kv = prng::xb("engram_gate/kv", rows * (kWidth + kDim), 0);
  Rig one(CED_CPU, 1), many(CED_CPU, 3);
  const auto batch = gate(one, kv, h);
  CHECK_BITS(gate(many, kv, h).data(), batch.data(), batch.size());
  const std::vector<uint16_t> last_h(h.end() - kWidth, h.end()), last_kv(kv.end() - kWidth - kDim, kv.end());
  CHECK_BITS(gate(many, last_kv, last_h).data(), &batch[(rows - 1) * kWidth], kWidth);

  auto a = arguments(many, kv, h, {});
  for (auto [field, name] :
       {std::pair{&a.q_weight, "op/engram/q_weight"}, {&a.k_weight, "op/engram/k_weight"}}) {
    std::vector<float> wide;
    for (uint16_t w : prng::norm(name, kWidth, -1)) wide.push_back(ced::bf16_to_f32(w));
    *field = many.put(wide);
  }
  a.weight_format = CED_F32;
  many.run(ced_engram_gate, a);
  CHECK_BITS(many.get<uint16_t>(a.h, h.size()).data(), batch.data(), batch.size());
}

TEST("engram_gate: refuses bad arguments and accepts no rows") {
  Rig rig(CED_CPU);
  const auto good = arguments(rig, {}, {}, {});
  rig.run(ced_engram_gate, good);
  auto a = good;
  a.dim = 8;
  CHECK(says(rig.refusal(ced_engram_gate, a), "engram_gate: dim is 8"));
  a = good, a.weight_format = CED_FP4;
  CHECK(says(rig.refusal(ced_engram_gate, a), "weight_format is 3"));
  a = good, a.kv = 0;
  CHECK(says(rig.refusal(ced_engram_gate, a), "kv is missing"));
}
