#include "kernel/mhc_border/mhc_border.h"

#include "kernel/row.h"

using namespace ced;

extern "C" int ced_mhc_border(ced_stream *s, const ced_mhc_border_args *a, ced_err *err) {
  const char *name = "mhc_border";
  CED_TRY(check_range(name, "streams", a->streams, 1, kMaxStreams, err));
  CED_TRY(check_multiple(name, "dim", a->dim, 32, err));
  CED_TRY(check_rows(s, name, a->rows, a->max_rows, err));
  CED_TRY(check_address(name, "h", a->h, 64, err));
  CED_TRY(check_address(name, "pre", a->pre, 64, err));
  CED_TRY(check_address(name, "x", a->x, 64, err));
  CED_TRY(check_weight(name, "weight", a->weight, a->weight_format, err));
  if (a->y != 0) CED_TRY(check_address(name, "y", a->y, 64, err));
  if (a->y != 0 || a->fn != 0) {
    CED_TRY(check_address(name, "post", a->post, 64, err));
    CED_TRY(check_address(name, "comb", a->comb, 64, err));
  }
  if (a->fn != 0) {
    CED_TRY(check_range(name, "iters", a->iters, 1, 1000, err));
    CED_TRY(check_address(name, "base", a->base, 1, err));
    CED_TRY(check_address(name, "scale", a->scale, 1, err));
    CED_TRY(check_address(name, "next", a->next, 64, err));
    if (a->next == a->pre) return fail(err, CED_EINVAL, "mhc_border: next is the buffer of pre");
  }
  if (a->codes != 0) {
    CED_TRY(check_address(name, "codes", a->codes, 64, err));
    CED_TRY(check_address(name, "scales", a->scales, 64, err));
  }
  CED_DISPATCH(mhc_border, s, a, err)
}
