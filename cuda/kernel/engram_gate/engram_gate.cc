#include "kernel/engram_gate/engram_gate.h"

using namespace ced;

extern "C" int ced_engram_gate(ced_stream *s, const ced_engram_gate_args *a, ced_err *err) {
  const char *name = "engram_gate";
  CED_TRY(check_range(name, "streams", a->streams, 1, 64, err));
  CED_TRY(check_multiple(name, "dim", a->dim, 32, err));
  CED_TRY(check_weight(name, "q_weight", a->q_weight, a->weight_format, err));
  CED_TRY(check_weight(name, "k_weight", a->k_weight, a->weight_format, err));
  CED_TRY(check_rows(s, name, a->rows, a->max_rows, err));
  CED_TRY(check_address(name, "kv", a->kv, 64, err));
  CED_TRY(check_address(name, "h", a->h, 64, err));
  CED_DISPATCH(engram_gate, s, a, err)
}
