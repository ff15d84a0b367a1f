#include "test/rules.h"

#include <limits>

#include "test/check.h"

TEST("rules: a BF16 ulp is 2^-7 of the binade") {
  CHECK_EQ(check::bf16_ulp(1.0), 0x1p-7);
  CHECK_EQ(check::bf16_ulp(1.99), 0x1p-7);
  CHECK_EQ(check::bf16_ulp(0.75), 0x1p-8);
  CHECK_EQ(check::bf16_ulp(0.0), 0.0);
}

TEST("rules: elements near zero are held to the rms of their row") {
  // A row of ones and a zero: the zero may be off by an ulp of the rms, and one of a hundred may differ.
  std::vector<float> want(100, 1.f), got(100, 1.f);
  want[7] = 0;
  got[7] = 0x1p-8f;
  CHECK_ROWS(got.data(), want.data(), 1, 100, check::kLinear);
  const std::vector<uint16_t> ones(100, 0x3F80);
  CHECK_ROWS(ones.data(), ones.data(), 1, 100, check::kLinear);
}

TEST("rules: a violation, a NaN and too many small differences are failures") {
  const std::vector<float> want(100, 1.f);
  std::vector<float> got = want;
  got[3] = 1.f + 3 * 0x1p-7f;
  CHECK_FAILS(CHECK_ROWS(got.data(), want.data(), 1, 100, check::kLinear));
  got[3] = std::numeric_limits<float>::quiet_NaN();
  CHECK_FAILS(CHECK_ROWS(got.data(), want.data(), 1, 100, check::kExpert));
  got[3] = got[4] = 1.f + 0x1p-7f;
  CHECK_FAILS(CHECK_ROWS(got.data(), want.data(), 1, 100, check::kLinear));
  CHECK_ROWS(got.data(), want.data(), 1, 100, check::kAttention);
}
