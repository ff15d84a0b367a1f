#include "kernel/lanes.h"

#include <cmath>

#include "kernel/rotary.h"
#include "kernel/row.h"
#include "test/check.h"
#include "test/prng.h"

using namespace ced;

namespace {

// Every function of lanes.h on sixteen x <= 0.
struct Everything {
  static constexpr size_t kOutputs = 6 * 16 + 2;
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

// Those of row_lanes.h on rows of 77 and 96 channels, with weights in both formats.
struct Rows {
  static constexpr size_t kOutputs = 500;
  template <int W>
  static CED_INLINE void run(const float *x, float *out) {
    uint16_t row[128], y[128];
    for (int i = 0; i < 128; i++) row[i] = f32_to_bf16(x[i]);
    memset(out, 0, kOutputs * sizeof(float));
    out[0] = sum_squares<W>(row, 77), out[1] = sum_squares<W>(row, 96), out[2] = rms_scale<W>(row, 5, 1e-6f);
    scale_row<W>(row, 77, reinterpret_cast<const char *>(x), false, 0.7f, y);
    memcpy(out + 3, y, 2 * 77);
    scale_row<W>(row, 77, reinterpret_cast<const char *>(row) + 1, true, 0.7f, y);
    memcpy(out + 60, y, 2 * 77);
    auto *bytes = reinterpret_cast<uint8_t *>(out + 120);
    quantise_row<W>(row, 128, bytes, bytes + 128);
  }
};

// Those of lanes64.h and rotary.h: x is 128 f32.
struct Doubles {
  static constexpr size_t kOutputs = 4 * 128 + 2 * 37;
  template <int W>
  static CED_INLINE void run(const float *x, float *out) {
    typedef typename F64<W>::D D;
    typedef typename F64<W>::Half Half;
    for (int i = 0; i < 128; i += W / 2) {
      Half h;
      memcpy(&h, x + i, sizeof h);
      const D v = __builtin_convertvector(h, D);
      D c, s;
      cos_sin<W>(v * 1000, &c, &s);
      const D all[] = {c, s, exp64<W>(v), log1p64<W>(exp64<W>(v))};
      for (int f = 0; f < 4; f++) {
        h = __builtin_convertvector(all[f], Half);
        memcpy(out + 128 * f + i, &h, sizeof h);
      }
    }
    Rotation by;
    Angles::run<W>(x, 37, 5591, true, &by);
    memcpy(out + 512, by.cosine, 37 * 4);
    memcpy(out + 512 + 37, by.sine, 37 * 4);
  }
};

#if CED_WIDE
template <class All>
CED_AVX2 void at_width_8(const float *x, float *out) {
  All::template run<8>(x, out);
}
template <class All>
CED_AVX512 void at_width_16(const float *x, float *out) {
  All::template run<16>(x, out);
}
#endif

// Runs All::run at every width of this machine and returns what width 4 gave.
template <class All>
std::vector<float> at_every_width(const std::vector<float> &x) {
  std::vector<float> plain(All::kOutputs);
  All::template run<4>(x.data(), plain.data());
  std::vector<float> other(All::kOutputs);
  vectorised<All>(x.data(), other.data());
  CHECK_BITS(other.data(), plain.data(), plain.size());
#if CED_WIDE
  if (isa_supported(Isa::kAvx2)) {
    at_width_8<All>(x.data(), other.data());
    CHECK_BITS(other.data(), plain.data(), plain.size());
  }
  if (isa_supported(Isa::kAvx512)) {
    at_width_16<All>(x.data(), other.data());
    CHECK_BITS(other.data(), plain.data(), plain.size());
  }
#endif
  return plain;
}

}  // namespace

TEST("lanes: every vector width gives the same bits, at any address") {
  for (int round = 0; round < 64; round++) {
    CONTEXT("round " << round);
    auto x = prng::xf("lanes/x" + std::to_string(round), 16, round % 8);
    for (float &v : x) v = -std::fabs(v);
    std::vector<char> odd(1 + 64);
    memcpy(&odd[1], x.data(), 64);
    const auto plain = at_every_width<Everything>(x);
    float other[16];
    store(other, load<f32<4>>(&odd[1]));
    CHECK_BITS(other, x.data(), 16);
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

TEST("lanes: rows of any length and weights at any byte have the same bits at every vector width") {
  for (int round = 0; round < 16; round++) {
    CONTEXT("round " << round);
    at_every_width<Rows>(prng::xf("lanes/row" + std::to_string(round), 128, round - 8));
  }
}

TEST("lanes: quantised rows are those of act_quant32, infinities and NaN too") {
  for (int round = 0; round < 64; round++) {
    CONTEXT("round " << round);
    auto row = prng::xb("lanes/quant" + std::to_string(round), 128, 3 * (round % 16) - 24);
    for (size_t i = 0; i < row.size(); i++)
      if (round >= 16) row[i] = static_cast<uint16_t>(row[i] * (round + i) ^ (row[i] >> 3));  // any bits
    if (round < 16) row[32] = row[33] = 0x8000, row[70] = 0x0001;
    for (int i = 96; i < 128; i++) row[static_cast<size_t>(i)] = static_cast<uint16_t>(i % 2 << 15);
    uint8_t codes[128], scales[4], want_codes[128], want_scales[4];
    quantise_row<4>(row.data(), 128, codes, scales);
    for (int b = 0; b < 4; b++) {
      float x[32];
      load_row(&row[static_cast<size_t>(32 * b)], 32, x);
      act_quant32(x, want_codes + 32 * b, want_scales + b);
    }
    CHECK_BITS(codes, want_codes, 128);
    CHECK_BITS(scales, want_scales, 4);
  }
}

TEST("lanes: functions in f64, rounded to f32, are the library's at every vector width") {
  for (int round = 0; round < 100; round++) {
    CONTEXT("round " << round);
    auto x = prng::xf("lanes/f64" + std::to_string(round), 128, round % 8);
    for (size_t i = 0; i < 16; i++) x[i] = static_cast<float>(i) * (round % 2 ? -12.5f : 1.25f);
    const auto y = at_every_width<Doubles>(x);
    for (size_t i = 0; i < 128; i++) {
      const double v = x[i];
      CHECK_EQ(y[i], static_cast<float>(std::cos(v * 1000)));
      CHECK_EQ(y[128 + i], static_cast<float>(std::sin(v * 1000)));
      CHECK_EQ(y[256 + i], static_cast<float>(std::exp(v)));
      CHECK_EQ(y[384 + i], static_cast<float>(std::log1p(std::exp(v))));
    }
    for (size_t i = 0; i < 37; i++) {
      const double angle = 5591 * x[i];
      CHECK_EQ(y[512 + i], static_cast<float>(std::cos(angle)));
      CHECK_EQ(y[512 + 37 + i], static_cast<float>(-std::sin(angle)));
    }
  }
}
