#include "kernel/csa2_compress/csa2_compress.h"

#include "kernel/row.h"

using namespace ced;

extern "C" int ced_csa2_compress(ced_stream *s, const ced_csa2_compress_args *a, ced_err *err) {
  const char *name = "csa2_compress";
  CED_TRY(check_multiple(name, "dim", a->dim, 16, err));
  CED_TRY(check_range(name, "dim", a->dim, 16, kMaxRow, err));
  CED_TRY(check_range(name, "ratio", a->ratio, 1, kMaxRatio, err));
  CED_TRY(check_weight(name, "weight", a->weight, a->weight_format, err));
  CED_TRY(check_sequence_rows(s, name, a->rows, a->max_rows, err));
  CED_TRY(check_rows(s, name, a->groups, a->max_rows, err));
  CED_TRY(check_address(name, "a", a->a, 64, err));
  CED_TRY(check_address(name, "latent", a->latent, 64, err));
  if (a->ratio > 1) {
    CED_TRY(check_range(name, "open_rows", a->open_rows, a->ratio, 1u << 16, err));
    CED_TRY(check_address(name, "g", a->g, 64, err));
    CED_TRY(check_address(name, "open", a->open, 64, err));
  }
  CED_DISPATCH(csa2_compress, s, a, err)
}
