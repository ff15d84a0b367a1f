#include "kernel/engram_gate/engram_gate.h"
#include "kernel/row_lanes.h"

namespace ced {
namespace {

struct Sums {
  float dot, h_squares, key_squares;
};

// Over one stream's dim elements; the weights' element 0 is at `first`.
struct StreamSums {
  template <int W>
  static CED_INLINE Sums run(const ced_engram_gate_args *a, int64_t first, const uint16_t *h,
                             const uint16_t *key) {
    const auto *q = at<const char>(a->q_weight), *k = at<const char>(a->k_weight);
    if (a->weight_format == CED_BF16) return sums<W, true>(q + 2 * first, k + 2 * first, h, key, a->dim);
    return sums<W, false>(q + 4 * first, k + 4 * first, h, key, a->dim);
  }

  template <int W, bool bf16>
  static CED_INLINE Sums sums(const char *q, const char *k, const uint16_t *h, const uint16_t *key,
                              int64_t dim) {
    Pairs<W> dot = {}, h_squares = {}, key_squares = {};
    for (int64_t d = 0; d < dim; d += kBlock) {
      const auto x = load_pairs<W>(h + d), y = load_pairs<W>(key + d);
      dot += x * (load_weights<W>(q, bf16, d) * load_weights<W>(k, bf16, d)) * y;
      h_squares += x * x;
      key_squares += y * y;
    }
    const auto total = [](const Pairs<W> &p) { return sum(p.even + p.odd); };
    return {total(dot), total(h_squares), total(key_squares)};
  }
};

struct AddGated {
  template <int W>
  static CED_INLINE void run(uint16_t *h, const uint16_t *value, float gate, int64_t dim) {
    for (int64_t d = 0; d < dim; d += kBlock)
      store_pairs(h + d, load_pairs<W>(h + d) + load_pairs<W>(value + d) * gate);
  }
};

}  // namespace

void engram_gate_cpu(ced_stream *s, const ced_engram_gate_args &a) {
  const int64_t n = a.streams, dim = a.dim;
  parallel_for(s, row_count(a.rows) * n, grain_of(dim / 3), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; i++) {
      const int64_t r = i / n, j = i % n;
      const uint16_t *keys = at<const uint16_t>(a.kv) + r * (n + 1) * dim;
      uint16_t *h = at<uint16_t>(a.h) + i * dim;
      float gate = 0;
      if (!engram_image_row(a, r)) {
        const Sums sums = vectorised<StreamSums>(&a, j * dim, h, keys + j * dim);
        const auto width = static_cast<float>(dim);
        gate = engram_gate_of(a, sums.dot, sums.h_squares / width, sums.key_squares / width);
      }
      vectorised<AddGated>(h, keys + n * dim, gate, dim);
    }
  });
}

}  // namespace ced
