#include "kernel/rope/rope.h"
#include "kernel/rope/rotate_row.h"

namespace ced {

void rope_cpu(ced_stream *s, const ced_rope_args &a) {
  parallel_for(s, row_count(a.rows), 1, [&](int64_t r, int64_t, int) { rotate_row(a, r); });
}

}  // namespace ced
