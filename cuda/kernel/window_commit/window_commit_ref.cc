#include "kernel/row.h"
#include "kernel/window_commit/window_commit.h"

namespace ced {

void window_commit_ref(ced_stream *s, const ced_window_commit_args &a) {
  const auto &rows = *at<const ced_rows>(a.rows);
  const auto *pos = at<const int32_t>(rows.pos), *slot = at<const int32_t>(rows.slot);
  const int64_t n = a.ring_rows;
  const size_t bytes = a.row_bytes;
  parallel_for(s, rows.count, grain_of(20 + a.row_bytes / 16), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; r++) {
      if (r + n < rows.count && slot[r + n] == slot[r]) continue;  // a later row takes this place
      const auto place =
          static_cast<size_t>(slot[r]) * a.ring_rows + static_cast<uint32_t>(pos[r]) % a.ring_rows;
      memcpy(at<char>(a.ring) + place * bytes, at<const char>(a.packed) + static_cast<size_t>(r) * bytes,
             bytes);
    }
  });
}

}  // namespace ced
