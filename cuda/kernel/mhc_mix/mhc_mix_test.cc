#include "test/check.h"
#include "test/golden.h"
#include "test/prng.h"
#include "test/rig.h"
#include "test/rules.h"

namespace {

constexpr uint32_t kDim = 5120, kStreams = 4, kWidth = kDim * kStreams;

ced_mhc_mix_args release(Rig &rig, const std::vector<uint16_t> &h) {
  const int32_t rows = static_cast<int32_t>(h.size() / kWidth);
  ced_mhc_mix_args a{};
  a.rows = rig.rows(rows);
  a.h = rig.put(h);
  a.fn = rig.put(prng::xf("op/mhc/fn", 24 * kWidth, -7));
  a.base = rig.put(prng::xf("op/mhc/base", 24, -1));
  a.scale = rig.put(prng::xf("op/mhc/scale", 3));
  a.pre = rig.out<float>(static_cast<size_t>(rows) * 4);
  a.post = rig.out<float>(static_cast<size_t>(rows) * 4);
  a.comb = rig.out<float>(static_cast<size_t>(rows) * 16);
  a.max_rows = static_cast<uint32_t>(rows), a.dim = kDim, a.streams = kStreams, a.iters = 20;
  a.norm_eps = 1e-20f, a.hc_eps = 1e-6f;
  return a;
}

std::vector<float> outputs(Rig &rig, const ced_mhc_mix_args &a) {
  rig.run(ced_mhc_mix, a);
  std::vector<float> all;
  for (auto [address, width] : {std::pair{a.pre, 4}, {a.post, 4}, {a.comb, 16}})
    for (float v : rig.get<float>(address, a.max_rows * static_cast<size_t>(width))) all.push_back(v);
  return all;
}

}  // namespace

TEST("mhc_mix: the reference has the golden's bits, the CPU its tolerance") {
  const auto h = prng::xb("op/mhc/h", 3 * kWidth, 0);
  for (ced_kind kind : bodies("mhc_mix")) {
    CONTEXT("kind=" << kind);
    Rig rig(kind);
    const auto a = release(rig, h);
    rig.run(ced_mhc_mix, a);
    for (auto [name, address, width] :
         {std::tuple{"mhc.pre", a.pre, 4}, {"mhc.post", a.post, 4}, {"mhc.comb", a.comb, 16}}) {
      CONTEXT(name);
      const auto &want = golden::ops()[name];
      const auto got = rig.get<float>(address, want.count());
      if (kind == CED_REF) {
        CHECK_BITS(got.data(), want.as<float>(), want.count());
      } else {
        CHECK_ROWS(got.data(), want.as<float>(), 3, static_cast<size_t>(width), check::kMix);
      }
    }
  }
}

TEST("mhc_mix: a row has the same bits alone, in a batch and on any number of threads") {
  const size_t rows = 7;
  const auto h = prng::xb("mhc_mix/h", rows * kWidth, 0);
  for (ced_kind kind : fast_bodies("mhc_mix")) {
    CONTEXT("kind=" << kind);
    Rig one(kind, 1), many(kind, 3);
    const auto batch = outputs(one, release(one, h));
    CHECK_BITS(outputs(many, release(many, h)).data(), batch.data(), batch.size());
    for (size_t r : {size_t{0}, size_t{5}, rows - 1}) {
      CONTEXT("row " << r);
      const std::vector<uint16_t> alone(h.begin() + static_cast<ptrdiff_t>(r * kWidth),
                                        h.begin() + static_cast<ptrdiff_t>((r + 1) * kWidth));
      const auto got = outputs(many, release(many, alone));
      CHECK_BITS(got.data(), &batch[r * 4], 4);
      CHECK_BITS(got.data() + 4, &batch[rows * 4 + r * 4], 4);
      CHECK_BITS(got.data() + 8, &batch[rows * 8 + r * 16], 16);
    }
  }
}

TEST("mhc_mix: refuses bad arguments and accepts no rows") {
  Rig rig(CED_CPU);
  auto good = release(rig, {});
  rig.run(ced_mhc_mix, good);
  auto a = good;
  a.streams = 9;
  CHECK(says(rig.refusal(ced_mhc_mix, a), "mhc_mix: streams is 9"));
  a = good, a.dim = 24;
  CHECK(says(rig.refusal(ced_mhc_mix, a), "mhc_mix: dim is 24"));
  a = good, a.fn = 0;
  CHECK(says(rig.refusal(ced_mhc_mix, a), "fn"));
  a = good, a.rows = rig.rows(1);
  CHECK(says(rig.refusal(ced_mhc_mix, a), "max_rows"));
}
