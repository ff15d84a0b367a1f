#include "kernel/window_commit/window_commit.h"

#include "kernel/row.h"

using namespace ced;

extern "C" int ced_window_commit(ced_stream *s, const ced_window_commit_args *a, ced_err *err) {
  const char *name = "window_commit";
  CED_TRY(check_range(name, "row_bytes", a->row_bytes, 1, 1u << 20, err));
  CED_TRY(check_range(name, "ring_rows", a->ring_rows, 1, 1u << 20, err));
  CED_TRY(check_sequence_rows(s, name, a->rows, a->max_rows, err));
  CED_TRY(check_address(name, "packed", a->packed, 64, err));
  CED_TRY(check_address(name, "ring", a->ring, 64, err));
  CED_DISPATCH(window_commit, s, a, err)
}
