#include <cstring>

#include "kernel/row_gather/row_gather.h"

namespace ced {

void row_gather_ref(ced_stream *s, const ced_row_gather_args &a) { row_gather_cpu(s, a); }

void row_gather_cpu(ced_stream *s, const ced_row_gather_args &a) {
  parallel_for(s, row_count(a.rows), 1, [&](int64_t i, int64_t, int) {
    const auto from = static_cast<uint64_t>(at<const int32_t>(a.index)[i]), to = static_cast<uint64_t>(i);
    memcpy(at<char>(a.dst) + to * a.row_bytes, at<const char>(a.src) + from * a.row_bytes, a.row_bytes);
  });
}

}  // namespace ced
