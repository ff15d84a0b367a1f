// The machine's limits.
#include <string>
#include <vector>

#include "ced.h"
#include "test/check.h"

TEST("probe: every byte is read once, whatever the threads, the alignment and the rest") {
  std::vector<uint8_t> data(3 * 1000 * 1000 + 13);
  for (size_t i = 0; i < data.size(); i++) data[i] = static_cast<uint8_t>(i * 7);
  for (int threads : {1, 3}) {
    ced_stream *s = nullptr;
    ced_err err{};
    REQUIRE_EQ(ced_stream_open(CED_CPU, 0, threads, 0, &s, &err), CED_OK);
    for (uint64_t n : {uint64_t{0}, uint64_t{5}, uint64_t{1 << 20}, uint64_t{data.size() - 1}}) {
      uint64_t before = 0, after = 1;
      const uint64_t addr = reinterpret_cast<uint64_t>(data.data() + 1);
      CHECK_EQ(ced_probe_read(s, addr, n, &before, &err), CED_OK);
      if (n == 0) {
        CHECK_EQ(before, 0);
        continue;
      }
      for (uint64_t at : {uint64_t{0}, n / 2, n - 1}) {
        data[1 + at] ^= 1;
        CHECK_EQ(ced_probe_read(s, addr, n, &after, &err), CED_OK);
        CHECK(before != after);
        data[1 + at] ^= 1;
      }
      CHECK_EQ(ced_probe_read(s, addr, n, &after, &err), CED_OK);
      CHECK_EQ(before, after);
    }
    ced_stream_close(s);
  }
}

TEST("probe: multiply-adds are counted per call, and misuse is refused") {
  ced_stream *s = nullptr;
  ced_err err{};
  REQUIRE_EQ(ced_stream_open(CED_CPU, 0, 2, 0, &s, &err), CED_OK);
  for (int bf16 : {0, 1}) {
    double one = 0, three = 0;
    CHECK_EQ(ced_probe_multiply(s, bf16, 1, &one, &err), CED_OK);
    CHECK_EQ(ced_probe_multiply(s, bf16, 3, &three, &err), CED_OK);
    CHECK(one > 0);
    CHECK_EQ(three, 3 * one);
  }
  uint64_t sum = 0;
  CHECK_EQ(ced_probe_read(s, 0, 8, &sum, &err), CED_EINVAL);
  CHECK_EQ(std::string(err.what), "probe_read: addr is missing");
  CHECK_EQ(ced_probe_multiply(s, 0, 1, nullptr, &err), CED_EINVAL);
  CHECK_EQ(std::string(err.what), "probe_multiply: flops is missing");
  ced_stream_close(s);
}
