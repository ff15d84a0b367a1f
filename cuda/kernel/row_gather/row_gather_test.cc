#include "test/check.h"
#include "test/prng.h"
#include "test/rig.h"

TEST("row_gather: copies the indexed rows, in any order and repeatedly, and nothing else") {
  for (ced_kind kind : bodies("row_gather")) {
    for (size_t bytes : {1u, 48u, 10240u}) {
      CONTEXT("kind=" << kind << " bytes=" << bytes);
      Rig rig(kind, 3);
      const auto src = prng::bytes("row_gather/src", 9 * bytes);
      const std::vector<int32_t> index{8, 0, 3, 3, 7};
      ced_row_gather_args a{};
      a.rows = rig.rows(5), a.index = rig.put(index), a.src = rig.put(src),
      a.dst = rig.out<uint8_t>(6 * bytes);
      a.row_bytes = bytes, a.max_rows = 5;
      rig.run(ced_row_gather, a);
      const auto dst = rig.get<uint8_t>(a.dst, 6 * bytes);
      for (size_t i = 0; i < index.size(); i++)
        CHECK_BITS(&dst[i * bytes], &src[static_cast<size_t>(index[i]) * bytes], bytes);
      const std::vector<uint8_t> untouched(bytes, 0xA5);
      CHECK_BITS(&dst[5 * bytes], untouched.data(), bytes);
    }
  }
}

TEST("row_gather: refuses bad arguments and accepts no rows") {
  Rig rig(CED_CPU);
  ced_row_gather_args good{};
  good.rows = rig.rows(1), good.index = rig.put(std::vector<int32_t>{0}),
  good.src = rig.put(std::vector<char>(8));
  good.dst = rig.out<char>(8), good.row_bytes = 8, good.max_rows = 1;
  rig.run(ced_row_gather, good);
  auto a = good;
  a.index = rig.put(std::vector<int32_t>{-1});
  CHECK_EQ(rig.refusal(ced_row_gather, a), "row_gather: index[0] is -1");
  a = good, a.row_bytes = 0;
  CHECK_EQ(rig.refusal(ced_row_gather, a), "row_gather: row_bytes is 0");
  a = good, a.src = 0;
  CHECK_EQ(rig.refusal(ced_row_gather, a), "row_gather: src is missing");
  a = good, a.rows = rig.rows(0), a.max_rows = 0;
  rig.run(ced_row_gather, a);
}
