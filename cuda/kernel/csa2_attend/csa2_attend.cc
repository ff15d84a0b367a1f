#include "kernel/csa2_attend/csa2_attend.h"

using namespace ced;

extern "C" uint64_t ced_csa2_attend_workspace(const ced_stream *s, const ced_csa2_attend_args *a) {
#ifdef CED_WITH_CUDA
  if (kind_of(s) == CED_CUDA) return csa2_attend_cuda_workspace(*a);
#endif
  return static_cast<uint64_t>(ced_stream_threads(s)) * AttendScratch::bytes(*a);
}

extern "C" int ced_csa2_attend(ced_stream *s, const ced_csa2_attend_args *a, ced_err *err) {
  const char *name = "csa2_attend";
  CED_TRY(check_range(name, "heads", a->heads, 1, 4096, err));
  CED_TRY(check_multiple(name, "head_dim", a->head_dim, 32, err));
  CED_TRY(check_range(name, "head_dim", a->head_dim, 32, kMaxRow, err));
  CED_TRY(check_range(name, "window", a->window, 0, 1u << 20, err));
  CED_TRY(check_range(name, "ring_rows", a->ring_rows, a->window > 1 ? a->window - 1 : 1, 1u << 20, err));
  CED_TRY(check_sequence_rows(s, name, a->rows, a->max_rows, err));
  CED_TRY(check_sequence_rows(s, name, a->key_rows, INT32_MAX, err));
  if (kind_of(s) != CED_CUDA && row_count(a->key_rows) > 0 && at<const ced_rows>(a->key_rows)->seq_first == 0)
    return fail(err, CED_EINVAL, "csa2_attend: key_rows->seq_first is null");
  CED_TRY(check_address(name, "q", a->q, 64, err));
  CED_TRY(check_address(name, "packed", a->packed, 64, err));
  CED_TRY(check_address(name, "ring", a->ring, 64, err));
  CED_TRY(check_address(name, "window_start", a->window_start, 4, err));
  CED_TRY(check_address(name, "sink", a->sink, 1, err));
  CED_TRY(check_address(name, "o", a->o, 64, err));
  CED_TRY(check_address(name, "workspace", a->workspace, 64, err));
  if (a->sel != 0) {
    CED_TRY(check_address(name, "sel", a->sel, 4, err));
    CED_TRY(check_range(name, "top_k", a->top_k, 1, 1u << 20, err));
    CED_TRY(check_kv(name, a->kv, true, false, err));
    if (a->kv.head_dim != a->head_dim)
      return fail(err, CED_EINVAL, "csa2_attend: kv.head_dim is %u but head_dim is %u", a->kv.head_dim,
                  a->head_dim);
  }
  CED_DISPATCH(csa2_attend, s, a, err)
}
