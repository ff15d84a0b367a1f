#include "kernel/embed/embed.h"

#include "kernel/row.h"

using namespace ced;

namespace {

// What a host stream can look at: tokens inside the table, overrides that exist.
int check_tokens(const ced_embed_args &a, ced_err *err) {
  const auto &rows = *at<const ced_rows>(a.rows);
  if (rows.count > 0 && rows.token == 0) return fail(err, CED_EINVAL, "embed: rows.token is missing");
  for (int32_t r = 0; r < rows.count; r++) {
    if (rows.embed_row != 0 && at<const int32_t>(rows.embed_row)[r] >= 0) {
      CED_TRY(check_address("embed", "overrides", a.overrides, 64, err));
      continue;
    }
    const int32_t token = at<const int32_t>(rows.token)[r];
    if (token < 0 || static_cast<uint32_t>(token) >= a.vocab)
      return fail(err, CED_EINVAL, "embed: token[%d] is %d, outside the vocabulary of %u", r, token, a.vocab);
  }
  return CED_OK;
}

}  // namespace

extern "C" int ced_embed(ced_stream *s, const ced_embed_args *a, ced_err *err) {
  const char *name = "embed";
  CED_TRY(check_rows(s, name, a->rows, a->max_rows, err));
  CED_TRY(check_range(name, "dim", a->dim, 1, 1u << 20, err));
  CED_TRY(check_range(name, "streams", a->streams, 1, 64, err));
  if (a->table_format != CED_BF16 && a->table_format != CED_F32)
    return fail(err, CED_EINVAL, "embed: table_format is %u, must be BF16 or F32", a->table_format);
  CED_TRY(check_address(name, "table", a->table, 1, err));
  CED_TRY(check_address(name, "h", a->h, 64, err));
  CED_TRY(check_address(name, "pre", a->pre, 64, err));
  if (kind_of(s) != CED_CUDA) CED_TRY(check_tokens(*a, err));
  CED_DISPATCH(embed, s, a, err)
}
