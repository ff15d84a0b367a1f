#include "kernel/rope/rope.h"

#include "kernel/rotary.h"
#include "kernel/row.h"

using namespace ced;

extern "C" int ced_rope(ced_stream *s, const ced_rope_args *a, ced_err *err) {
  const char *name = "rope";
  CED_TRY(check_rows(s, name, a->rows, a->max_rows, err));
  CED_TRY(check_range(name, "heads", a->heads, 1, 1u << 16, err));
  CED_TRY(check_range(name, "dim", a->dim, 1, 1u << 16, err));
  CED_TRY(check_rope(name, a->rope_dim, a->dim, err));
  CED_TRY(check_range(name, "rope_dim", a->rope_dim, 2, kMaxRope, err));
  CED_TRY(check_address(name, "x", a->x, 64, err));
  CED_TRY(check_address(name, "freqs", a->freqs, 4, err));
  if (kind_of(s) != CED_CUDA && row_count(a->rows) > 0 && at<const ced_rows>(a->rows)->pos == 0)
    return fail(err, CED_EINVAL, "rope: rows.pos is missing");
  CED_DISPATCH(rope, s, a, err)
}
