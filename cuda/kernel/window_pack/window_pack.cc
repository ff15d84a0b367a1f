#include "kernel/window_pack/window_pack.h"

#include "kernel/rotary.h"

using namespace ced;

extern "C" int ced_window_pack(ced_stream *s, const ced_window_pack_args *a, ced_err *err) {
  const char *name = "window_pack";
  CED_TRY(check_multiple(name, "dim", a->dim, 32, err));
  CED_TRY(check_range(name, "dim", a->dim, 32, kMaxRow, err));
  CED_TRY(check_rope(name, a->rope_dim, a->dim, err));
  CED_TRY(check_range(name, "rope_dim", a->rope_dim, 0, kMaxRope, err));
  CED_TRY(check_weight(name, "weight", a->weight, a->weight_format, err));
  CED_TRY(check_sequence_rows(s, name, a->rows, a->max_rows, err));
  CED_TRY(check_address(name, "x", a->x, 64, err));
  CED_TRY(check_address(name, "freqs", a->freqs, 4, err));
  CED_TRY(check_address(name, "packed", a->packed, 64, err));
  CED_DISPATCH(window_pack, s, a, err)
}
