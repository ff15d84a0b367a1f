// Codecs over all their inputs, quantisers against the goldens.
#include <cmath>

#include "num/bf16.h"
#include "num/e8m0.h"
#include "num/fp4.h"
#include "num/fp8.h"
#include "num/func.h"
#include "num/quant.h"
#include "test/check.h"
#include "test/golden.h"

using namespace ced;

namespace {

// A BF16 pattern as the goldens see it: non-finite patterns count as 0.
float finite_bf16(int bits) {
  const float x = bf16_to_f32(static_cast<uint16_t>(bits));
  return std::isfinite(x) ? x : 0.0f;
}

}  // namespace

TEST("num: bf16 keeps every pattern and rounds like the golden") {
  for (int i = 0; i < 65536; i++) {
    const auto h = static_cast<uint16_t>(i);
    const float x = bf16_to_f32(h);
    if (std::isnan(x)) {
      CHECK(std::isnan(bf16_to_f32(f32_to_bf16(x))));
    } else {
      CHECK_EQ(f32_to_bf16(x), h);
    }
  }
  const auto &in = golden::ops()["quant.f32_bits"], &want = golden::ops()["quant.bf16_of_f32"];
  for (size_t i = 0; i < in.count(); i++)
    CHECK_EQ(f32_to_bf16(f32_of(static_cast<uint32_t>(in.as<int32_t>()[i]))), want.as<int32_t>()[i]);
}

TEST("num: bf16 of a NaN whose mantissa is in the lower half stays a NaN") {
  CHECK_EQ(f32_to_bf16(f32_of(0x7F800001u)), 0x7FC0);
  CHECK_EQ(f32_to_bf16(f32_of(0xFFFFFFFFu)), 0xFFFF);
  CHECK_EQ(f32_to_bf16(f32_of(0x7F800000u)), 0x7F80);
  CHECK_EQ(f32_to_bf16(f32_of(0x7F7FFFFFu)), 0x7F80);
}

TEST("num: e4m3 values of all codes, and each code's value encodes to it") {
  const float *want = golden::ops()["quant.e4m3_values"].as<float>();
  for (int c = 0; c < 256; c++) {
    const float v = e4m3_to_f32(static_cast<uint8_t>(c));
    CONTEXT("code " << c);
    if ((c & 127) == 127) {
      CHECK(std::isnan(v));
      CHECK_EQ(f32_to_e4m3(v), c);
    } else {
      CHECK_BITS(&v, want + c, 1);
      CHECK_EQ(f32_to_e4m3(v), c);
    }
  }
}

TEST("num: e4m3 of every bf16 pattern and of the neighbours of every midpoint") {
  const uint8_t *want = golden::ops()["quant.e4m3_of_bf16"].as<uint8_t>();
  for (int i = 0; i < 65536; i++) CHECK_EQ(f32_to_e4m3(finite_bf16(i)), want[i]);
  const auto &in = golden::ops()["quant.e4m3_edges_in"];
  const uint8_t *code = golden::ops()["quant.e4m3_edges_code"].as<uint8_t>();
  for (size_t i = 0; i < in.count(); i++) CHECK_EQ(f32_to_e4m3(in.as<float>()[i]), code[i]);
}

TEST("num: e4m3 saturates infinities and everything above 448") {
  for (float x : {449.0f, 464.0f, 480.0f, 1e30f, HUGE_VALF}) {
    CHECK_EQ(f32_to_e4m3(x), 126);
    CHECK_EQ(f32_to_e4m3(-x), 254);
  }
}

TEST("num: e2m1 of every bf16 pattern; each code's value encodes to it") {
  const uint8_t *want = golden::ops()["quant.e2m1_of_bf16"].as<uint8_t>();
  for (int i = 0; i < 65536; i++) CHECK_EQ(f32_to_e2m1(finite_bf16(i)), want[i]);
  const float values[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (int c = 0; c < 16; c++) {
    const float v = std::copysign(values[c & 7], c & 8 ? -1.0f : 1.0f);
    const float got = e2m1_to_f32(static_cast<uint8_t>(c));
    CHECK_BITS(&got, &v, 1);
    CHECK_EQ(f32_to_e2m1(v), c);
    CHECK_EQ(pack_e2m1(static_cast<uint8_t>(c), 5), 0x50 | c);
  }
}

TEST("num: e8m0 of all codes and back") {
  for (int c = 0; c < 255; c++) {
    const float v = e8m0_to_f32(static_cast<uint8_t>(c));
    CHECK_EQ(v, std::ldexp(1.0f, c - 127));
    CHECK_EQ(f32_to_e8m0(v), c);
  }
  CHECK(std::isnan(e8m0_to_f32(255)));
}

TEST("num: pow2_ceil is exact at and next to every power of two") {
  for (int e = -125; e < 127; e++) {
    const float p = std::ldexp(1.0f, e);
    CHECK_EQ(pow2_ceil(p), p);
    CHECK_EQ(pow2_ceil(std::nextafter(p, 0.0f)), p);
    CHECK_EQ(pow2_ceil(std::nextafter(p, HUGE_VALF)), 2 * p);
  }
  CHECK_EQ(pow2_ceil(f32_of(1)), 0x1p-126f);
}

TEST("num: the quantisers give the golden codes, scales and values") {
  const auto &ops = golden::ops();
  const std::vector<float> x = ops["quant.groups_in"].f32();
  const auto check = [&](const std::string &name, size_t block, const auto &quantise, const auto &value,
                         const auto &scale_value) {
    CONTEXT(name);
    std::vector<uint8_t> codes(x.size()), scales(x.size() / block);
    std::vector<uint16_t> values(x.size());
    for (size_t g = 0; g < scales.size(); g++) {
      quantise(&x[g * block], &codes[g * block], &scales[g]);
      for (size_t i = g * block; i < (g + 1) * block; i++)
        values[i] = f32_to_bf16(value(codes[i]) * scale_value(scales[g]));
    }
    CHECK_BITS(codes.data(), ops["quant." + name + "_codes"].as<uint8_t>(), codes.size());
    CHECK_BITS(scales.data(), ops["quant." + name + "_scales"].as<uint8_t>(), scales.size());
    CHECK_BITS(values.data(), ops["quant." + name + "_values"].as<uint16_t>(), values.size());
  };
  check("fp8", 32, act_quant32, e4m3_to_f32, e8m0_to_f32);
  check("fp4_ue8m0", 32, fp4_quant_e8m0, e2m1_to_f32, e8m0_to_f32);
  check("fp4_e4m3", 16, fp4_quant_e4m3, e2m1_to_f32, e4m3_to_f32);
}

TEST("num: functions at their limits") {
  CHECK_EQ(f32_sigmoid(-1000.0f), 0.0f);
  CHECK_EQ(f32_sigmoid(1000.0f), 1.0f);
  CHECK_EQ(f32_sigmoid(0.0f), 0.5f);
  CHECK_EQ(f32_silu(-1000.0f), 0.0f);
  CHECK_EQ(f32_softplus(20.5f), 20.5f);
  CHECK_EQ(f32_softplus(-40.0f), static_cast<float>(std::exp(-40.0)));
  CHECK_EQ(f32_rsqrt(4.0f), 0.5f);
  CHECK_EQ(f32_exp(0.0f), 1.0f);
}
