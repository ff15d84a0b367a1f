#include "test/check.h"
#include "test/golden.h"
#include "test/prng.h"
#include "test/rig.h"

namespace {

constexpr size_t kCols = 24, kDim = 256;

ced_engram_gather_args arguments(Rig &rig, const std::vector<int64_t> &ids, const std::vector<uint8_t> &table,
                                 const std::vector<uint8_t> &scales) {
  ced_engram_gather_args a{};
  a.rows = rig.rows(static_cast<int32_t>(ids.size() / kCols));
  a.ids = rig.put(ids), a.table = rig.put(table), a.table_scales = rig.put(scales);
  a.e = rig.out<uint16_t>(ids.size() * kDim);
  a.table_rows = table.size() / kDim;
  a.max_rows = static_cast<uint32_t>(ids.size() / kCols), a.cols = kCols, a.dim = kDim;
  return a;
}

// Rows of the golden's table that tokens 0 and 63 of the text case address in layer 14, renumbered 0..47.
void golden_table(std::vector<uint8_t> *table, std::vector<uint8_t> *scales) {
  const auto &rows = golden::ops()["engram.rows_text"];  // [64, 2 layers, 24]
  const prng::Stream code("op/engram/table"), scale("op/engram/table_scale");
  for (size_t token : {size_t{0}, size_t{63}}) {
    for (size_t c = 0; c < kCols; c++) {
      const auto row = static_cast<uint64_t>(rows.as<int32_t>()[(token * 2 + 1) * kCols + c]);
      for (uint64_t i = row * kDim; i < (row + 1) * kDim; i++)
        table->push_back(
            static_cast<uint8_t>(code[i] >> 63 << 7 | (4 + (code[i] >> 32) % 8) << 3 | (code[i] >> 8 & 7)));
      for (uint64_t i = row * 8; i < (row + 1) * 8; i++)
        scales->push_back(static_cast<uint8_t>(124 + scale.below(i, 3)));
    }
  }
}

}  // namespace

TEST("engram_gather: the embedding has the golden's bits, for rows in any order") {
  std::vector<uint8_t> table, scales;
  golden_table(&table, &scales);
  const auto &want = golden::ops()["engram.embedding"];
  std::vector<int64_t> ids(2 * kCols), backwards(2 * kCols);
  for (size_t i = 0; i < ids.size(); i++) ids[i] = static_cast<int64_t>(i);
  for (size_t i = 0; i < ids.size(); i++) backwards[i] = ids[ids.size() - 1 - i];
  for (ced_kind kind : bodies("engram_gather")) {
    CONTEXT("kind=" << kind);
    Rig rig(kind);
    auto a = arguments(rig, ids, table, scales);
    rig.run(ced_engram_gather, a);
    CHECK_BITS(rig.get<uint16_t>(a.e, want.count()).data(), want.as<uint16_t>(), want.count());
    a.ids = rig.put(backwards);
    rig.run(ced_engram_gather, a);
    const auto got = rig.get<uint16_t>(a.e, want.count());
    for (size_t i = 0; i < ids.size(); i++)
      CHECK_BITS(&got[i * kDim], want.as<uint16_t>() + (ids.size() - 1 - i) * kDim, kDim);
  }
}

TEST("engram_gather: an id outside the table gives zeros") {
  Rig rig(CED_CPU);
  const auto table = prng::e4m3("engram_gather/table", kDim),
             scales = prng::e8m0("engram_gather/scales", 8, 124);
  std::vector<int64_t> ids(kCols, 0);
  ids[3] = 1, ids[5] = -1, ids[7] = INT64_MAX;
  const auto a = arguments(rig, ids, table, scales);
  rig.run(ced_engram_gather, a);
  const auto got = rig.get<uint16_t>(a.e, kCols * kDim);
  const std::vector<uint16_t> zeros(kDim, 0);
  for (size_t c : {size_t{3}, size_t{5}, size_t{7}}) CHECK_BITS(&got[c * kDim], zeros.data(), kDim);
  CHECK_BITS(&got[4 * kDim], &got[0], kDim);
}

TEST("engram_gather: refuses bad arguments and accepts no rows") {
  Rig rig(CED_CPU);
  const auto good =
      arguments(rig, {}, prng::e4m3("engram_gather/table", kDim), prng::e8m0("engram_gather/s", 8, 124));
  rig.run(ced_engram_gather, good);
  auto a = good;
  a.dim = 40;
  CHECK(says(rig.refusal(ced_engram_gather, a), "engram_gather: dim is 40"));
  a = good, a.table = 0;
  CHECK(says(rig.refusal(ced_engram_gather, a), "table is missing"));
}
