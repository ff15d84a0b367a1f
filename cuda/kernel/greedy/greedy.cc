#include "kernel/greedy/greedy.h"

#include "kernel/row.h"

using namespace ced;

extern "C" int ced_greedy(ced_stream *s, const ced_greedy_args *a, ced_err *err) {
  const char *name = "greedy";
  CED_TRY(check_rows(s, name, a->rows, a->max_rows, err));
  CED_TRY(check_address(name, "logits", a->logits, 4, err));
  CED_TRY(check_address(name, "ids", a->ids, 4, err));
  CED_TRY(check_range(name, "vocab", a->vocab, 1, 1u << 30, err));
  CED_DISPATCH(greedy, s, a, err)
}
