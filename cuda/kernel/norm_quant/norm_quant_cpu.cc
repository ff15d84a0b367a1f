#include "kernel/lanes.h"
#include "kernel/norm_quant/norm_quant.h"
#include "kernel/row.h"
#include "num/quant.h"

namespace ced {
namespace {

CED_INLINE f32x16 abs16(const f32x16 &x) { return bits_as<f32x16>(bits_as<u32x16>(x) & 0x7FFFFFFFu); }

// act_quant32, with the maximum over lanes.
CED_INLINE void quantise(const f32x16 &low, const f32x16 &high, uint8_t *codes, uint8_t *scale) {
  float y[32], m[16];
  store(y, low), store(y + 16, high);
  store(m, max16(abs16(low), abs16(high)));
  for (int d = 8; d > 0; d /= 2)
    for (int i = 0; i < d; i++) m[i] = f32_max(m[i], m[i + d]);
  const float s = act_scale(m[0]), inverse = 1.0f / s;
  for (int i = 0; i < 32; i++) codes[i] = f32_to_e4m3(y[i] * inverse);
  *scale = f32_to_e8m0(s);
}

CED_MULTIVERSION void norm_quant_row(const uint16_t *x, int64_t n, const char *weight, bool weight_f32,
                                     float eps, uint16_t *y, uint8_t *codes, uint8_t *scales) {
  float scale = 1;
  const int64_t whole = n / 32 * 32;
  if (weight != nullptr) {
    f32x16 sum{};
    for (int64_t i = 0; i < n / 16 * 16; i += 16) {
      const f32x16 v = load_bf16(x + i);
      sum += v * v;
    }
    float rest = 0;
    for (int64_t i = n / 16 * 16; i < n; i++) rest += bf16_to_f32(x[i]) * bf16_to_f32(x[i]);
    scale = f32_rsqrt((sum16(sum) + rest) / static_cast<float>(n) + eps);
  }
  for (int64_t i = 0; i < whole; i += 32) {
    f32x16 v[2];
    for (int h = 0; h < 2; h++) {
      const int64_t k = i + 16 * h;
      v[h] = load_bf16(x + k);
      if (weight == nullptr) continue;
      const f32x16 w =
          weight_f32 ? load<f32x16>(weight + 4 * k)
                     : bits_as<f32x16>(__builtin_convertvector(load<u16x16>(weight + 2 * k), u32x16) << 16);
      v[h] = round_bf16(w * (v[h] * scale));
    }
    if (y != nullptr) store_bf16(y + i, v[0]), store_bf16(y + i + 16, v[1]);
    if (codes != nullptr) quantise(v[0], v[1], codes + i, scales + i / 32);
  }
  for (int64_t i = whole; i < n; i++) {  // only y: codes need whole groups
    const float v = bf16_to_f32(x[i]);
    const auto w = [&] {
      return weight_at(reinterpret_cast<uint64_t>(weight), weight_f32 ? CED_F32 : CED_BF16,
                       static_cast<size_t>(i));
    };
    y[i] = f32_to_bf16(weight == nullptr ? v : w() * (v * scale));
  }
}

}  // namespace

void norm_quant_cpu(ced_stream *s, const ced_norm_quant_args &a) {
  const int64_t n = a.n;
  parallel_for(s, row_count(a.rows), 1, [&](int64_t r, int64_t, int) {
    norm_quant_row(at<const uint16_t>(a.x) + r * n, n, at<const char>(a.weight), a.weight_format == CED_F32,
                   a.eps, a.y != 0 ? at<uint16_t>(a.y) + r * n : nullptr,
                   a.codes != 0 ? at<uint8_t>(a.codes) + r * n : nullptr,
                   at<uint8_t>(a.scales) + r * (n / 32));
  });
}

}  // namespace ced
