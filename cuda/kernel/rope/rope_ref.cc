#include "kernel/rope/rope.h"
#include "kernel/rope/rotate_row.h"

namespace ced {

void rope_ref(ced_stream *, const ced_rope_args &a) {
  for (int64_t r = 0; r < row_count(a.rows); r++) rotate_row(a, r);
}

}  // namespace ced
