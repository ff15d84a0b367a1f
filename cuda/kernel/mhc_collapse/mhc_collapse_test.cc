#include "test/check.h"
#include "test/golden.h"
#include "test/prng.h"
#include "test/rig.h"
#include "test/rules.h"

namespace {

constexpr uint32_t kDim = 5120, kStreams = 4;

ced_mhc_collapse_args arguments(Rig &rig, const std::vector<uint16_t> &h, const std::vector<float> &pre) {
  const auto rows = static_cast<uint32_t>(pre.size() / kStreams);
  ced_mhc_collapse_args a{};
  a.rows = rig.rows(static_cast<int32_t>(rows));
  a.h = rig.put(h), a.pre = rig.put(pre), a.x = rig.out<uint16_t>(rows * kDim);
  a.max_rows = rows, a.dim = kDim, a.streams = kStreams;
  return a;
}

}  // namespace

TEST("mhc_collapse: the reference has the golden's bits, the CPU its tolerance") {
  const auto h = prng::xb("op/mhc/h", 3 * kStreams * kDim, 0);
  auto pre = prng::xf("op/mhc/pre", 3 * kStreams);
  for (float &p : pre) p = std::fabs(p);
  const auto &want = golden::ops()["mhc.collapse"];
  for (ced_kind kind : bodies("mhc_collapse")) {
    CONTEXT("kind=" << kind);
    Rig rig(kind);
    const auto a = arguments(rig, h, pre);
    rig.run(ced_mhc_collapse, a);
    const auto got = rig.get<uint16_t>(a.x, want.count());
    if (kind == CED_REF) CHECK_BITS(got.data(), want.as<uint16_t>(), want.count());
    CHECK_ROWS(got.data(), want.as<uint16_t>(), 3, kDim, check::kLinear);
  }
}

TEST("mhc_collapse: a row has the same bits alone, in a batch and on any number of threads") {
  const size_t rows = 5;
  const auto h = prng::xb("mhc_collapse/h", rows * kStreams * kDim, 0);
  const auto pre = prng::xf("mhc_collapse/pre", rows * kStreams);
  for (ced_kind kind : fast_bodies("mhc_collapse")) {
    CONTEXT("kind=" << kind);
    Rig one(kind, 1), many(kind, 3);
    const auto a = arguments(one, h, pre), b = arguments(many, h, pre);
    one.run(ced_mhc_collapse, a), many.run(ced_mhc_collapse, b);
    const auto batch = one.get<uint16_t>(a.x, rows * kDim);
    CHECK_BITS(many.get<uint16_t>(b.x, rows * kDim).data(), batch.data(), batch.size());
    const auto c = arguments(many, {h.end() - kStreams * kDim, h.end()}, {pre.end() - kStreams, pre.end()});
    many.run(ced_mhc_collapse, c);
    CHECK_BITS(many.get<uint16_t>(c.x, kDim).data(), &batch[(rows - 1) * kDim], kDim);
  }
}

TEST("mhc_collapse: refuses bad arguments and accepts no rows") {
  Rig rig(CED_CPU);
  const auto good = arguments(rig, {}, {});
  rig.run(ced_mhc_collapse, good);
  auto a = good;
  a.streams = 0;
  CHECK(says(rig.refusal(ced_mhc_collapse, a), "mhc_collapse: streams is 0"));
  a = good, a.x += 2;
  CHECK(says(rig.refusal(ced_mhc_collapse, a), "mhc_collapse: x"));
}
