#include "kernel/lanes.h"

#include <cmath>

#include "kernel/row.h"
#include "test/check.h"
#include "test/prng.h"

using namespace ced;

namespace {

constexpr size_t kOutputs = 6 * 16 + 2;

// Every function of lanes.h on sixteen x <= 0.
struct Everything {
  template <int W>
  static CED_INLINE void run(const float *x, float *out) {
    const auto v = load<f32<W>>(x);
    store(out, exp_negative(v));
    store(out + 16, round_bf16(v));
    store(out + 32, larger(v, f32<W>::of(-2.0f)) * 3.0f);
    uint16_t bf16[16];
    store_bf16(bf16, v / f32<W>::of(3.0f));
    store(out + 48, load_bf16<W>(bf16));
    store(out + 64, to_f32(to_i32(v) - 5));
    store(out + 80, to_f32(bits_as<int32_t>(widen<W, uint8_t>(x))));
    out[96] = sum(v), out[97] = largest(v);
  }
};

#if CED_WIDE
CED_AVX2 void at_width_8(const float *x, float *out) { Everything::run<8>(x, out); }
CED_AVX512 void at_width_16(const float *x, float *out) { Everything::run<16>(x, out); }
#endif

}  // namespace

TEST("lanes: every vector width gives the same bits, at any address") {
  for (int round = 0; round < 64; round++) {
    CONTEXT("round " << round);
    auto x = prng::xf("lanes/x" + std::to_string(round), 16, round % 8);
    for (float &v : x) v = -std::fabs(v);
    std::vector<char> odd(1 + 64);
    memcpy(&odd[1], x.data(), 64);
    float plain[kOutputs], other[kOutputs];
    Everything::run<4>(x.data(), plain);
    vectorised<Everything>(x.data(), static_cast<float *>(other));
    CHECK_BITS(other, plain, kOutputs);
    store(other, load<f32<4>>(&odd[1]));
    CHECK_BITS(other, x.data(), 16);
#if CED_WIDE
    if (simd_width() >= 8) {
      at_width_8(x.data(), other);
      CHECK_BITS(other, plain, kOutputs);
    }
    if (simd_width() >= 16) {
      at_width_16(x.data(), other);
      CHECK_BITS(other, plain, kOutputs);
    }
#endif
    for (size_t i = 0; i < 16; i++) CHECK_EQ(plain[16 + i], bf16_round(x[i]));
  }
}

TEST("lanes: sums go through distances 8, 4, 2, 1") {
  const auto x = prng::xf("lanes/sum", 16);
  std::vector<float> t = x;
  for (size_t d = 8; d > 0; d /= 2)
    for (size_t i = 0; i < d; i++) t[i] += t[i + d];
  CHECK_EQ(sum(load<f32<4>>(x.data())), t[0]);
}

TEST("lanes: exp of negative numbers is within 2^-22, and 0 below -87") {
  for (int i = 0; i < 200000; i += 16) {
    float x[16], y[16];
    for (int l = 0; l < 16; l++) x[l] = -0.0005f * static_cast<float>(i + l);
    store(y, exp_negative(load<f32<4>>(x)));
    for (int l = 0; l < 16; l++) {
      const double want = std::exp(static_cast<double>(x[l]));
      if (x[l] < -87) {
        CHECK_EQ(y[l], 0.0f);
      } else {
        CHECK(std::fabs(y[l] - want) <= 0x1p-22 * want);
      }
    }
  }
  float y[16];
  store(y, exp_negative(f32<4>::of(-INFINITY)));
  CHECK_EQ(y[0], 0.0f);
  store(y, exp_negative(f32<4>::of(0)));
  CHECK_EQ(y[0], 1.0f);
}
