#include "kernel/dense_gemm/dense_gemm.h"

#include "kernel/row.h"

using namespace ced;

extern "C" int ced_dense_gemm(ced_stream *s, const ced_dense_gemm_args *a, ced_err *err) {
  const char *name = "dense_gemm";
  CED_TRY(check_rows(s, name, a->rows, a->max_rows, err));
  CED_TRY(check_range(name, "n", a->n, 1, 1u << 30, err));
  CED_TRY(check_range(name, "k", a->k, 1, 1u << 24, err));
  CED_TRY(check_range(name, "groups", a->groups, 1, 1u << 16, err));
  if (a->x_format != CED_BF16 && a->x_format != CED_FP8)
    return fail(err, CED_EINVAL, "dense_gemm: x_format is %u, must be BF16 or FP8", a->x_format);
  const bool quantised = a->x_format == CED_FP8;
  if (quantised ? a->w_format != CED_FP8 && a->w_format != CED_FP4
                : a->w_format != CED_BF16 && a->w_format != CED_F32 && a->w_format != CED_FP8)
    return fail(err, CED_EINVAL, "dense_gemm: w_format is %u, must be %s", a->w_format,
                quantised ? "FP8 or FP4 with FP8 activations" : "BF16, F32 or FP8 with BF16 activations");
  if (a->y_format != CED_BF16 && (quantised || a->y_format != CED_F32))
    return fail(err, CED_EINVAL, "dense_gemm: y_format is %u, must be BF16%s", a->y_format,
                quantised ? " with FP8 activations" : " or F32");
  if (quantised) {
    CED_TRY(check_multiple(name, "k", a->k, 32, err));
    CED_TRY(check_address(name, "x_scales", a->x_scales, 64, err));
  }
  CED_TRY(check_address(name, "x", a->x, 64, err));
  CED_TRY(check_address(name, "w", a->w, 1, err));
  if (a->w_format == CED_FP8 || a->w_format == CED_FP4)
    CED_TRY(check_address(name, "w_scales", a->w_scales, 1, err));
  CED_TRY(check_address(name, "y", a->y, 64, err));
  CED_DISPATCH(dense_gemm, s, a, err)
}
