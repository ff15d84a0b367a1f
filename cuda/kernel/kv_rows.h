// kv_rows.h: where row j of a sequence lies in the paged global KV (spec 5).
#pragma once
#include "kernel/row.h"

namespace ced {

// The planes' bytes of one global row. Codes: low nibble = even channel.
struct KvRow {
  uint8_t *main_codes, *main_scales, *index_codes, *index_scales;
};

CED_HD inline KvRow kv_row(const ced_kv &kv, int32_t slot, int32_t j) {
  const auto row = static_cast<uint32_t>(j);
  const size_t entry = static_cast<size_t>(slot) * kv.max_pages + row / kv.page_rows;
  const auto page = static_cast<uint64_t>(at<const int32_t>(kv.table)[entry]);
  uint8_t *base = at<uint8_t>(kv.pages) + page * kv.page_bytes;
  const size_t r = row % kv.page_rows;
  return {base + kv.main_codes + r * (kv.head_dim / 2), base + kv.main_scales + r * (kv.head_dim / 16),
          base + kv.index_codes + r * (kv.index_dim / 2), base + kv.index_scales + r * (kv.index_dim / 32)};
}

// Groups that a query at a position sees.
CED_HD inline int32_t visible_groups(const ced_kv &kv, int32_t position) {
  return static_cast<int32_t>((static_cast<int64_t>(position) + 1) / kv.ratio);
}

inline int check_plane(const char *kernel, const char *field, uint32_t offset, uint64_t bytes,
                       uint64_t page_bytes, ced_err *err) {
  if (offset % 16 == 0 && offset + bytes <= page_bytes) return CED_OK;
  return fail(err, CED_EINVAL,
              "%s: kv.%s is %u: not 16-byte aligned, or its %llu bytes leave the page of %llu", kernel, field,
              offset, static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(page_bytes));
}

// The planes a kernel reads or writes must lie inside a page.
inline int check_kv(const char *kernel, const ced_kv &kv, bool main, bool index, ced_err *err) {
  CED_TRY(check_address(kernel, "kv.pages", kv.pages, 64, err));
  CED_TRY(check_address(kernel, "kv.table", kv.table, 4, err));
  CED_TRY(check_range(kernel, "kv.max_pages", kv.max_pages, 1, 1u << 30, err));
  CED_TRY(check_range(kernel, "kv.page_rows", kv.page_rows, 1, 1u << 20, err));
  CED_TRY(check_range(kernel, "kv.ratio", kv.ratio, 1, 64, err));
  const uint64_t rows = kv.page_rows;
  if (main) {
    CED_TRY(check_multiple(kernel, "kv.head_dim", kv.head_dim, 32, err));
    CED_TRY(check_range(kernel, "kv.head_dim", kv.head_dim, 1, kMaxRow, err));
    CED_TRY(check_plane(kernel, "main_codes", kv.main_codes, rows * (kv.head_dim / 2), kv.page_bytes, err));
    CED_TRY(
        check_plane(kernel, "main_scales", kv.main_scales, rows * (kv.head_dim / 16), kv.page_bytes, err));
  }
  if (index) {
    CED_TRY(check_multiple(kernel, "kv.index_dim", kv.index_dim, 32, err));
    CED_TRY(check_range(kernel, "kv.index_dim", kv.index_dim, 1, kMaxRow, err));
    CED_TRY(
        check_plane(kernel, "index_codes", kv.index_codes, rows * (kv.index_dim / 2), kv.page_bytes, err));
    CED_TRY(
        check_plane(kernel, "index_scales", kv.index_scales, rows * (kv.index_dim / 32), kv.page_bytes, err));
  }
  return CED_OK;
}

}  // namespace ced
