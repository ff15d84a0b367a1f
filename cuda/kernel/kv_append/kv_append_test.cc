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
    for (ced_kind kind : {CED_REF, CED_CPU}) {
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
