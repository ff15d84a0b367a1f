#include "kernel/kv_append/kv_append.h"

using namespace ced;

// Every group closes at a row of the step, and has a place in its sequence's page table.
static int check_groups(const ced_kv_append_args &a, ced_err *err) {
  const auto &rows = *at<const ced_rows>(a.rows);
  const auto &groups = *at<const ced_groups>(a.groups);
  const uint64_t capacity = uint64_t{a.kv.max_pages} * a.kv.page_rows;
  for (int32_t g = 0; g < groups.count; g++) {
    const int32_t r = at<const int32_t>(groups.row)[g];
    if (r < 0 || r >= rows.count)
      return fail(err, CED_EINVAL, "kv_append: groups->row[%d] is %d, must be a row of the step: 0..%d", g, r,
                  rows.count - 1);
    const int32_t pos = at<const int32_t>(rows.pos)[r], groups_seen = visible_groups(a.kv, pos);
    if (groups_seen < 1 || static_cast<uint64_t>(groups_seen) > capacity)
      return fail(err, CED_EINVAL,
                  "kv_append: position %d closes group %d of its sequence, whose page table holds %llu "
                  "(kv.max_pages %u "
                  "of kv.page_rows %u)",
                  pos, groups_seen - 1, static_cast<unsigned long long>(capacity), a.kv.max_pages,
                  a.kv.page_rows);
  }
  return CED_OK;
}

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
  if (kind_of(s) != CED_CUDA && row_count(a->groups) > 0) {
    CED_TRY(check_address(name, "groups->row", at<const ced_groups>(a->groups)->row, 4, err));
    CED_TRY(check_groups(*a, err));
  }
  CED_DISPATCH(kv_append, s, a, err)
}
