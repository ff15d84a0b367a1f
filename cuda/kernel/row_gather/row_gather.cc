#include "kernel/row_gather/row_gather.h"

using namespace ced;

extern "C" int ced_row_gather(ced_stream *s, const ced_row_gather_args *a, ced_err *err) {
  const char *name = "row_gather";
  CED_TRY(check_rows(s, name, a->rows, a->max_rows, err));
  CED_TRY(check_address(name, "index", a->index, 4, err));
  CED_TRY(check_address(name, "src", a->src, 1, err));
  CED_TRY(check_address(name, "dst", a->dst, 1, err));
  if (a->row_bytes == 0) return fail(err, CED_EINVAL, "row_gather: row_bytes is 0");
  if (kind_of(s) != CED_CUDA) {
    for (int32_t i = 0; i < row_count(a->rows); i++) {
      const int32_t row = at<const int32_t>(a->index)[i];
      if (row < 0) return fail(err, CED_EINVAL, "row_gather: index[%d] is %d", i, row);
    }
  }
  CED_DISPATCH(row_gather, s, a, err)
}
