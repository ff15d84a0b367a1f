#include "kernel/mhc_collapse/mhc_collapse.h"

#include "kernel/mhc_mix/mhc_mix.h"
#include "kernel/row.h"

using namespace ced;

extern "C" int ced_mhc_collapse(ced_stream *s, const ced_mhc_collapse_args *a, ced_err *err) {
  const char *name = "mhc_collapse";
  CED_TRY(check_range(name, "streams", a->streams, 1, kMaxStreams, err));
  CED_TRY(check_multiple(name, "dim", a->dim, 32, err));
  CED_TRY(check_rows(s, name, a->rows, a->max_rows, err));
  CED_TRY(check_address(name, "h", a->h, 64, err));
  CED_TRY(check_address(name, "pre", a->pre, 64, err));
  CED_TRY(check_address(name, "x", a->x, 64, err));
  CED_DISPATCH(mhc_collapse, s, a, err)
}
