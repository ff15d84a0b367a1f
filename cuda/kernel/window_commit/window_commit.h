// window_commit: packed window rows into the rings of their sequences, slot = position mod ring_rows; of each
// sequence only its last ring_rows rows (spec 4.4).
//   packed [rows, row_bytes], ring [slots][ring_rows][row_bytes]
#pragma once
#include "internal.h"

namespace ced {

// Moves bytes only: one body for both kinds of stream.
void window_commit_ref(ced_stream *s, const ced_window_commit_args &a);
inline void window_commit_cpu(ced_stream *s, const ced_window_commit_args &a) { window_commit_ref(s, a); }
int window_commit_cuda(ced_stream *s, const ced_window_commit_args &a, ced_err *err);

}  // namespace ced
