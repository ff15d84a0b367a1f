// embed: token embedding and the initial streams (spec 4.1).
//   table [vocab, dim] BF16|F32 (F32 is rounded), overrides [*, dim] BF16 for rows with embed_row >= 0
//   -> h [rows, streams, dim] BF16: the embedding in every stream; pre [rows, streams] F32: 1, 0, 0, ...
#pragma once
#include "internal.h"

namespace ced {

// Data movement: the bodies differ in threads only.
void embed_ref(ced_stream *s, const ced_embed_args &a);
void embed_cpu(ced_stream *s, const ced_embed_args &a);
int embed_cuda(ced_stream *s, const ced_embed_args &a, ced_err *err);

}  // namespace ced
