#include "kernel/route/route.h"

#include "kernel/row.h"

using namespace ced;

extern "C" int ced_route(ced_stream *s, const ced_route_args *a, ced_err *err) {
  const char *name = "route";
  CED_TRY(check_rows(s, name, a->rows, a->max_rows, err));
  CED_TRY(check_range(name, "experts", a->experts, 1, kMaxExperts, err));
  CED_TRY(check_range(name, "top_k", a->top_k, 1, a->experts, err));
  if (!(a->temperature > 0))
    return fail(err, CED_EINVAL, "route: temperature is %g, must be positive",
                static_cast<double>(a->temperature));
  if (a->bias_format != CED_F32 && a->bias_format != CED_BF16)
    return fail(err, CED_EINVAL, "route: bias_format is %u, must be F32 or BF16", a->bias_format);
  CED_TRY(check_address(name, "logits", a->logits, 64, err));
  CED_TRY(check_address(name, "bias", a->bias, 1, err));
  CED_TRY(check_address(name, "idx", a->idx, 64, err));
  CED_TRY(check_address(name, "weights", a->weights, 64, err));
  CED_DISPATCH(route, s, a, err)
}
