#include "kernel/norm_quant/norm_quant_row.h"

namespace ced {

void norm_quant_cpu(ced_stream *s, const ced_norm_quant_args &a) {
  parallel_for(s, row_count(a.rows), grain_of(50 + a.n / 2), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; r++) vectorised<NormQuantRow>(&a, r);
  });
}

}  // namespace ced
