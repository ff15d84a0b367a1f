#include "test/check.h"
#include "test/rig.h"

namespace {

constexpr uint32_t kBytes = 3;

ced_window_commit_args arguments(Rig &rig, const std::vector<int32_t> &pos, const std::vector<int32_t> &slot,
                                 uint32_t ring_rows, uint32_t slots) {
  std::vector<uint8_t> packed;  // row r holds three bytes r+1
  for (size_t r = 0; r < pos.size(); r++) packed.insert(packed.end(), kBytes, static_cast<uint8_t>(r + 1));
  ced_window_commit_args a{};
  a.rows = rig.sequence_rows(pos, slot);
  a.packed = rig.put(packed);
  a.ring = rig.put(std::vector<uint8_t>(slots * ring_rows * kBytes, 0));
  a.max_rows = static_cast<uint32_t>(pos.size()), a.row_bytes = kBytes, a.ring_rows = ring_rows;
  return a;
}

// The ring's rows by their first byte; every byte of a row must agree.
std::vector<int> ring(Rig &rig, const ced_window_commit_args &a, size_t rows) {
  const auto bytes = rig.get<uint8_t>(a.ring, rows * kBytes);
  std::vector<int> v;
  for (size_t r = 0; r < rows; r++) {
    v.push_back(bytes[r * kBytes]);
    for (size_t i = 1; i < kBytes; i++) CHECK_EQ(bytes[r * kBytes + i], bytes[r * kBytes]);
  }
  return v;
}

}  // namespace

TEST("window_commit: each sequence keeps its last rows at position mod ring_rows") {
  struct {
    const char *name;
    std::vector<int32_t> pos, slot;
    std::vector<int> want;  // two slots of four ring rows
  } cases[] = {
      {"one decode row", {6}, {1}, {0, 0, 0, 0, 0, 0, 1, 0}},
      {"no rows", {}, {}, {0, 0, 0, 0, 0, 0, 0, 0}},
      {"a chunk longer than the ring", {0, 1, 2, 3, 4, 5}, {0, 0, 0, 0, 0, 0}, {5, 6, 3, 4, 0, 0, 0, 0}},
      {"two sequences in a step", {8, 9, 3, 4, 5, 6, 7}, {1, 1, 0, 0, 0, 0, 0}, {4, 5, 6, 7, 1, 2, 0, 0}},
  };
  for (const auto &c : cases) {
    for (ced_kind kind : bodies("window_commit")) {
      CONTEXT(c.name << " kind=" << kind);
      Rig rig(kind);
      const auto a = arguments(rig, c.pos, c.slot, 4, 2);
      rig.run(ced_window_commit, a);
      const auto got = ring(rig, a, 8);
      CHECK_BITS(got.data(), c.want.data(), 8);
    }
  }
}

TEST("window_commit: refuses bad arguments") {
  Rig rig(CED_CPU);
  const auto good = arguments(rig, {0}, {0}, 4, 1);
  auto a = good;
  a.ring_rows = 0;
  CHECK(says(rig.refusal(ced_window_commit, a), "window_commit: ring_rows is 0"));
  a = good, a.ring = 0;
  CHECK(says(rig.refusal(ced_window_commit, a), "window_commit: ring"));
  a = good, a.max_rows = 0;
  CHECK(says(rig.refusal(ced_window_commit, a), "max_rows"));
}
