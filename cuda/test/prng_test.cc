// Known answers of the conformance data's section 3.
#include "test/prng.h"

#include "test/check.h"

TEST("prng: fnv1a64, stream and elements match the known answers") {
  CHECK_EQ(prng::fnv1a64("op/gate/x"), 0x380b3466311b3477u);
  prng::Stream s("op/gate/x");
  CHECK_EQ(s.id(), 0x7e7fe090a169981fu);
  CHECK_EQ(s[0], 0xab0f5c90c9bf2858u);
  CHECK_EQ(s[1], 0x701941eeff5a802au);
  CHECK_EQ(s[2], 0xc8321186b7a93fb6u);
  CHECK_EQ(prng::Stream("op/wq_a/weight").id(), 0x91215f3851ee5b55u);
}

TEST("prng: every mapping matches the known answers") {
  const float gauss[] = {-0.049072265625f, 0.387115478515625f, -0.366424560546875f};
  CHECK_BITS(prng::xf("op/gate/x", 3).data(), gauss, 3);
  const uint8_t codes[] = {64, 181, 188, 57};
  CHECK_BITS(prng::e4m3("op/wq_a/weight", 4).data(), codes, 4);
  const uint8_t scales[] = {120, 117, 117, 117};
  CHECK_BITS(prng::e8m0("op/wq_a/scale", 4, 117).data(), scales, 4);
  const uint8_t fp4[] = {205, 228, 46, 122};
  CHECK_BITS(prng::bytes("op/expert_fp4/w1/weight", 4).data(), fp4, 4);
}

TEST("prng: bf16 rounds to nearest even and xb, norm, ints keep their ranges") {
  CHECK_EQ(prng::bf16(1.f), 0x3F80);
  CHECK_EQ(prng::bf16(1.f + 0x1p-8f), 0x3F80);
  CHECK_EQ(prng::bf16(1.f + 3 * 0x1p-8f), 0x3F82);
  CHECK_EQ(prng::bf16(1.f + 0x1p-8f + 0x1p-20f), 0x3F81);
  CHECK_EQ(prng::xb("op/gate/x", 1, -1)[0], prng::bf16(-0.0245361328125f));
  CHECK_EQ(prng::norm("op/gate/x", 1, -3)[0], prng::bf16(1.f - 0.049072265625f / 8));
  for (int32_t v : prng::ints("any", 1000, -3, 5)) CHECK(v >= -3 && v < 5);
}
