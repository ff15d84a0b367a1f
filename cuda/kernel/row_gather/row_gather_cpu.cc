#include <cstring>

#include "kernel/row_gather/row_gather.h"

namespace ced {

void row_gather_ref(ced_stream *s, const ced_row_gather_args &a) { row_gather_cpu(s, a); }

void row_gather_cpu(ced_stream *s, const ced_row_gather_args &a) {
  const auto row_ns = static_cast<int64_t>(20 + a.row_bytes / 16);
  parallel_for(s, row_count(a.rows), grain_of(row_ns), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; i++) {
      const auto from = static_cast<uint64_t>(at<const int32_t>(a.index)[i]), to = static_cast<uint64_t>(i);
      memcpy(at<char>(a.dst) + to * a.row_bytes, at<const char>(a.src) + from * a.row_bytes, a.row_bytes);
    }
  });
}

}  // namespace ced
