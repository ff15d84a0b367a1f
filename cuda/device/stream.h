// stream.h: what is behind a ced_stream.
#pragma once
#include "internal.h"

namespace ced {
class Pool;
}

struct ced_event {
  void *cuda;  // nullptr on a host stream
  int device;
};

struct ced_stream {
  ced_kind kind;
  int device;
  ced::Pool *pool;  // CED_CPU only
  void *cuda;       // the CUDA side's own state
};

// The CUDA side: cuda.cu with CUDA or its simulation, cuda_absent.cc without. Addresses are device memory.
namespace ced {
int cuda_count();
int cuda_open(ced_stream *s, ced_err *err);
void cuda_close(ced_stream *s);
int cuda_sync(ced_stream *s, ced_err *err);
int cuda_alloc(ced_stream *s, uint64_t bytes, uint64_t *addr, ced_err *err);
void cuda_free(ced_stream *s, uint64_t addr);
int cuda_fill(ced_stream *s, uint64_t dst, int byte, uint64_t bytes, ced_err *err);
int cuda_upload(ced_stream *s, uint64_t dst, const void *src, uint64_t bytes, ced_err *err);
int cuda_download(ced_stream *s, void *dst, uint64_t src, uint64_t bytes, ced_err *err);
int cuda_copy(ced_stream *s, uint64_t dst, uint64_t src, uint64_t bytes, ced_err *err);
int cuda_host_alloc(ced_stream *s, uint64_t bytes, uint64_t *addr, ced_err *err);
void cuda_host_free(ced_stream *s, uint64_t addr);
int cuda_info(int device, ced_device *out, ced_err *err);
int cuda_event_open(ced_stream *s, bool timed, ced_event *e, ced_err *err);
void cuda_event_close(ced_event *e);
int cuda_event_record(ced_stream *s, ced_event *e, ced_err *err);
int cuda_event_wait(ced_stream *s, ced_event *e, ced_err *err);
int cuda_event_sync(ced_event *e, ced_err *err);
int cuda_event_done(ced_event *e, ced_err *err);
int cuda_event_elapsed(ced_event *from, ced_event *to, double *seconds, ced_err *err);
int cuda_probe_read(ced_stream *s, uint64_t addr, uint64_t bytes, uint64_t *sum, ced_err *err);
int cuda_probe_multiply(ced_stream *s, bool bf16, uint32_t calls, double *flops, ced_err *err);
int cuda_capture_begin(ced_stream *s, ced_err *err);
int cuda_capture_end(ced_stream *s, ced_graph **out, ced_err *err);
int cuda_graph_launch(ced_stream *s, ced_graph *g, ced_err *err);
void cuda_graph_close(ced_graph *g);
}  // namespace ced
