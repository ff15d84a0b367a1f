// cuda.cu: streams, memory, events and graphs of a CUDA device. The runtime is linked statically and finds the driver
// when it is first used; without one there are no devices.
#include <cstdio>
#include <cstring>
#include <new>

#include "device/runtime.h"
#ifndef CED_SIM
#include "device/driver.h"
#endif

#ifndef CED_BUILT_FOR
#define CED_BUILT_FOR "other devices"
#endif

struct ced_graph {
  cudaGraphExec_t exec;
  int device;
};

namespace ced {

int cuda_fail(ced_err *err, cudaError_t e, const char *what) {
  cudaGetLastError();  // reported here, not by the next call
  const int code = e == cudaErrorMemoryAllocation ? CED_ENOMEM : CED_EDEVICE;
  fail(err, code, "%s: %s", what, cudaGetErrorString(e));
  if (err != nullptr) err->cuda = static_cast<int32_t>(e);
  return code;
}

namespace {

// A kernel that every build has: whether it can be loaded tells whether the build has code for a device.
__global__ void present() {}

cudaEvent_t event_of(const ced_event *e) { return static_cast<cudaEvent_t>(e->cuda); }
void *pointer(uint64_t addr) { return reinterpret_cast<void *>(addr); }

int open_all(CudaStream *c, ced_err *err) {
  cudaDeviceProp p{};
  CED_CUDA_TRY(cudaGetDeviceProperties(&p, c->device), "stream: asking the device");
  c->processors = p.multiProcessorCount, c->capability = 10 * p.major + p.minor;
  c->shared_bytes = p.sharedMemPerBlockOptin;
  if (c->capability < 80)
    return fail(err, CED_ENODEV,
                "stream: %s has compute capability %d.%d, the kernels need 8.0; use --backend cpu", p.name,
                p.major, p.minor);
  cudaFuncAttributes code{};
  if (const cudaError_t e = cudaFuncGetAttributes(&code, present);
      e == cudaErrorNoKernelImageForDevice || e == cudaErrorInvalidDeviceFunction) {
    cudaGetLastError();
    return fail(err, CED_ENODEV,
                "stream: %s has compute capability %d.%d, and this build has kernels for %s only; choose "
                "another --device, build with that architecture, or use --backend cpu",
                p.name, p.major, p.minor, CED_BUILT_FOR);
  }
  CED_CUDA_TRY(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking), "stream: creating it");
  void *host = nullptr;
  CED_CUDA_TRY(cudaHostAlloc(&host, 2 * Staging::kHalf, cudaHostAllocPortable), "stream: page-locked memory");
  c->staging.host = static_cast<char *>(host);
  CED_CUDA_TRY(cudaMalloc(&c->scratch, CudaStream::kScratch), "stream: device memory");
  void *arrivals = nullptr;
  CED_CUDA_TRY(cudaMalloc(&arrivals, sizeof(uint32_t) * CudaStream::kArrivals), "stream: device memory");
  c->arrivals = static_cast<uint32_t *>(arrivals);
  CED_CUDA_TRY(cudaMemsetAsync(arrivals, 0, sizeof(uint32_t) * CudaStream::kArrivals, c->stream),
               "stream: device memory");
  for (cudaEvent_t &e : c->staging.done)
    CED_CUDA_TRY(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "stream: creating an event");
  return try_wgmma(*c, err);
}

void close_all(CudaStream *c) {
  cudaSetDevice(c->device);
  if (c->stream != nullptr) cudaStreamSynchronize(c->stream);
  for (cudaEvent_t e : c->staging.done)
    if (e != nullptr) cudaEventDestroy(e);
  if (c->staging.host != nullptr) cudaFreeHost(c->staging.host);
  if (c->scratch != nullptr) cudaFree(c->scratch);
  if (c->arrivals != nullptr) cudaFree(c->arrivals);
  if (c->stream != nullptr) cudaStreamDestroy(c->stream);
  delete c;
}

// Makes a device the calling thread's. A thread that has not chosen one gets device 0, and that one a context, by whatever
// it asks the runtime for.
int use(int device, ced_err *err) {
  CED_CUDA_TRY(cudaSetDevice(device), "choosing the device");
  return CED_OK;
}
int use(const ced_stream *s, ced_err *err) { return use(cuda_of(s).device, err); }

// Copies whose host side the caller takes back cannot be part of a graph.
int refuse_capture(const ced_stream *s, const char *call, ced_err *err) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  CED_CUDA_TRY(cudaStreamIsCapturing(cuda_of(s).stream, &status), call);
  if (status == cudaStreamCaptureStatusNone) return CED_OK;
  return fail(err, CED_EINVAL, "%s: the stream is being captured", call);
}

// Room in the page-locked buffer.
int stage(CudaStream &c, size_t bytes, char **out, ced_err *err) {
  Staging &g = c.staging;
  if (g.used + bytes > Staging::kHalf) {
    CED_CUDA_TRY(cudaEventRecord(g.done[g.half], c.stream), "upload");
    g.half ^= 1, g.used = 0;
    CED_CUDA_TRY(cudaEventSynchronize(g.done[g.half]), "upload");
  }
  *out = g.host + static_cast<size_t>(g.half) * Staging::kHalf + g.used;
  g.used += (bytes + 63) / 64 * 64;
  return CED_OK;
}

}  // namespace

int cuda_count() {
  int n = 0;
#ifndef CED_SIM
  load_driver();
#endif
  if (cudaGetDeviceCount(&n) == cudaSuccess) return n;
  cudaGetLastError();  // no driver, an old one, or no device
  return 0;
}

// Why there is none.
static int no_device(ced_err *err) {
  int n = 0;
  const cudaError_t e = cudaGetDeviceCount(&n);
  cudaGetLastError();
#ifdef CED_SIM
  return fail(err, CED_ENODEV, "no CUDA device: %s", cudaGetErrorString(e));
#else
  return driver_fault(CUDART_VERSION, cudaGetErrorString(e), err);
#endif
}

int cuda_open(ced_stream *s, ced_err *err) {
  if (cuda_count() == 0) return no_device(err);
  auto *c = new (std::nothrow) CudaStream;
  if (c == nullptr) return fail(err, CED_ENOMEM, "stream: out of host memory");
  c->device = s->device;
  s->cuda = c;
  int rc = use(s, err);
  if (rc == CED_OK) rc = open_all(c, err);
  if (rc != CED_OK) close_all(c);
  return rc;
}

void cuda_close(ced_stream *s) { close_all(&cuda_of(s)); }

int cuda_sync(ced_stream *s, ced_err *err) {
  CED_TRY(use(s, err));
  CED_CUDA_TRY(cudaStreamSynchronize(cuda_of(s).stream), "sync");
  return CED_OK;
}

int cuda_alloc(ced_stream *s, uint64_t bytes, uint64_t *addr, ced_err *err) {
  CED_TRY(use(s, err));
  void *p = nullptr;
  const cudaError_t e = cudaMalloc(&p, bytes > 0 ? bytes : 64);
  if (e == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return fail(err, CED_ENOMEM, "alloc: out of device memory for %llu bytes",
                static_cast<unsigned long long>(bytes));
  }
  CED_CUDA_TRY(e, "alloc");
  *addr = reinterpret_cast<uint64_t>(p);
  return CED_OK;
}

void cuda_free(ced_stream *s, uint64_t addr) {
  cudaSetDevice(cuda_of(s).device);
  if (addr != 0) cudaFree(pointer(addr));
}

int cuda_fill(ced_stream *s, uint64_t dst, int byte, uint64_t bytes, ced_err *err) {
  if (bytes == 0) return CED_OK;
  CED_TRY(use(s, err));
  CED_CUDA_TRY(cudaMemsetAsync(pointer(dst), byte, bytes, cuda_of(s).stream), "fill");
  return CED_OK;
}

int cuda_upload(ced_stream *s, uint64_t dst, const void *src, uint64_t bytes, ced_err *err) {
  if (bytes == 0) return CED_OK;
  CED_TRY(use(s, err));
  CED_TRY(refuse_capture(s, "upload", err));
  CudaStream &c = cuda_of(s);
  const bool small = bytes <= Staging::kHalf;
  if (small) {
    char *staged = nullptr;
    CED_TRY(stage(c, bytes, &staged, err));
    memcpy(staged, src, bytes);
    src = staged;
  }
  CED_CUDA_TRY(cudaMemcpyAsync(pointer(dst), src, bytes, cudaMemcpyDefault, c.stream), "upload");
  // The device may still read src: surely where it is page-locked, perhaps where it reads the host's memory itself.
  return small ? CED_OK : cuda_sync(s, err);
}

int cuda_download(ced_stream *s, void *dst, uint64_t src, uint64_t bytes, ced_err *err) {
  CED_TRY(use(s, err));
  CED_TRY(refuse_capture(s, "download", err));
  const cudaStream_t stream = cuda_of(s).stream;
  if (bytes > 0)
    CED_CUDA_TRY(cudaMemcpyAsync(dst, pointer(src), bytes, cudaMemcpyDefault, stream), "download");
  CED_CUDA_TRY(cudaStreamSynchronize(stream), "download");
  return CED_OK;
}

int cuda_copy(ced_stream *s, uint64_t dst, uint64_t src, uint64_t bytes, ced_err *err) {
  if (bytes == 0) return CED_OK;
  CED_TRY(use(s, err));
  CED_CUDA_TRY(cudaMemcpyAsync(pointer(dst), pointer(src), bytes, cudaMemcpyDefault, cuda_of(s).stream),
               "copy");
  return CED_OK;
}

int cuda_host_alloc(ced_stream *s, uint64_t bytes, uint64_t *addr, ced_err *err) {
  CED_TRY(use(s, err));
  void *p = nullptr;
  CED_CUDA_TRY(cudaHostAlloc(&p, bytes > 0 ? bytes : 64, cudaHostAllocPortable | cudaHostAllocMapped),
               "host alloc");
  *addr = reinterpret_cast<uint64_t>(p);
  return CED_OK;
}

void cuda_host_free(ced_stream *s, uint64_t addr) {
  cudaSetDevice(cuda_of(s).device);
  if (addr != 0) cudaFreeHost(pointer(addr));
}

int cuda_info(int device, ced_device *out, ced_err *err) {
  const int n = cuda_count();
  if (n == 0) return no_device(err);
  if (device < 0 || device >= n)
    return fail(err, CED_ENODEV, "device info: there is no CUDA device %d", device);
  cudaDeviceProp p{};
  CED_CUDA_TRY(cudaSetDevice(device), "device info");
  CED_CUDA_TRY(cudaGetDeviceProperties(&p, device), "device info");
  size_t free = 0, total = 0;
  CED_CUDA_TRY(cudaMemGetInfo(&free, &total), "device info");
  *out = {};
  snprintf(out->name, sizeof out->name, "%.63s", p.name);
  out->total_bytes = total, out->free_bytes = free;
  out->major = p.major, out->minor = p.minor, out->processors = p.multiProcessorCount,
  out->integrated = p.integrated;
  return CED_OK;
}

int cuda_event_open(ced_stream *s, bool timed, ced_event *e, ced_err *err) {
  CED_TRY(use(s, err));
  cudaEvent_t event = nullptr;
  CED_CUDA_TRY(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming), "event");
  e->cuda = event;
  return CED_OK;
}

void cuda_event_close(ced_event *e) {
  cudaSetDevice(e->device);
  cudaEventDestroy(event_of(e));
}

int cuda_event_record(ced_stream *s, ced_event *e, ced_err *err) {
  CED_TRY(use(s, err));
  CED_CUDA_TRY(cudaEventRecord(event_of(e), cuda_of(s).stream), "event record");
  return CED_OK;
}

int cuda_event_wait(ced_stream *s, ced_event *e, ced_err *err) {
  CED_TRY(use(s, err));
  CED_CUDA_TRY(cudaStreamWaitEvent(cuda_of(s).stream, event_of(e), 0), "event wait");
  return CED_OK;
}

int cuda_event_sync(ced_event *e, ced_err *err) {
  CED_TRY(use(e->device, err));
  CED_CUDA_TRY(cudaEventSynchronize(event_of(e)), "event sync");
  return CED_OK;
}

int cuda_event_done(ced_event *e, ced_err *err) {
  cudaError_t rc = cudaSetDevice(e->device);
  if (rc == cudaSuccess) rc = cudaEventQuery(event_of(e));
  if (rc == cudaSuccess) return 1;
  if (rc == cudaErrorNotReady) return 0;
  return -cuda_fail(err, rc, "event");
}

int cuda_event_elapsed(ced_event *from, ced_event *to, double *seconds, ced_err *err) {
  float ms = 0;
  CED_TRY(use(to->device, err));
  CED_CUDA_TRY(cudaEventElapsedTime(&ms, event_of(from), event_of(to)), "event elapsed");
  *seconds = static_cast<double>(ms) / 1e3;
  return CED_OK;
}

int cuda_capture_begin(ced_stream *s, ced_err *err) {
  CED_TRY(use(s, err));
  CED_CUDA_TRY(cudaStreamBeginCapture(cuda_of(s).stream, cudaStreamCaptureModeThreadLocal), "capture");
  return CED_OK;
}

int cuda_capture_end(ced_stream *s, ced_graph **out, ced_err *err) {
  CED_TRY(use(s, err));
  cudaGraph_t graph = nullptr;
  CED_CUDA_TRY(cudaStreamEndCapture(cuda_of(s).stream, &graph), "capture");
  cudaGraphExec_t exec = nullptr;
  const cudaError_t e = cudaGraphInstantiate(&exec, graph, 0);
  cudaGraphDestroy(graph);
  CED_CUDA_TRY(e, "capture");
  *out = new (std::nothrow) ced_graph{exec, s->device};
  if (*out != nullptr) return CED_OK;
  cudaGraphExecDestroy(exec);
  return fail(err, CED_ENOMEM, "capture: out of host memory");
}

int cuda_graph_launch(ced_stream *s, ced_graph *g, ced_err *err) {
  CED_TRY(use(s, err));
  CED_CUDA_TRY(cudaGraphLaunch(g->exec, cuda_of(s).stream), "graph");
  return CED_OK;
}

void cuda_graph_close(ced_graph *g) {
  cudaSetDevice(g->device);
  cudaGraphExecDestroy(g->exec);
  delete g;
}

}  // namespace ced
