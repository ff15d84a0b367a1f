#include <cmath>

#include "kernel/greedy/greedy.h"

namespace ced {

void greedy_ref(ced_stream *s, const ced_greedy_args &a) { greedy_cpu(s, a); }

void greedy_cpu(ced_stream *s, const ced_greedy_args &a) {
  parallel_for(s, row_count(a.rows), grain_of(a.vocab), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; r++) {
      const float *row = at<const float>(a.logits) + r * a.vocab;
      float largest = -INFINITY;
      int32_t id = -1;
      bool finite = true;
      for (uint32_t i = 0; i < a.vocab; i++) {
        finite = finite && row[i] < INFINITY;  // false for NaN, too
        if (row[i] > largest) largest = row[i], id = static_cast<int32_t>(i);
      }
      at<int32_t>(a.ids)[r] = finite ? id : -1;
    }
  });
}

}  // namespace ced
