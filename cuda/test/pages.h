// pages.h: a paged global KV for kernel tests: small pages in shuffled order.
#pragma once
#include "test/rig.h"

struct Pages {
  ced_kv kv{};
  size_t rows, bytes;  // rows of one slot; bytes of the pool

  // Room for rows of each slot, in pages of page_rows.
  Pages(Rig &rig, size_t slots, size_t rows, uint32_t page_rows, uint32_t ratio, uint32_t head_dim = 512,
        uint32_t index_dim = 128)
      : rows(rows) {
    const auto plane = [&](uint32_t row_bytes) {
      const auto offset = static_cast<uint32_t>(kv.page_bytes);
      kv.page_bytes += (page_rows * row_bytes + 15) / 16 * 16;
      return offset;
    };
    kv.main_codes = plane(head_dim / 2), kv.main_scales = plane(head_dim / 16);
    kv.index_codes = plane(index_dim / 2), kv.index_scales = plane(index_dim / 32);
    kv.max_pages = static_cast<uint32_t>((rows + page_rows - 1) / page_rows);
    kv.page_rows = page_rows, kv.ratio = ratio, kv.head_dim = head_dim, kv.index_dim = index_dim;
    const size_t pages = slots * kv.max_pages;
    for (size_t i = 0; i < pages; i++) table.push_back(static_cast<int32_t>(pages - 1 - i));
    bytes = pages * kv.page_bytes;
    kv.table = rig.put(table), kv.pages = rig.out<uint8_t>(bytes);
  }

  // Byte offset of a row's place in a plane.
  size_t place(size_t slot, size_t row, uint32_t plane, uint32_t row_bytes) const {
    const auto page = static_cast<size_t>(table[slot * kv.max_pages + row / kv.page_rows]);
    return page * kv.page_bytes + plane + row % kv.page_rows * row_bytes;
  }
  // Writes rows of one plane, from row 0 of a slot on.
  void write(Rig &rig, size_t slot, uint32_t plane, uint32_t row_bytes,
             const std::vector<uint8_t> &data) const {
    auto pool = rig.get<uint8_t>(kv.pages, bytes);
    for (size_t r = 0; r < data.size() / row_bytes; r++)
      std::memcpy(&pool[place(slot, r, plane, row_bytes)], &data[r * row_bytes], row_bytes);
    ced_err err{};
    REQUIRE_EQ(ced_upload(rig.stream(), kv.pages, pool.data(), bytes, &err), CED_OK);
  }

  std::vector<int32_t> table;
};
