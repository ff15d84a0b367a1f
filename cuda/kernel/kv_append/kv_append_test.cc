#include "num/bf16.h"
#include "test/check.h"
#include "test/golden.h"
#include "test/linear.h"
#include "test/pages.h"
#include "test/prng.h"
#include "test/rig.h"

namespace {

// The golden rows have numbers up to 131073; the page table maps only the last pages.
struct Case {
  std::string layer;
  uint32_t ratio, page_rows;
  std::vector<int32_t> closing;  // rows of positions 131069.. that close a group
};
const Case kCases[] = {{"L2", 2, 32, {0, 2, 4}}, {"L20", 1, 64, {0, 1, 2, 3, 4}}};

ced_kv_append_args arguments(Rig &rig, const Case &c, const Pages &pages, size_t from, size_t to) {
  const auto &latent = golden::ops()["kv_rows." + c.layer + ".latent"];
  const std::vector<uint16_t> rows(latent.as<uint16_t>() + from * 512, latent.as<uint16_t>() + to * 512);
  const auto wk = prng::xb("op/kv_rows/" + c.layer + "/wk", 128 * 512, -4);
  ced_kv_append_args a{};
  a.rows = rig.sequence_rows({131069, 131070, 131071, 131072, 131073}, {0, 0, 0, 0, 0});
  a.groups = rig.groups(
      {c.closing.begin() + static_cast<ptrdiff_t>(from), c.closing.begin() + static_cast<ptrdiff_t>(to)});
  a.latent = rig.put(rows), a.k = rig.put(linear::rounded(linear::bf16(rows, wk, 128, 512)));
  a.k_weight = rig.put(prng::norm("op/kv_rows/" + c.layer + "/k_norm", 128, -3));
  a.freqs = rig.put(golden::ops()["rope.compressed_freqs"].f32());
  a.kv = pages.kv;
  a.max_groups = static_cast<uint32_t>(to - from), a.rope_dim = 64, a.weight_format = CED_BF16,
  a.eps = 1e-20f;
  return a;
}

}  // namespace

TEST("kv_append: main and index rows have the golden's bits, together or one by one") {
  for (const Case &c : kCases) {
    const std::string out = "kv_rows." + c.layer;
    const size_t groups = c.closing.size();
    const auto first = static_cast<size_t>(golden::ops()[out + ".first_group"].as<int32_t>()[0]);
    for (ced_kind kind : bodies("kv_append")) {
      for (bool together : {true, false}) {
        CONTEXT(c.layer << " kind=" << kind << " together=" << together);
        Rig rig(kind);
        const Pages pages(rig, 1, 131074 / c.ratio, c.page_rows, c.ratio);
        for (size_t g = 0; g < groups; g += together ? groups : 1)
          rig.run(ced_kv_append, arguments(rig, c, pages, g, together ? groups : g + 1));
        const auto pool = rig.get<uint8_t>(pages.kv.pages, pages.bytes);
        const auto &kv = pages.kv;
        for (auto [name, plane, width] : {std::tuple{".main_packed", kv.main_codes, 256u},
                                          {".main_scales", kv.main_scales, 32u},
                                          {".index_packed", kv.index_codes, 64u},
                                          {".index_scales", kv.index_scales, 4u}}) {
          CONTEXT(name);
          const auto *want = golden::ops()[out + name].as<uint8_t>();
          for (size_t g = 0; g < groups; g++)
            CHECK_BITS(&pool[pages.place(0, first + g, plane, width)], want + g * width, width);
        }
        size_t written = 0;
        for (uint8_t b : pool) written += b != 0xA5;
        CHECK(written <= groups * (256 + 32 + 64 + 4));
      }
    }
  }
}

// Rows over many binades, with zeros: scales down to the smallest subnormal and up to the largest.
TEST("kv_append: the CPU has the reference's bits") {
  constexpr size_t groups = 13, head_dim = 96, index_dim = 64;
  std::vector<std::vector<uint8_t>> pools;
  for (ced_kind kind : {CED_REF, CED_CPU}) {
    Rig rig(kind, 3);
    const Pages pages(rig, 2, 40, 8, 2, head_dim, index_dim);
    const auto wide = [](const std::string &name, size_t n) {
      auto x = prng::xb(name, n, 0);
      const prng::Stream random(name + "/binade");
      for (size_t i = 0; i < n; i++)
        x[i] = i / 16 % 7 == 0
                   ? 0
                   : ced::f32_to_bf16(
                         std::ldexp(ced::bf16_to_f32(x[i]), 12 - static_cast<int>(random.below(i / 16, 30))));
      return x;
    };
    std::vector<int32_t> pos, slot, closing;
    for (int32_t i = 0; i < 26; i++) {
      pos.push_back(i < 14 ? 30 + i : i), slot.push_back(i < 14 ? 1 : 0);
      if (pos.back() % 2 == 1) closing.push_back(i);
    }
    REQUIRE_EQ(closing.size(), groups);
    ced_kv_append_args a{};
    a.rows = rig.sequence_rows(pos, slot), a.groups = rig.groups(closing);
    a.latent = rig.put(wide("kv_append/latent", groups * head_dim)),
    a.k = rig.put(wide("kv_append/k", groups * index_dim));
    a.k_weight = rig.put(prng::xf("kv_append/weight", index_dim)), a.weight_format = CED_F32;
    a.freqs = rig.put(prng::xf("kv_append/freqs", 16)), a.kv = pages.kv;
    a.max_groups = groups, a.rope_dim = 32, a.eps = 1e-20f;
    rig.run(ced_kv_append, a);
    pools.push_back(rig.get<uint8_t>(pages.kv.pages, pages.bytes));
  }
  CHECK_BITS(pools[1].data(), pools[0].data(), pools[0].size());
}

TEST("kv_append: refuses a group that has no place") {
  for (ced_kind kind : {CED_REF, CED_CPU}) {
    Rig rig(kind);
    const Pages pages(rig, 1, 64, 32, 2);
    auto a = arguments(rig, kCases[0], pages, 0, 3);
    CHECK(says(rig.refusal(ced_kv_append, a),
               "position 131069 closes group 65534 of its sequence, whose page table holds 64"));
    a.rows = rig.sequence_rows({127, 128, 129, 130, 131}, {0, 0, 0, 0, 0});
    CHECK(says(rig.refusal(ced_kv_append, a), "position 129 closes group 64 of its sequence"));
    a.groups = rig.groups({0, 5});
    CHECK(says(rig.refusal(ced_kv_append, a), "groups->row[1] is 5, must be a row of the step: 0..4"));
    a.groups = rig.groups({0});
    rig.run(ced_kv_append, a);
  }
}

TEST("kv_append: refuses bad arguments and accepts no groups") {
  Rig rig(CED_CPU);
  const Pages pages(rig, 1, 64, 32, 2);
  const auto good = arguments(rig, kCases[0], pages, 0, 0);
  rig.run(ced_kv_append, good);
  auto a = good;
  a.kv.page_rows = 0;
  CHECK(says(rig.refusal(ced_kv_append, a), "kv_append: kv.page_rows is 0"));
  a = good, a.kv.index_scales = 8;
  CHECK(says(rig.refusal(ced_kv_append, a), "kv.index_scales is 8"));
  a = good, a.kv.page_bytes = 128;
  CHECK(says(rig.refusal(ced_kv_append, a), "leave the page"));
  a = good, a.rope_dim = 256;
  CHECK(says(rig.refusal(ced_kv_append, a), "rope_dim is 256"));
  a = good, a.k = 0;
  CHECK(says(rig.refusal(ced_kv_append, a), "k is missing"));
}
