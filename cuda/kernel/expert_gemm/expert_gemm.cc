#include "kernel/expert_gemm/expert_gemm.h"

#include "kernel/row.h"

using namespace ced;

namespace {

// All addresses of an expert that a row uses; number -1 is the shared one.
int check_expert(int32_t number, const ced_expert &e, ced_err *err) {
  const struct {
    const char *field;
    uint64_t addr;
  } fields[] = {{"w1", e.w1}, {"w1_scales", e.w1_scales}, {"w3", e.w3}, {"w3_scales", e.w3_scales},
                {"w2", e.w2}, {"w2_scales", e.w2_scales}};
  for (const auto &f : fields) {
    if (f.addr != 0) continue;
    if (number < 0) return fail(err, CED_EINVAL, "expert_gemm: shared.%s is missing", f.field);
    return fail(err, CED_EINVAL, "expert_gemm: experts[%d].%s is missing", number, f.field);
  }
  return CED_OK;
}

int check_sum(const ced_stream *s, const ced_expert_gemm_args &a, ced_err *err) {
  if (a.y_format != CED_BF16 && a.y_format != CED_F32)
    return fail(err, CED_EINVAL, "expert_gemm: y_format is %u, must be BF16 or F32", a.y_format);
  const uint32_t halves = a.flags & (CED_EXPERTS_PRODUCTS | CED_EXPERTS_SUM);
  if (a.flags > 7 || halves == (CED_EXPERTS_PRODUCTS | CED_EXPERTS_SUM) ||
      (halves != 0 && kind_of(s) != CED_CUDA))
    return fail(err, CED_EINVAL, "expert_gemm: flags are %u, which this stream does not do", a.flags);
  return a.addend == 0 ? CED_OK : check_address("expert_gemm", "addend", a.addend, 64, err);
}

int check_choice(const ced_expert_gemm_args &a, ced_err *err) {
  const int32_t rows = row_count(a.rows), top_k = static_cast<int32_t>(a.top_k);
  for (int32_t r = 0; r < rows; r++) {
    for (int32_t j = 0; j < top_k; j++) {
      const int32_t e = at<const int32_t>(a.idx)[r * top_k + j];
      if (e < 0 || static_cast<uint32_t>(e) >= a.experts_count)
        return fail(err, CED_EINVAL, "expert_gemm: idx[%d][%d] is %d, outside the %u experts", r, j, e,
                    a.experts_count);
      if (has_expert(a, e)) CED_TRY(check_expert(e, at<const ced_expert>(a.experts)[e], err));
    }
  }
  return CED_OK;
}

}  // namespace

extern "C" uint64_t ced_expert_gemm_workspace(const ced_stream *, const ced_expert_gemm_args *a) {
  return expert_workspace(*a).bytes;
}

extern "C" int ced_expert_gemm(ced_stream *s, const ced_expert_gemm_args *a, ced_err *err) {
  const char *name = "expert_gemm";
  CED_TRY(check_rows(s, name, a->rows, a->max_rows, err));
  CED_TRY(check_range(name, "max_rows", a->max_rows, 0, 1u << 24, err));
  CED_TRY(check_range(name, "experts_count", a->experts_count, 0, 1u << 20, err));
  CED_TRY(check_range(name, "top_k", a->top_k, 0, a->experts_count < 64 ? a->experts_count : 64, err));
  CED_TRY(check_multiple(name, "dim", a->dim, 32, err));
  CED_TRY(check_multiple(name, "inter", a->inter, 32, err));
  CED_TRY(check_range(name, "layout", a->layout, CED_EXPERTS_RAW, CED_EXPERTS_PACKED, err));
  if (a->layout == CED_EXPERTS_PACKED && kind_of(s) != CED_CUDA)
    return fail(err, CED_EINVAL, "expert_gemm: layout is %u, but packed experts are a device's alone",
                a->layout);
  CED_TRY(check_address(name, "x", a->x, 64, err));
  CED_TRY(check_address(name, "x_scales", a->x_scales, 64, err));
  CED_TRY(check_address(name, "y", a->y, 64, err));
  CED_TRY(check_address(name, "workspace", a->workspace, 64, err));
  CED_TRY(check_sum(s, *a, err));
  if (a->top_k > 0) {
    CED_TRY(check_address(name, "idx", a->idx, 64, err));
    CED_TRY(check_address(name, "weights", a->weights, 64, err));
    CED_TRY(check_address(name, "experts", a->experts, 8, err));
    if (kind_of(s) != CED_CUDA) CED_TRY(check_choice(*a, err));
  }
  if (a->shared.w1 != 0) CED_TRY(check_expert(-1, a->shared, err));
  CED_DISPATCH(expert_gemm, s, a, err)
}
