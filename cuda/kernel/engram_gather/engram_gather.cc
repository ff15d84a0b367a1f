#include "kernel/engram_gather/engram_gather.h"

#include "kernel/row.h"

using namespace ced;

extern "C" int ced_engram_gather(ced_stream *s, const ced_engram_gather_args *a, ced_err *err) {
  const char *name = "engram_gather";
  CED_TRY(check_multiple(name, "dim", a->dim, 32, err));
  CED_TRY(check_range(name, "cols", a->cols, 1, 1u << 16, err));
  CED_TRY(check_rows(s, name, a->rows, a->max_rows, err));
  CED_TRY(check_address(name, "ids", a->ids, 8, err));
  CED_TRY(check_address(name, "table", a->table, 1, err));
  CED_TRY(check_address(name, "table_scales", a->table_scales, 1, err));
  CED_TRY(check_address(name, "e", a->e, 64, err));
  CED_DISPATCH(engram_gather, s, a, err)
}
