#include "kernel/mhc_expand/mhc_expand.h"

#include "kernel/mhc_mix/mhc_mix.h"
#include "kernel/row.h"

using namespace ced;

extern "C" int ced_mhc_expand(ced_stream *s, const ced_mhc_expand_args *a, ced_err *err) {
  const char *name = "mhc_expand";
  CED_TRY(check_range(name, "streams", a->streams, 1, kMaxStreams, err));
  CED_TRY(check_multiple(name, "dim", a->dim, 32, err));
  CED_TRY(check_rows(s, name, a->rows, a->max_rows, err));
  CED_TRY(check_address(name, "y", a->y, 64, err));
  CED_TRY(check_address(name, "post", a->post, 64, err));
  CED_TRY(check_address(name, "comb", a->comb, 64, err));
  CED_TRY(check_address(name, "h", a->h, 64, err));
  CED_DISPATCH(mhc_expand, s, a, err)
}
