#include "kernel/kv_append/kv_append.h"

#include "kernel/kv_rows.h"

using namespace ced;

extern "C" int ced_kv_append(ced_stream *s, const ced_kv_append_args *a, ced_err *err) {
  const char *name = "kv_append";
  CED_TRY(check_kv(name, a->kv, true, true, err));
  CED_TRY(check_rope(name, a->rope_dim, a->kv.head_dim, err));
  CED_TRY(check_rope(name, a->rope_dim, a->kv.index_dim, err));
  CED_TRY(check_weight(name, "k_weight", a->k_weight, a->weight_format, err));
  CED_TRY(check_rows(s, name, a->groups, a->max_groups, err));
  CED_TRY(check_sequence_rows(s, name, a->rows, UINT32_MAX, err));
  CED_TRY(check_address(name, "latent", a->latent, 64, err));
  CED_TRY(check_address(name, "k", a->k, 64, err));
  CED_TRY(check_address(name, "freqs", a->freqs, 4, err));
  CED_DISPATCH(kv_append, s, a, err)
}
