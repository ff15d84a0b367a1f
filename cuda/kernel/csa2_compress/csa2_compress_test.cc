#include "test/check.h"
#include "test/golden.h"
#include "test/linear.h"
#include "test/prng.h"
#include "test/rig.h"

namespace {

constexpr size_t kDim = 512;

ced_csa2_compress_args arguments(Rig &rig, const std::vector<int32_t> &pos, const std::vector<int32_t> &slot,
                                 const std::vector<int32_t> &closing, uint32_t ratio) {
  ced_csa2_compress_args a{};
  a.rows = rig.sequence_rows(pos, slot), a.groups = rig.groups(closing);
  a.latent = rig.out<uint16_t>(closing.size() * kDim);
  a.max_rows = static_cast<uint32_t>(pos.size()), a.dim = kDim, a.ratio = ratio;
  a.weight_format = CED_BF16, a.eps = 1e-20f;
  return a;
}

template <class T>
std::vector<T> part(const std::vector<T> &v, size_t from, size_t to) {
  return {v.begin() + static_cast<ptrdiff_t>(from), v.begin() + static_cast<ptrdiff_t>(to)};
}

}  // namespace

TEST("csa2_compress: ratio 1 has the golden's latents") {
  const std::string in = "op/kv_rows/L20";
  const auto x = prng::xb("op/kv_rows/x", 5 * 5120, -1);
  const auto kv = linear::rounded(linear::bf16(x, prng::xb(in + "/c_wkv", kDim * 5120, -6), kDim, 5120));
  const auto &want = golden::ops()["kv_rows.L20.latent"];
  for (ced_kind kind : bodies("csa2_compress")) {
    CONTEXT("kind=" << kind);
    Rig rig(kind);
    auto a = arguments(rig, {131069, 131070, 131071, 131072, 131073}, {0, 0, 0, 0, 0}, {0, 1, 2, 3, 4}, 1);
    a.a = rig.put(kv), a.weight = rig.put(prng::norm(in + "/c_norm", kDim, -3));
    rig.run(ced_csa2_compress, a);
    CHECK_BITS(rig.get<uint16_t>(a.latent, want.count()).data(), want.as<uint16_t>(), want.count());
  }
}

TEST("csa2_compress: ratio 2 closes an open group, in one chunk or row by row, with the golden's latents") {
  const std::string in = "op/kv_rows/L2";
  const auto x = prng::xb("op/kv_rows/x", 5 * 5120, -1);
  const auto av = linear::bf16(x, prng::xb(in + "/c_wkv", kDim * 5120, -6), kDim, 5120);
  const auto gv = linear::bf16(x, prng::xb(in + "/c_wgate", kDim * 5120, -5), kDim, 5120);
  const auto open_a = prng::xf("op/kv_rows/open_a", kDim), open_g = prng::xf("op/kv_rows/open_g", kDim);
  const auto &want = golden::ops()["kv_rows.L2.latent"];
  // Slot 1 of two; position 131068 is the open row. Three open rows: a ring that drafts would need.
  constexpr size_t kOpen = 3, kFirst = 131068;
  std::vector<float> open(2 * kOpen * 2 * kDim, 0);
  float *row = &open[(kOpen + kFirst % kOpen) * 2 * kDim];
  std::copy(open_a.begin(), open_a.end(), row);
  std::copy(open_g.begin(), open_g.end(), row + kDim);

  for (ced_kind kind : bodies("csa2_compress")) {
    for (const std::vector<size_t> &chunks : {std::vector<size_t>{5}, {1, 4}, {2, 3}, {1, 1, 1, 1, 1}}) {
      CONTEXT("kind=" << kind << " first chunk " << chunks[0] << " of " << chunks.size());
      Rig rig(kind);
      const uint64_t state = rig.put(open), weight = rig.put(prng::norm(in + "/c_norm", kDim, -3));
      std::vector<uint16_t> got;
      size_t at = 0;
      for (size_t n : chunks) {
        std::vector<int32_t> pos, closing;
        for (size_t i = 0; i < n; i++) {
          pos.push_back(static_cast<int32_t>(kFirst + 1 + at + i));
          if (pos.back() % 2 == 1) closing.push_back(static_cast<int32_t>(i));
        }
        auto a = arguments(rig, pos, std::vector<int32_t>(n, 1), closing, 2);
        a.a = rig.put(part(av, at * kDim, (at + n) * kDim)),
        a.g = rig.put(part(gv, at * kDim, (at + n) * kDim));
        a.open = state, a.open_rows = kOpen, a.weight = weight;
        rig.run(ced_csa2_compress, a);
        for (uint16_t v : rig.get<uint16_t>(a.latent, closing.size() * kDim)) got.push_back(v);
        at += n;
      }
      REQUIRE_EQ(got.size(), want.count());
      CHECK_BITS(got.data(), want.as<uint16_t>(), want.count());
      // The last three rows of the sequence are kept, the other slot is untouched.
      const auto left = rig.get<float>(state, open.size());
      CHECK_BITS(left.data(), open.data(), kOpen * 2 * kDim);
      const size_t last = (kOpen + (kFirst + 5) % kOpen) * 2 * kDim;
      CHECK_BITS(&left[last], &av[4 * kDim], kDim);
      CHECK_BITS(&left[last + kDim], &gv[4 * kDim], kDim);
    }
  }
}

TEST("csa2_compress: refuses bad arguments and accepts no rows") {
  Rig rig(CED_CPU);
  auto good = arguments(rig, {}, {}, {}, 2);
  good.a = good.g = good.open = rig.out<float>(4 * kDim);
  good.open_rows = 2, good.weight = rig.put(prng::norm("csa2_compress/w", kDim, -3));
  rig.run(ced_csa2_compress, good);
  auto a = good;
  a.open_rows = 1;
  CHECK(says(rig.refusal(ced_csa2_compress, a), "csa2_compress: open_rows is 1"));
  a = good, a.ratio = 0;
  CHECK(says(rig.refusal(ced_csa2_compress, a), "csa2_compress: ratio is 0"));
  a = good, a.g = 0;
  CHECK(says(rig.refusal(ced_csa2_compress, a), "g is missing"));
  a = good, a.groups = 0;
  CHECK(says(rig.refusal(ced_csa2_compress, a), "csa2_compress"));
}
