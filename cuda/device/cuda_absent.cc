// cuda_absent.cc: the CUDA side of a build without CUDA. A stream cannot be opened, so the rest is
// unreachable.
#include "device/stream.h"

namespace ced {

static int absent(ced_err *err) {
  return fail(err, CED_ENODEV, "no CUDA device: this build has no CUDA kernels; use --backend cpu");
}

int cuda_count() { return 0; }
int cuda_open(ced_stream *, ced_err *err) { return absent(err); }
void cuda_close(ced_stream *) {}
int cuda_sync(ced_stream *, ced_err *err) { return absent(err); }
int cuda_alloc(ced_stream *, uint64_t, uint64_t *, ced_err *err) { return absent(err); }
void cuda_free(ced_stream *, uint64_t) {}
int cuda_fill(ced_stream *, uint64_t, int, uint64_t, ced_err *err) { return absent(err); }
int cuda_upload(ced_stream *, uint64_t, const void *, uint64_t, ced_err *err) { return absent(err); }
int cuda_download(ced_stream *, void *, uint64_t, uint64_t, ced_err *err) { return absent(err); }
int cuda_copy(ced_stream *, uint64_t, uint64_t, uint64_t, ced_err *err) { return absent(err); }

}  // namespace ced
