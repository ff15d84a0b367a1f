// cuda_absent.cc: the CUDA side of a build without CUDA. A stream cannot be opened, so the rest is
// unreachable.
#include "device/stream.h"

namespace ced {

static int absent(ced_err *err) {
  return fail(err, CED_ENODEV, "no CUDA device: this build has no CUDA kernels; use --backend cpu");
}

const char *cuda_bodies() { return " "; }
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
int cuda_host_alloc(ced_stream *, uint64_t, uint64_t *, ced_err *err) { return absent(err); }
void cuda_host_free(ced_stream *, uint64_t) {}
int cuda_info(int, ced_device *, ced_err *err) { return absent(err); }
int cuda_event_open(ced_stream *, bool, ced_event *, ced_err *err) { return absent(err); }
void cuda_event_close(ced_event *) {}
int cuda_event_record(ced_stream *, ced_event *, ced_err *err) { return absent(err); }
int cuda_event_wait(ced_stream *, ced_event *, ced_err *err) { return absent(err); }
int cuda_event_sync(ced_event *, ced_err *err) { return absent(err); }
int cuda_event_done(ced_event *, ced_err *err) { return -absent(err); }
int cuda_event_elapsed(ced_event *, ced_event *, double *, ced_err *err) { return absent(err); }
int cuda_probe_read(ced_stream *, uint64_t, uint64_t, uint64_t *, ced_err *err) { return absent(err); }
int cuda_probe_multiply(ced_stream *, bool, uint32_t, double *, ced_err *err) { return absent(err); }
int cuda_capture_begin(ced_stream *, ced_err *err) { return absent(err); }
int cuda_capture_end(ced_stream *, ced_graph **, ced_err *err) { return absent(err); }
int cuda_graph_launch(ced_stream *, ced_graph *, ced_err *err) { return absent(err); }
void cuda_graph_close(ced_graph *) {}

}  // namespace ced
