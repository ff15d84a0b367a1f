// device.cc: streams and memory. Host streams run at once, so ordering and synchronisation are free.
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <system_error>

#include "device/cpus.h"
#include "device/isa.h"
#include "device/pool.h"
#include "device/stream.h"

#ifndef CED_ABI
#error "CED_ABI must be the digest of ced.h; build with CMake"
#endif

namespace ced {

int fail(ced_err *err, int code, const char *format, ...) {
  if (err != nullptr) {
    err->code = code;
    err->cuda = 0;
    va_list args;
    va_start(args, format);
    vsnprintf(err->what, sizeof err->what, format, args);
    va_end(args);
  }
  return code;
}

void parallel(ced_stream *s, int64_t n, int64_t grain, Body body, void *ctx) {
  if (n <= 0) return;
  if (s->pool != nullptr) {
    s->pool->run(n, grain, body, ctx);
    return;
  }
  for (int64_t i = 0; i < n; i += grain) body(ctx, i, i + grain < n ? i + grain : n, 0);
}

ced_kind kind_of(const ced_stream *s) { return s->kind; }

int check_rows(const ced_stream *s, const char *kernel, uint64_t rows, uint32_t max_rows, ced_err *err) {
  CED_TRY(check_address(kernel, "rows", rows, 4, err));
  if (s->kind == CED_CUDA) return CED_OK;  // the count is in device memory
  const int32_t count = row_count(rows);
  if (count < 0 || static_cast<uint32_t>(count) > max_rows)
    return fail(err, CED_EINVAL, "%s: rows holds %d rows, outside 0..max_rows = %u", kernel, count, max_rows);
  return CED_OK;
}

int check_address(const char *kernel, const char *field, uint64_t addr, uint64_t align, ced_err *err) {
  if (addr == 0) return fail(err, CED_EINVAL, "%s: %s is missing", kernel, field);
  if (addr % align != 0)
    return fail(err, CED_EINVAL, "%s: %s = 0x%llx is not aligned to %llu bytes", kernel, field,
                static_cast<unsigned long long>(addr), static_cast<unsigned long long>(align));
  return CED_OK;
}

namespace {

constexpr int kMaxThreads = 1024;

bool known(ced_kind kind) { return kind == CED_REF || kind == CED_CPU || kind == CED_CUDA; }

int open_pool(ced_stream *s, int threads, uint32_t flags, ced_err *err) {
  const int cpus = usable_cpus(), n = threads > 0 ? threads : cpus;
  try {
    s->pool = new Pool(n, cpus, (flags & CED_PIN) != 0 ? allowed_cpus() : std::vector<int>());
  } catch (const std::exception &e) {
    return fail(err, CED_ENOMEM, "stream: starting %d threads: %s", n, e.what());
  }
  return CED_OK;
}

// Both ends of a copy. Zero bytes need no addresses.
int check_copy(const char *call, uint64_t dst, uint64_t src, uint64_t bytes, ced_err *err) {
  if (bytes == 0 || (dst != 0 && src != 0)) return CED_OK;
  return fail(err, CED_EINVAL, "%s: %s is missing for %llu bytes", call, dst == 0 ? "dst" : "src",
              static_cast<unsigned long long>(bytes));
}

int open_event(ced_stream *s, bool timed, ced_event **out, ced_err *err) {
  if (out == nullptr) return fail(err, CED_EINVAL, "event: out is missing");
  auto *e = new (std::nothrow) ced_event{nullptr, s->device};
  if (e == nullptr) return fail(err, CED_ENOMEM, "event: out of host memory");
  const int rc = s->kind == CED_CUDA ? cuda_event_open(s, timed, e, err) : CED_OK;
  if (rc != CED_OK) {
    delete e;
    return rc;
  }
  *out = e;
  return CED_OK;
}

}  // namespace
}  // namespace ced

using ced::fail;

extern "C" {

const char *ced_abi(void) { return CED_ABI; }

int ced_device_count(ced_kind kind) {
  if (kind == CED_CUDA) return ced::cuda_count();
  return ced::known(kind) ? 1 : 0;
}

int ced_stream_open(ced_kind kind, int device, int threads, uint32_t flags, ced_stream **out, ced_err *err) {
  if (out == nullptr) return fail(err, CED_EINVAL, "stream: out is missing");
  if (!ced::known(kind))
    return fail(err, CED_EINVAL, "stream: kind %d is none of 0 (ref), 1 (cpu), 2 (cuda)", kind);
  if (threads < 0 || threads > ced::kMaxThreads)
    return fail(err, CED_EINVAL, "stream: threads = %d is outside 0..%d", threads, ced::kMaxThreads);
  if ((flags & ~uint32_t{CED_PIN}) != 0)
    return fail(err, CED_EINVAL, "stream: flags = 0x%x is unknown", flags);
  if (kind == CED_CPU) CED_TRY(ced::check_isa(err));
  const int devices = ced_device_count(kind);
  if (devices > 0 && (device < 0 || device >= devices))
    return fail(err, CED_EINVAL, "stream: device %d is outside 0..%d", device, devices - 1);
  auto *s = new (std::nothrow) ced_stream{kind, device, nullptr, nullptr};
  if (s == nullptr) return fail(err, CED_ENOMEM, "stream: out of host memory");
  const int rc = kind == CED_CPU    ? ced::open_pool(s, threads, flags, err)
                 : kind == CED_CUDA ? ced::cuda_open(s, err)
                                    : CED_OK;
  if (rc != CED_OK) {
    delete s;
    return rc;
  }
  *out = s;
  return CED_OK;
}

void ced_stream_close(ced_stream *s) {
  if (s == nullptr) return;
  if (s->kind == CED_CUDA) ced::cuda_close(s);
  delete s->pool;
  delete s;
}

int ced_stream_threads(const ced_stream *s) { return s->pool != nullptr ? s->pool->threads() : 1; }

int ced_stream_sync(ced_stream *s, ced_err *err) {
  return s->kind == CED_CUDA ? ced::cuda_sync(s, err) : CED_OK;
}

int ced_alloc(ced_stream *s, uint64_t bytes, uint64_t *addr, ced_err *err) {
  if (addr == nullptr) return fail(err, CED_EINVAL, "alloc: addr is missing");
  if (s->kind == CED_CUDA) return ced::cuda_alloc(s, bytes, addr, err);
  void *p = nullptr;
  if (bytes > PTRDIFF_MAX || posix_memalign(&p, 64, bytes > 0 ? bytes : 64) != 0)
    return fail(err, CED_ENOMEM, "alloc: out of host memory for %llu bytes",
                static_cast<unsigned long long>(bytes));
  *addr = reinterpret_cast<uint64_t>(p);
  return CED_OK;
}

void ced_free(ced_stream *s, uint64_t addr) {
  if (s->kind == CED_CUDA) {
    ced::cuda_free(s, addr);
  } else {
    free(ced::at<void>(addr));
  }
}

int ced_fill(ced_stream *s, uint64_t dst, int byte, uint64_t bytes, ced_err *err) {
  CED_TRY(ced::check_copy("fill", dst, dst, bytes, err));
  if (s->kind == CED_CUDA) return ced::cuda_fill(s, dst, byte, bytes, err);
  if (bytes > 0) memset(ced::at<void>(dst), byte, bytes);
  return CED_OK;
}

int ced_upload(ced_stream *s, uint64_t dst, const void *src, uint64_t bytes, ced_err *err) {
  CED_TRY(ced::check_copy("upload", dst, reinterpret_cast<uint64_t>(src), bytes, err));
  if (s->kind == CED_CUDA) return ced::cuda_upload(s, dst, src, bytes, err);
  if (bytes > 0) memcpy(ced::at<void>(dst), src, bytes);
  return CED_OK;
}

int ced_download(ced_stream *s, void *dst, uint64_t src, uint64_t bytes, ced_err *err) {
  CED_TRY(ced::check_copy("download", reinterpret_cast<uint64_t>(dst), src, bytes, err));
  if (s->kind == CED_CUDA) return ced::cuda_download(s, dst, src, bytes, err);
  if (bytes > 0) memcpy(dst, ced::at<const void>(src), bytes);
  return CED_OK;
}

int ced_copy(ced_stream *s, uint64_t dst, uint64_t src, uint64_t bytes, ced_err *err) {
  CED_TRY(ced::check_copy("copy", dst, src, bytes, err));
  if (s->kind == CED_CUDA) return ced::cuda_copy(s, dst, src, bytes, err);
  if (bytes > 0) memmove(ced::at<void>(dst), ced::at<const void>(src), bytes);
  return CED_OK;
}

int ced_host_alloc(ced_stream *s, uint64_t bytes, uint64_t *addr, ced_err *err) {
  if (s->kind != CED_CUDA) return ced_alloc(s, bytes, addr, err);
  if (addr == nullptr) return fail(err, CED_EINVAL, "host alloc: addr is missing");
  return ced::cuda_host_alloc(s, bytes, addr, err);
}

void ced_host_free(ced_stream *s, uint64_t addr) {
  if (s->kind == CED_CUDA) {
    ced::cuda_host_free(s, addr);
  } else {
    free(ced::at<void>(addr));
  }
}

int ced_device_info(ced_kind kind, int device, ced_device *out, ced_err *err) {
  if (kind != CED_CUDA) return fail(err, CED_EINVAL, "device info: kind %d is none of 2 (cuda)", kind);
  if (out == nullptr) return fail(err, CED_EINVAL, "device info: out is missing");
  return ced::cuda_info(device, out, err);
}

int ced_event_open(ced_stream *s, ced_event **out, ced_err *err) {
  return ced::open_event(s, false, out, err);
}

int ced_event_open_timed(ced_stream *s, ced_event **out, ced_err *err) {
  if (s->kind != CED_CUDA) return fail(err, CED_EINVAL, "event: host streams have none with a time");
  return ced::open_event(s, true, out, err);
}

void ced_event_close(ced_event *e) {
  if (e == nullptr) return;
  if (e->cuda != nullptr) ced::cuda_event_close(e);
  delete e;
}

int ced_event_record(ced_stream *s, ced_event *e, ced_err *err) {
  return e->cuda != nullptr ? ced::cuda_event_record(s, e, err) : CED_OK;
}

int ced_event_wait(ced_stream *s, ced_event *e, ced_err *err) {
  return e->cuda != nullptr ? ced::cuda_event_wait(s, e, err) : CED_OK;
}

int ced_event_sync(ced_event *e, ced_err *err) {
  return e->cuda != nullptr ? ced::cuda_event_sync(e, err) : CED_OK;
}

int ced_event_done(ced_event *e, ced_err *err) {
  return e->cuda != nullptr ? ced::cuda_event_done(e, err) : 1;
}

int ced_event_elapsed(ced_event *from, ced_event *to, double *seconds, ced_err *err) {
  if (from == nullptr || to == nullptr || seconds == nullptr)
    return fail(err, CED_EINVAL, "event elapsed: %s is missing",
                from == nullptr ? "from"
                : to == nullptr ? "to"
                                : "seconds");
  if (from->cuda == nullptr || to->cuda == nullptr)
    return fail(err, CED_EINVAL, "event elapsed: events of host streams have no time");
  return ced::cuda_event_elapsed(from, to, seconds, err);
}

int ced_capture_begin(ced_stream *s, ced_err *err) {
  if (s->kind != CED_CUDA) return fail(err, CED_EINVAL, "capture: host streams have no graphs");
  return ced::cuda_capture_begin(s, err);
}

int ced_capture_end(ced_stream *s, ced_graph **out, ced_err *err) {
  if (s->kind != CED_CUDA) return fail(err, CED_EINVAL, "capture: host streams have no graphs");
  if (out == nullptr) return fail(err, CED_EINVAL, "capture: out is missing");
  return ced::cuda_capture_end(s, out, err);
}

int ced_graph_launch(ced_stream *s, ced_graph *g, ced_err *err) {
  if (g == nullptr) return fail(err, CED_EINVAL, "graph: it is missing");
  return ced::cuda_graph_launch(s, g, err);
}

void ced_graph_close(ced_graph *g) {
  if (g != nullptr) ced::cuda_graph_close(g);
}

}  // extern "C"
