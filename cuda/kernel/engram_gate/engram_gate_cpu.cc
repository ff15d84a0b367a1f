#include "kernel/engram_gate/engram_gate.h"
#include "kernel/lanes.h"

namespace ced {
namespace {

// Sixteen elements of a checkpoint tensor from element i on.
template <int W>
CED_INLINE f32<W> weights(uint64_t tensor, bool bf16, int64_t i) {
  const char *p = at<const char>(tensor) + i * (bf16 ? 2 : 4);
  return bf16 ? load_bf16<W>(p) : load<f32<W>>(p);
}

struct Sums {
  float dot, h_squares, key_squares;
};

// Over one stream's dim elements; the weights' element 0 is at `first`.
struct StreamSums {
  template <int W>
  static CED_INLINE Sums run(const ced_engram_gate_args *a, int64_t first, const uint16_t *h,
                             const uint16_t *key) {
    f32<W> dot = {}, h_squares = {}, key_squares = {};
    const bool bf16 = a->weight_format == CED_BF16;
    for (int64_t d = 0; d < a->dim; d += kLanes) {
      const f32<W> x = load_bf16<W>(h + d), k = load_bf16<W>(key + d);
      const f32<W> w = weights<W>(a->q_weight, bf16, first + d) * weights<W>(a->k_weight, bf16, first + d);
      dot += x * w * k;
      h_squares += x * x;
      key_squares += k * k;
    }
    return {sum(dot), sum(h_squares), sum(key_squares)};
  }
};

struct AddGated {
  template <int W>
  static CED_INLINE void run(uint16_t *h, const uint16_t *value, float gate, int64_t dim) {
    for (int64_t d = 0; d < dim; d += kLanes)
      store_bf16(h + d, load_bf16<W>(h + d) + load_bf16<W>(value + d) * gate);
  }
};

}  // namespace

void engram_gate_cpu(ced_stream *s, const ced_engram_gate_args &a) {
  const int64_t n = a.streams, dim = a.dim;
  parallel_for(s, row_count(a.rows) * n, 1, [&](int64_t begin, int64_t end, int) {
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
