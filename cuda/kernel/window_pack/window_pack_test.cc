#include "test/check.h"
#include "test/golden.h"
#include "test/linear.h"
#include "test/prng.h"
#include "test/rig.h"

namespace {

constexpr size_t kDim = 512, kRow = kDim + kDim / 32;

ced_window_pack_args arguments(Rig &rig, const std::vector<uint16_t> &x, const std::vector<int32_t> &pos,
                               const std::vector<uint16_t> &weight, const char *freqs) {
  ced_window_pack_args a{};
  a.rows = rig.sequence_rows(pos, std::vector<int32_t>(pos.size(), 0));
  a.x = rig.put(x), a.weight = rig.put(weight), a.freqs = rig.put(golden::ops()[freqs].f32());
  a.packed = rig.out<uint8_t>(pos.size() * kRow);
  a.max_rows = static_cast<uint32_t>(pos.size()), a.dim = kDim, a.rope_dim = 64;
  a.weight_format = CED_BF16, a.eps = 1e-20f;
  return a;
}

}  // namespace

TEST("window_pack: codes and scales have the golden's bits on every host body") {
  const auto x = prng::xb("op/kv_rows/x", 5 * 5120, -1);
  for (const std::string layer : {"L2", "L20"}) {
    const std::string in = "op/kv_rows/" + layer, out = "kv_rows." + layer;
    const auto kv = linear::fp8(x, prng::e4m3(in + "/wkv/weight", kDim * 5120),
                                prng::e8m0(in + "/wkv/scale", kDim / 32 * 160, 117), kDim, 5120);
    const auto &codes = golden::ops()[out + ".window_codes"], &scales = golden::ops()[out + ".window_scales"];
    for (ced_kind kind : bodies("window_pack")) {
      CONTEXT(layer << " kind=" << kind);
      Rig rig(kind);
      const auto a = arguments(rig, kv, {131069, 131070, 131071, 131072, 131073},
                               prng::norm(in + "/kv_norm", kDim, -3), "rope.compressed_freqs");
      rig.run(ced_window_pack, a);
      const auto got = rig.get<uint8_t>(a.packed, 5 * kRow);
      for (size_t r = 0; r < 5; r++) {
        CHECK_BITS(&got[r * kRow], codes.as<uint8_t>() + r * kDim, kDim);
        CHECK_BITS(&got[r * kRow + kDim], scales.as<uint8_t>() + r * kDim / 32, kDim / 32);
      }
    }
  }
}

TEST("window_pack: a weight may be F32 and start at any byte") {
  Rig rig(CED_CPU);
  const auto x = prng::xb("window_pack/x", kDim, 0), weight = prng::norm("window_pack/w", kDim, -2);
  auto a = arguments(rig, x, {77}, weight, "rope.plain_freqs");
  rig.run(ced_window_pack, a);
  const auto want = rig.get<uint8_t>(a.packed, kRow);
  std::vector<uint8_t> odd(1 + 4 * kDim);
  for (size_t i = 0; i < kDim; i++) {
    const float w = ced::bf16_to_f32(weight[i]);
    std::memcpy(&odd[1 + 4 * i], &w, 4);
  }
  a.weight = rig.put(odd) + 1, a.weight_format = CED_F32, a.packed = rig.out<uint8_t>(kRow);
  rig.run(ced_window_pack, a);
  CHECK_BITS(rig.get<uint8_t>(a.packed, kRow).data(), want.data(), kRow);
}

TEST("window_pack: refuses bad arguments and accepts no rows") {
  Rig rig(CED_CPU);
  const auto good = arguments(rig, {}, {}, prng::norm("window_pack/w", kDim, -2), "rope.plain_freqs");
  rig.run(ced_window_pack, good);
  auto a = good;
  a.dim = 48;
  CHECK(says(rig.refusal(ced_window_pack, a), "window_pack: dim is 48"));
  a = good, a.rope_dim = 63;
  CHECK(says(rig.refusal(ced_window_pack, a), "window_pack: rope_dim is 63"));
  a = good, a.weight_format = CED_FP8;
  CHECK(says(rig.refusal(ced_window_pack, a), "weight_format is 2"));
  a = good, a.max_rows = 4, a.rows = rig.rows(1);
  CHECK(says(rig.refusal(ced_window_pack, a), "window_pack: rows->pos is null"));
}
