// stream.cc: the CUDA runtime of the simulated device. Streams are queues; whoever waits runs them, in an order drawn
// from the seed, so that only events and synchronisation order anything. A captured graph holds the bytes of its
// kernels' arguments.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "sim/device.h"
#include "sim/state.h"

namespace sim {

using Work = std::function<void()>;

struct Node {
  Work work;
  std::vector<size_t> after;
};
struct Capture {
  std::vector<Node> nodes;
  Stream *origin = nullptr;
  bool invalid = false;
  bool every_thread = false;  // forbidden calls are, on all of them
  bool any_thread = false;    // may end it
  std::thread::id thread;
};
using CapturePtr = std::shared_ptr<Capture>;

struct Op {
  Work work;
  std::function<bool()> ready;  // empty: at once
};
struct Stream {
  int device = 0;
  std::deque<Op> queue;
  CapturePtr capture;
  std::vector<size_t> tail;  // nodes that the next one comes after
};
struct Event {
  uint64_t recorded = 0, done = 0;
  bool timed = false;
  std::chrono::steady_clock::time_point at;  // of the host, when it was reached
  CapturePtr capture;
  std::vector<size_t> nodes;
};
struct Graph {
  std::vector<Node> nodes;
};
struct GraphExec {
  std::shared_ptr<const std::vector<Node>> nodes;
};

namespace {

std::recursive_mutex mutex;
struct Machine {
  std::vector<Stream *> streams;
  std::vector<CapturePtr> captures;
  std::vector<std::pair<const void *, int>> shared_limits;
  bool peers[256][256] = {};
  Dice dice{static_cast<uint64_t>(options().seed)};
  long launches = 0, asked = 0;  // run, and enqueued
  int sticky = cudaSuccess;
};
Machine &machine() {
  static auto *m = new Machine;
  return *m;
}
thread_local int current_device, last_error;

using Lock = std::lock_guard<std::recursive_mutex>;

cudaError_t result(int e) {
  if (machine().sticky != cudaSuccess) e = machine().sticky;
  if (e != cudaSuccess) last_error = e;
  return static_cast<cudaError_t>(e);
}

// Runs the head of one stream that can run; false if none can.
bool step(const Stream *wanted) {
  std::vector<Stream *> heads;
  for (Stream *s : machine().streams)
    if (!s->queue.empty() && (!s->queue.front().ready || s->queue.front().ready())) heads.push_back(s);
  if (heads.empty()) return false;
  Stream *s = heads[machine().dice.below(static_cast<uint32_t>(heads.size()))];
  if (options().seed == 0 && std::find(heads.begin(), heads.end(), wanted) != heads.end())
    s = const_cast<Stream *>(wanted);
  const Op op = std::move(s->queue.front());
  s->queue.pop_front();
  if (op.work) op.work();
  return true;
}
// Until s, or every stream, is empty.
void drain(const Stream *s) {
  const auto busy = [&] {
    return std::any_of(machine().streams.begin(), machine().streams.end(),
                       [&](const Stream *x) { return (s == nullptr || x == s) && !x->queue.empty(); });
  };
  while (busy())
    if (!step(s)) fault("", 0, "streams wait for an event that nobody records");
}

// A call that a capture forbids: it fails, and so does the capture.
int forbid(const CapturePtr &c) {
  c->invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}
int forbid_if_capturing() {
  for (const CapturePtr &c : machine().captures)
    if (c->every_thread || c->thread == std::this_thread::get_id()) return forbid(c);
  return cudaSuccess;
}

int add(Stream *s, Work work) {
  if (s == nullptr) return cudaErrorInvalidResourceHandle;  // the project has no use for the default stream
  if (s->capture == nullptr) {
    s->queue.push_back({std::move(work), nullptr});
    return cudaSuccess;
  }
  if (s->capture->invalid) return cudaErrorStreamCaptureInvalidated;
  s->capture->nodes.push_back({std::move(work), s->tail});
  s->tail = {s->capture->nodes.size() - 1};
  return cudaSuccess;
}

// Nodes in an order that their edges allow.
void replay(const std::vector<Node> &nodes) {
  std::vector<bool> done(nodes.size());
  for (size_t left = nodes.size(); left > 0; left--) {
    std::vector<size_t> ready;
    for (size_t i = 0; i < nodes.size(); i++) {
      const auto &after = nodes[i].after;
      if (!done[i] && std::all_of(after.begin(), after.end(), [&](size_t n) { return done[n]; }))
        ready.push_back(i);
      if (options().seed == 0 && !ready.empty()) break;
      if (ready.size() == 16) break;
    }
    const size_t i = ready[machine().dice.below(static_cast<uint32_t>(ready.size()))];
    nodes[i].work();
    done[i] = true;
  }
}

int check_launch(const Launch &l) {
  const uint64_t threads = uint64_t{l.block.x} * l.block.y * l.block.z;
  if (threads == 0 || threads > kMaxThreads || l.block.z > 64 || l.grid.x == 0 || l.grid.y == 0 ||
      l.grid.z == 0 || l.grid.x > 0x7FFFFFFF || l.grid.y > 65535 || l.grid.z > 65535)
    return cudaErrorInvalidConfiguration;
  size_t limit = kDefaultShared;
  for (const auto &s : machine().shared_limits)
    if (s.first == l.kernel) limit = static_cast<size_t>(s.second);
  if (l.shared_bytes > limit) return cudaErrorInvalidValue;
  if (l.resident) {
    uint64_t fit = kThreadsPerMultiprocessor / threads;
    fit = std::min<uint64_t>(fit, kSharedPerMultiprocessor / (l.shared_bytes + 1024));
    if (uint64_t{l.grid.x} * l.grid.y * l.grid.z > fit * kMultiprocessors)
      return cudaErrorCooperativeLaunchTooLarge;
  }
  return cudaSuccess;
}

long number(const char *name, long otherwise) {
  const char *text = getenv(name);
  return text != nullptr && *text != '\0' ? strtol(text, nullptr, 10) : otherwise;
}

// Whether every node of b is a or comes before one of a's.
bool covers(const std::vector<Node> &nodes, std::vector<size_t> a, const std::vector<size_t> &b) {
  std::vector<bool> seen(nodes.size());
  while (!a.empty()) {
    const size_t n = a.back();
    a.pop_back();
    if (seen[n]) continue;
    seen[n] = true;
    a.insert(a.end(), nodes[n].after.begin(), nodes[n].after.end());
  }
  return std::all_of(b.begin(), b.end(), [&](size_t n) { return seen[n]; });
}

}  // namespace

Options &options() {
  static Options o{number("CED_SIM_SEED", 2),
                   number("CED_SIM_THREADS", static_cast<long>(std::thread::hardware_concurrency())),
                   std::min(number("CED_SIM_DEVICES", 1), 64L),
                   number("CED_SIM_MEMORY", 16384),
                   number("CED_SIM_FAULT", 0),
                   number("CED_SIM_NOMEM", 0),
                   number("CED_SIM_CAPABILITY", 90),
                   number("CED_SIM_UNIFIED", 0)};
  return o;
}

bool peer_enabled(int device, int peer) { return machine().peers[device][peer]; }

int enqueue(Stream *s, Launch launch) {
  const Lock lock(mutex);
  if (s == nullptr || s->device != current_device) return result(cudaErrorInvalidResourceHandle);
  if (const int e = check_launch(launch)) return result(e);
  if (machine().sticky == cudaSuccess && ++machine().asked == options().nomem_launch)
    return result(cudaErrorMemoryAllocation);
  const int device = s->device;
  return result(add(s, [launch, device] {
    Machine &m = machine();
    if (m.sticky == cudaSuccess && ++m.launches == options().fault_launch) m.sticky = cudaErrorIllegalAddress;
    if (m.sticky != cudaSuccess) return;
    run_grid(launch, device);
    check_canaries(launch.name);
  }));
}

}  // namespace sim

using namespace sim;

cudaError_t cudaDriverGetVersion(int *version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaGetDeviceCount(int *n) {
  *n = static_cast<int>(options().devices);
  return *n > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= options().devices) return result(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device) {
  if (device < 0 || device >= options().devices) return result(cudaErrorInvalidDevice);
  *p = {};
  snprintf(p->name, sizeof p->name, "simulated device %d", device);
  p->totalGlobalMem = static_cast<size_t>(options().memory_mib) << 20;
  p->sharedMemPerBlockOptin = kMaxShared, p->multiProcessorCount = kMultiprocessors;
  p->major = static_cast<int>(options().capability / 10),
  p->minor = static_cast<int>(options().capability % 10);
  p->integrated = options().unified != 0;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  *total = static_cast<size_t>(options().memory_mib) << 20;
  *free = *total - used_bytes(current_device);
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  *can = device != peer;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  const Lock lock(mutex);
  machine().peers[current_device][peer] = true;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  const Lock lock(mutex);
  if (const int e = forbid_if_capturing()) return result(e);
  drain(nullptr);
  return result(cudaSuccess);
}
cudaError_t cudaGetLastError() {
  const int e = last_error;
  last_error = cudaSuccess;
  return static_cast<cudaError_t>(e);
}
cudaError_t cudaPeekAtLastError() { return static_cast<cudaError_t>(last_error); }
const char *cudaGetErrorString(cudaError_t e) {
  switch (e) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    case cudaErrorNoKernelImageForDevice:
      return "no kernel image is available for execution on the device";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorCooperativeLaunchTooLarge:
      return "too many blocks in cooperative launch";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureUnjoined:
      return "capturing stream has unjoined work";
    case cudaErrorStreamCaptureWrongThread:
      return "attempt to terminate a thread-local capture sequence from another thread";
    default:
      return "invalid argument";
  }
}

cudaError_t cudaMalloc(void **p, size_t n) {
  const Lock lock(mutex);
  if (const int e = forbid_if_capturing()) return result(e);
  return result(allocate_device(p, n, current_device));
}
cudaError_t cudaFree(void *p) {
  if (p == nullptr) return cudaSuccess;
  const Lock lock(mutex);
  if (const int e = forbid_if_capturing()) return result(e);
  drain(nullptr);
  return result(release_memory(p));
}
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned) {
  const Lock lock(mutex);
  if (const int e = forbid_if_capturing()) return result(e);
  return result(allocate_pinned(p, n));
}
cudaError_t cudaFreeHost(void *p) { return cudaFree(p); }
cudaError_t cudaHostRegister(void *p, size_t n, unsigned) {
  const Lock lock(mutex);
  return result(register_pinned(p, n));
}
cudaError_t cudaHostUnregister(void *p) {
  const Lock lock(mutex);
  drain(nullptr);
  return result(release_memory(p));
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n, cudaMemcpyKind, cudaStream_t s) {
  const Lock lock(mutex);
  Where to, from;
  int device;
  void *d = locate(dst, n, &to, &device);
  const void *p = locate(src, n, &from, &device);
  if (s == nullptr || d == nullptr || p == nullptr) return result(cudaErrorInvalidValue);
  const bool pageable = to == Where::kPageable || from == Where::kPageable;
  if (pageable && s->capture != nullptr) return result(forbid(s->capture));
  int e;
  if (from == Where::kPageable) {  // staged before the call returns
    const auto *bytes = static_cast<const char *>(p);
    const auto staged = std::make_shared<std::vector<char>>(bytes, bytes + n);
    e = add(s, [=] { memcpy(d, staged->data(), n); });
  } else {
    e = add(s, [=] { memmove(d, p, n); });
  }
  if (e == cudaSuccess && to == Where::kPageable) drain(s);
  return result(e);
}
cudaError_t cudaMemcpyPeerAsync(void *dst, int, const void *src, int, size_t n, cudaStream_t s) {
  return cudaMemcpyAsync(dst, src, n, cudaMemcpyDefault, s);
}
cudaError_t cudaMemsetAsync(void *p, int byte, size_t n, cudaStream_t s) {
  const Lock lock(mutex);
  Where where;
  int device;
  void *d = locate(p, n, &where, &device);
  if (d == nullptr || where == Where::kPageable) return result(cudaErrorInvalidValue);
  return result(add(s, [=] { memset(d, byte, n); }));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned) {
  const Lock lock(mutex);
  *s = new Stream;
  (*s)->device = current_device;
  machine().streams.push_back(*s);
  return result(cudaSuccess);
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  const Lock lock(mutex);
  drain(s);
  auto &all = machine().streams;
  all.erase(std::remove(all.begin(), all.end(), s), all.end());
  delete s;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  const Lock lock(mutex);
  if (s == nullptr) return result(cudaErrorInvalidResourceHandle);
  if (s->capture != nullptr) return result(forbid(s->capture));
  drain(s);
  return result(cudaSuccess);
}
cudaError_t cudaStreamQuery(cudaStream_t s) {
  const Lock lock(mutex);
  if (s->capture != nullptr) return result(forbid(s->capture));
  if (!s->queue.empty()) step(nullptr);
  return s->queue.empty() ? result(cudaSuccess) : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  const Lock lock(mutex);
  if (e->capture != nullptr) {
    if (s->capture != nullptr && s->capture != e->capture) return result(forbid(s->capture));
    if (s->capture == nullptr) s->capture = e->capture, s->tail.clear();
    s->tail.insert(s->tail.end(), e->nodes.begin(), e->nodes.end());
    return result(cudaSuccess);
  }
  if (s->capture != nullptr) return result(e->recorded > 0 ? forbid(s->capture) : cudaSuccess);
  const uint64_t wanted = e->recorded;
  s->queue.push_back({nullptr, [=] { return e->done >= wanted; }});
  return result(cudaSuccess);
}
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode) {
  const Lock lock(mutex);
  if (s == nullptr || s->capture != nullptr) return result(cudaErrorInvalidValue);
  s->capture = std::make_shared<Capture>();
  s->tail.clear();
  s->capture->origin = s, s->capture->thread = std::this_thread::get_id();
  s->capture->every_thread = mode == cudaStreamCaptureModeGlobal;
  s->capture->any_thread = mode == cudaStreamCaptureModeRelaxed;
  if (mode != cudaStreamCaptureModeRelaxed) machine().captures.push_back(s->capture);
  return result(cudaSuccess);
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph) {
  const Lock lock(mutex);
  *graph = nullptr;
  const CapturePtr c = s->capture;
  if (c == nullptr || c->origin != s) return result(cudaErrorInvalidValue);
  if (!c->any_thread && c->thread != std::this_thread::get_id())
    return result(cudaErrorStreamCaptureWrongThread);
  int e = c->invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
  for (Stream *x : machine().streams) {
    if (x->capture != c) continue;
    if (x != s && e == cudaSuccess && !covers(c->nodes, s->tail, x->tail)) e = cudaErrorStreamCaptureUnjoined;
    x->capture = nullptr;
  }
  auto &all = machine().captures;
  all.erase(std::remove(all.begin(), all.end(), c), all.end());
  if (e == cudaSuccess) *graph = new Graph{c->nodes};
  return result(e);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus *status) {
  const Lock lock(mutex);
  *status = s->capture == nullptr ? cudaStreamCaptureStatusNone
            : s->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                  : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) {
  *e = new Event;
  (*e)->timed = (flags & cudaEventDisableTiming) == 0;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  const Lock lock(mutex);
  drain(nullptr);
  delete e;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  const Lock lock(mutex);
  if (s->capture != nullptr) {
    e->capture = s->capture, e->nodes = s->tail;
    return result(s->capture->invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
  }
  e->capture = nullptr;
  const uint64_t v = ++e->recorded;
  return result(add(s, [=] {
    e->done = std::max(e->done, v);
    if (e->timed) e->at = std::chrono::steady_clock::now();
  }));
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  const Lock lock(mutex);
  if (e->capture != nullptr) return result(forbid(e->capture));
  while (e->done < e->recorded)
    if (!step(nullptr)) fault("", 0, "an event is waited for that no stream reaches");
  return result(cudaSuccess);
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  const Lock lock(mutex);
  if (e->capture != nullptr) return result(forbid(e->capture));
  if (e->done < e->recorded) step(nullptr);
  return e->done < e->recorded ? cudaErrorNotReady : result(cudaSuccess);
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end) {
  const Lock lock(mutex);
  for (cudaEvent_t e : {begin, end}) {
    if (!e->timed || e->recorded == 0) return result(cudaErrorInvalidResourceHandle);
    if (e->done < e->recorded) return cudaErrorNotReady;
  }
  *ms = std::chrono::duration<float, std::milli>(end->at - begin->at).count();
  return result(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
  *exec = new GraphExec{std::make_shared<const std::vector<Node>>(graph->nodes)};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s) {
  const Lock lock(mutex);
  if (s != nullptr && s->capture != nullptr) return result(forbid(s->capture));
  return result(add(s, [nodes = exec->nodes] { replay(*nodes); }));
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributesOf(cudaFuncAttributes *out) {
  out->binaryVersion = 90;
  return result(options().capability / 10 == 8 || options().capability / 10 == 9
                    ? cudaSuccess
                    : cudaErrorNoKernelImageForDevice);
}
cudaError_t cudaFuncSetAttributeOf(const void *kernel, cudaFuncAttribute, int value) {
  const Lock lock(mutex);
  if (value > kMaxShared) return result(cudaErrorInvalidValue);
  for (auto &s : machine().shared_limits)
    if (s.first == kernel) return s.second = value, cudaSuccess;
  machine().shared_limits.push_back({kernel, value});
  return cudaSuccess;
}
