#include "kernel/kv_append/kv_append.h"

namespace ced {

void kv_append_ref(ced_stream *, const ced_kv_append_args &a) {
  for (int64_t g = 0; g < row_count(a.groups); g++) AppendGroup::run<4>(&a, g);
}

void kv_append_cpu(ced_stream *s, const ced_kv_append_args &a) {
  parallel_for(s, row_count(a.groups), 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t g = begin; g < end; g++) vectorised<AppendGroup>(&a, g);
  });
}

}  // namespace ced
