#include "kernel/csa2_compress/csa2_compress.h"
#include "kernel/lanes64.h"
#include "kernel/row_lanes.h"

namespace ced {
namespace {

// latent = norm(bf16(sum_t w_t a_t)), w = softmax of g over the group's members, each channel by itself. In f64 like the
// reference: an index key that rounds to the other side would move scores by more than their own rounding.
struct Pool {
  template <int W>
  static CED_INLINE void run(const ced_csa2_compress_args *a, const GroupMembers *members, uint16_t *latent) {
    const int64_t dim = a->dim;
    const auto ratio = static_cast<int>(a->ratio);
    for (int64_t d = 0; d < dim; d += kLanes) {
      f32<W> pooled;
      for (int half = 0; half < 32 / W; half++)
        channels<W>(members, d + half * (W / 2), ratio, reinterpret_cast<float *>(&pooled) + half * (W / 2));
      store_bf16(latent + d, pooled);
    }
    Norm::run<W>(a, latent, latent);
  }

  // Of W/2 channels.
  template <int W>
  static CED_INLINE void channels(const GroupMembers *members, int64_t d, int ratio, float *to) {
    typedef typename F64<W>::D D;
    typedef typename F64<W>::Half Half;
    const auto read = [](const float *p) __attribute__((always_inline)) {
      Half h;
      memcpy(&h, p, sizeof h);
      return h;
    };
    D e[kMaxRatio], top = __builtin_convertvector(read(members->g[0] + d), D), total = {}, sum = {};
    e[0] = top;
    for (int t = 1; t < ratio; t++) {
      e[t] = __builtin_convertvector(read(members->g[t] + d), D);
      top = e[t] > top ? e[t] : top;
    }
    for (int t = 0; t < ratio; t++) {
      const D x = e[t] - top, low = D{} - 700;
      total += e[t] = exp64<W>(x < low ? low : x);
    }
    for (int t = 0; t < ratio; t++) {
      const Half w = __builtin_convertvector(e[t] / total, Half);
      sum += __builtin_convertvector(read(members->a[t] + d) * w, D);
    }
    const Half pooled = __builtin_convertvector(sum, Half);
    memcpy(to, &pooled, sizeof pooled);
  }

  struct Norm {
    template <int W>
    static CED_INLINE void run(const ced_csa2_compress_args *a, const uint16_t *x, uint16_t *latent) {
      scale_row<W>(x, a->dim, at<const char>(a->weight), a->weight_format == CED_BF16,
                   rms_scale<W>(x, a->dim, a->eps), latent);
    }
  };
};

}  // namespace

void csa2_compress_cpu(ced_stream *s, const ced_csa2_compress_args &a) {
  const auto &rows = *at<const ced_rows>(a.rows);
  const auto &groups = *at<const ced_groups>(a.groups);
  const int64_t dim = a.dim;
  const int64_t group_ns = a.ratio == 1 ? 50 + dim / 4 : 50 + dim * a.ratio / 2;
  parallel_for(s, groups.count, grain_of(group_ns), [&](int64_t begin, int64_t end, int) {
    for (int64_t g = begin; g < end; g++) {
      const int64_t r = at<const int32_t>(groups.row)[g];
      uint16_t *latent = at<uint16_t>(a.latent) + g * dim;
      if (a.ratio == 1) {
        vectorised<Pool::Norm>(&a, at<const uint16_t>(a.a) + r * dim, latent);
      } else {
        const GroupMembers members = group_members(a, rows, r);
        vectorised<Pool>(&a, &members, latent);
      }
    }
  });
  if (a.ratio == 1) return;
  // After every read above: the rows that later steps may need.
  parallel_for(s, rows.count, grain_of(dim / 4), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; r++) keep_open(a, rows, r);
  });
}

}  // namespace ced
