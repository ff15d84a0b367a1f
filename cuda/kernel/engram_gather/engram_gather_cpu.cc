#include <algorithm>

#include "kernel/engram_gather/engram_gather.h"
#include "kernel/row_lanes.h"

namespace ced {
namespace {

// e4m3 codes of one table row times its scales, as BF16.
struct Dequantise {
  template <int W>
  static CED_INLINE void run(const uint8_t *codes, const uint8_t *scales, int64_t dim, uint16_t *e) {
    for (int64_t d = 0; d < dim; d += kBlock) {
      const uint8_t scale = scales[d / kBlock];
      if (scale < 32 || scale > 224) {  // near the ends of BF16's range
        engram_dequantise(codes + d, scale, e + d);
        continue;
      }
      const auto c = widen<W, uint16_t>(codes + d);  // the codes of two channels in a lane
      const float power = e8m0_to_f32(scale);
      store_pairs<W>(e + d, {values(c & 0x7Fu, (c & 0x80u) << 24, power),
                             values((c >> 8) & 0x7Fu, (c & 0x8000u) << 16, power)});
    }
  }

  // Magnitudes as f32 with exponent and mantissa 20 bits higher and the bias moved; those below 2^-6 have no hidden one.
  template <int W>
  static CED_INLINE f32<W> values(const u32<W> &magnitude, const u32<W> &sign, float power) {
    const auto m = bits_as<int32_t>(magnitude << 20);
    const auto normal = bits_as<float>(m + (120 << 23)), one = bits_as<float>(m + (121 << 23));
    const auto v = where_less(m, i32<W>::of(1 << 23), one - 0x1p-6f, normal) * power;
    const auto number = where_less(m, i32<W>::of(0x7F << 20), bits_as<int32_t>(v), i32<W>::of(0x7FC00000));
    return bits_as<float>(bits_as<uint32_t>(number) | sign);
  }
};

constexpr int64_t kAhead = 12;  // rows whose lines are on their way while one is decoded

void prefetch(const ced_engram_gather_args &a, int64_t i) {
  const auto id = static_cast<uint64_t>(at<const int64_t>(a.ids)[i]);
  if (id >= a.table_rows) return;
  const char *codes = at<const char>(a.table) + id * a.dim;
  for (uint64_t line = 0; line < a.dim; line += 64) __builtin_prefetch(codes + line);
  __builtin_prefetch(at<const char>(a.table_scales) + id * (a.dim / 32));
}

}  // namespace

void engram_gather_cpu(ced_stream *s, const ced_engram_gather_args &a) {
  const int64_t dim = a.dim, count = static_cast<int64_t>(row_count(a.rows)) * a.cols;
  parallel_for(s, count, kEngramPiece, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < std::min(begin + kAhead, end); i++) prefetch(a, i);
    for (int64_t i = begin; i < end; i++) {
      if (i + kAhead < end) prefetch(a, i + kAhead);
      uint16_t *e = at<uint16_t>(a.e) + i * dim;
      const auto id = static_cast<uint64_t>(at<const int64_t>(a.ids)[i]);
      if (id >= a.table_rows) {
        std::fill_n(e, dim, uint16_t{0});
        continue;
      }
      const auto row = static_cast<int64_t>(id);
      vectorised<Dequantise>(at<const uint8_t>(a.table) + row * dim,
                             at<const uint8_t>(a.table_scales) + row * (dim / 32), dim, e);
    }
  });
}

}  // namespace ced
