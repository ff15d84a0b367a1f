#include <string>

#include "test/check.h"
#include "test/golden.h"
#include "test/prng.h"
#include "test/rig.h"

namespace {

ced_rope_args arguments(Rig &rig, const std::vector<uint16_t> &x, const std::vector<int32_t> &pos,
                        uint32_t heads, uint32_t dim, const std::vector<float> &freqs) {
  ced_rope_args a{};
  a.rows = rig.sequence_rows(pos, std::vector<int32_t>(pos.size()));
  a.x = rig.put(x), a.freqs = rig.put(freqs);
  a.max_rows = static_cast<uint32_t>(pos.size()), a.heads = heads, a.dim = dim;
  a.rope_dim = static_cast<uint32_t>(2 * freqs.size());
  return a;
}

std::vector<uint16_t> rotated(Rig &rig, const ced_rope_args &a) {
  rig.run(ced_rope, a);
  return rig.get<uint16_t>(a.x, static_cast<size_t>(a.max_rows) * a.heads * a.dim);
}

}  // namespace

TEST("rope: every body has the golden bits up to position 1048575, forward and inverse") {
  const auto &ops = golden::ops();
  const auto &p = ops["rope.positions"];
  const std::vector<int32_t> pos(p.as<int32_t>(), p.as<int32_t>() + p.count());
  const auto x = prng::xb("op/rope/x", pos.size() * 512, 0);
  for (const std::string table : {"plain", "compressed"}) {
    const auto freqs = ops["rope." + table + "_freqs"].f32();
    for (ced_kind kind : bodies("rope")) {
      for (uint32_t inverse : {0u, 1u}) {
        CONTEXT(table << " kind=" << kind << " inverse=" << inverse);
        const uint16_t *want = ops["rope." + table + (inverse ? "_inverse" : "_rotated")].as<uint16_t>();
        Rig rig(kind);
        auto a = arguments(rig, x, pos, 1, 512, freqs);
        a.inverse = inverse;
        const auto got = rotated(rig, a);
        for (size_t r = 0; r < pos.size(); r++) {
          CHECK_BITS(&got[r * 512], &x[r * 512], 448);
          CHECK_BITS(&got[r * 512 + 448], want + r * 64, 64);
        }
      }
    }
  }
}

TEST("rope: heads turn alike, alone, in a batch and on any number of threads") {
  const uint32_t heads = 3, dim = 80;
  const auto x = prng::xb("rope/x", 5 * heads * dim, 0);
  const std::vector<int32_t> pos{7, 8, 9, 100000, 100001};
  const std::vector<float> freqs{1, 0.5f, 0.01f};
  Rig one(CED_CPU, 1), many(CED_CPU, 3), ref(CED_REF);
  const auto batch = rotated(one, arguments(one, x, pos, heads, dim, freqs));
  CHECK_BITS(rotated(many, arguments(many, x, pos, heads, dim, freqs)).data(), batch.data(), batch.size());
  CHECK_BITS(rotated(ref, arguments(ref, x, pos, heads, dim, freqs)).data(), batch.data(), batch.size());
  const size_t head = 3 * heads + 1;  // row 3, head 1, as a row of its own
  const auto alone = rotated(
      many, arguments(many, {x.begin() + head * dim, x.begin() + (head + 1) * dim}, {100000}, 1, dim, freqs));
  CHECK_BITS(alone.data(), &batch[head * dim], dim);
}

TEST("rope: refuses bad arguments and accepts no rows") {
  Rig rig(CED_CPU);
  const auto good = arguments(rig, std::vector<uint16_t>(64), {5}, 1, 64, {1, 1});
  auto a = good;
  const auto refusal = [&] { return rig.refusal(ced_rope, a); };
  a.rope_dim = 66;
  CHECK(says(refusal(), "rope: rope_dim is 66"));
  a = good, a.rope_dim = 3;
  CHECK(says(refusal(), "rope: rope_dim is 3"));
  a = good, a.rope_dim = 0;
  CHECK(says(refusal(), "rope: rope_dim is 0"));
  a = good, a.freqs = 0;
  CHECK_EQ(refusal(), "rope: freqs is missing");
  a = good, a.x += 2;
  CHECK(says(refusal(), "is not aligned to 64 bytes"));
  a = good;
  const ced_rows bare{1, 0, 0, 0, 0, 0, 0, 0};
  a.rows = rig.put(&bare, 1);
  CHECK_EQ(refusal(), "rope: rows.pos is missing");
  rig.run(ced_rope, arguments(rig, {}, {}, 1, 64, {1, 1}));
}
