#include "test/check.h"
#include "test/golden.h"
#include "test/prng.h"
#include "test/rig.h"
#include "test/rules.h"

namespace {

constexpr uint32_t kDim = 5120, kStreams = 4;

struct Input {
  std::vector<uint16_t> h, y;
  std::vector<float> post, comb;
};

ced_mhc_expand_args arguments(Rig &rig, const Input &in) {
  const auto rows = static_cast<uint32_t>(in.post.size() / kStreams);
  ced_mhc_expand_args a{};
  a.rows = rig.rows(static_cast<int32_t>(rows));
  a.y = rig.put(in.y), a.post = rig.put(in.post), a.comb = rig.put(in.comb), a.h = rig.put(in.h);
  a.max_rows = rows, a.dim = kDim, a.streams = kStreams;
  return a;
}

std::vector<uint16_t> expand(Rig &rig, const Input &in) {
  const auto a = arguments(rig, in);
  rig.run(ced_mhc_expand, a);
  return rig.get<uint16_t>(a.h, in.h.size());
}

}  // namespace

TEST("mhc_expand: the reference has the golden's bits, the CPU its tolerance") {
  const Input in{prng::xb("op/mhc/h", 3 * kStreams * kDim, 0), prng::xb("op/mhc/y", 3 * kDim, 0),
                 golden::ops()["mhc.post"].f32(), golden::ops()["mhc.comb"].f32()};
  const auto &want = golden::ops()["mhc.expand"];
  for (ced_kind kind : bodies("mhc_expand")) {
    CONTEXT("kind=" << kind);
    Rig rig(kind);
    const auto got = expand(rig, in);
    if (kind == CED_REF) CHECK_BITS(got.data(), want.as<uint16_t>(), want.count());
    CHECK_ROWS(got.data(), want.as<uint16_t>(), 3, kStreams * kDim, check::kLinear);
  }
}

TEST("mhc_expand: a row has the same bits alone, in a batch and on any number of threads") {
  const size_t rows = 5, width = kStreams * kDim;
  const Input in{prng::xb("mhc_expand/h", rows * width, 0), prng::xb("mhc_expand/y", rows * kDim, 0),
                 prng::xf("mhc_expand/post", rows * kStreams), prng::xf("mhc_expand/comb", rows * 16)};
  for (ced_kind kind : fast_bodies("mhc_expand")) {
    CONTEXT("kind=" << kind);
    Rig one(kind, 1), many(kind, 3);
    const auto batch = expand(one, in);
    CHECK_BITS(expand(many, in).data(), batch.data(), batch.size());
    const Input last{{in.h.end() - width, in.h.end()},
                     {in.y.end() - kDim, in.y.end()},
                     {in.post.end() - 4, in.post.end()},
                     {in.comb.end() - 16, in.comb.end()}};
    CHECK_BITS(expand(many, last).data(), &batch[(rows - 1) * width], width);
  }
}

TEST("mhc_expand: refuses bad arguments and accepts no rows") {
  Rig rig(CED_CPU);
  const auto good = arguments(rig, {});
  rig.run(ced_mhc_expand, good);
  auto a = good;
  a.comb = 0;
  CHECK(says(rig.refusal(ced_mhc_expand, a), "mhc_expand: comb"));
  a = good, a.dim = 0;
  CHECK(says(rig.refusal(ced_mhc_expand, a), "mhc_expand: dim is 0"));
}
