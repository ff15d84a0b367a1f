#include "kernel/norm_quant/norm_quant.h"

#include "kernel/row.h"

using namespace ced;

extern "C" int ced_norm_quant(ced_stream *s, const ced_norm_quant_args *a, ced_err *err) {
  const char *name = "norm_quant";
  CED_TRY(check_rows(s, name, a->rows, a->max_rows, err));
  CED_TRY(check_range(name, "n", a->n, 1, 1u << 20, err));
  CED_TRY(check_address(name, "x", a->x, 64, err));
  if (a->weight != 0) CED_TRY(check_weight(name, "weight", a->weight, a->weight_format, err));
  if (a->y == 0 && a->codes == 0) return fail(err, CED_EINVAL, "norm_quant: neither y nor codes is wanted");
  if (a->y != 0) CED_TRY(check_address(name, "y", a->y, 64, err));
  if (a->codes != 0) {
    CED_TRY(check_multiple(name, "n", a->n, 32, err));
    CED_TRY(check_address(name, "codes", a->codes, 64, err));
    CED_TRY(check_address(name, "scales", a->scales, 64, err));
  }
  CED_DISPATCH(norm_quant, s, a, err)
}
