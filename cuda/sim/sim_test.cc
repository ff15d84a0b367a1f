// The simulated device itself: faults put into kernels on purpose are caught, right ones pass under every seed, graphs
// keep what they were told.
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "device/gpu.h"
#include "sim/device.h"
#include "test/check.h"

#if defined(__SANITIZE_THREAD__)
// Every case is a process: none waits a second for races at its end.
extern "C" __attribute__((visibility("default"))) const char *__tsan_default_options() {
  return "atexit_sleep_ms=0";
}
#endif

namespace {

using namespace ced;

// A stream with some memory, in a child process or here.
struct Device {
  ced_stream *s = nullptr;
  ced_err err{};
  explicit Device(int number = 0) { ced_stream_open(CED_CUDA, number, 0, 0, &s, &err); }
  uint64_t alloc(uint64_t bytes) {
    uint64_t p = 0;
    ced_alloc(s, bytes, &p, &err);
    return p;
  }
  template <class T>
  uint64_t put(const std::vector<T> &v) {
    const uint64_t p = alloc(v.size() * sizeof(T));
    ced_upload(s, p, v.data(), v.size() * sizeof(T), &err);
    return p;
  }
  template <class T>
  std::vector<T> get(uint64_t p, size_t n) {
    std::vector<T> v(n);
    ced_download(s, v.data(), p, n * sizeof(T), &err);
    return v;
  }
};

enum Fault { kNone, kMissing, kDivergent };

// Sum of 256 floats: warps, then the first warp.
__global__ void sum_kernel(uint64_t x, uint64_t out, Fault fault) {
  SHARED(float, part, 8);
  const float v = warp_sum(at<const float>(x)[threadIdx.x]);
  if (lane_id() == 0) part[warp_id()] = v;
  if (fault == kNone || (fault == kDivergent && warp_id() == 0)) __syncthreads();
  if (warp_id() == 0) {
    const float sum = warp_sum(lane_id() < 8 ? part[lane_id()] : 0);
    if (threadIdx.x == 0) *at<float>(out) = sum;
  }
  if (fault == kDivergent) __syncthreads();
}
bool sum(Fault fault) {
  Device d;
  const uint64_t x = d.put(std::vector<float>(256, 1)), out = d.alloc(4);
  launch(d.s, &d.err, "sum", {1, 256}, sum_kernel, x, out, fault);
  return d.get<float>(out, 1)[0] == 256;
}

// Every lane takes its neighbour's value out of shared memory.
__global__ void exchange_kernel(uint64_t out, Fault fault) {
  SHARED(int, box, 32);
  box[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (fault == kNone) __syncwarp();
  at<int>(out)[threadIdx.x] = box[31 - threadIdx.x];
}
bool exchange(Fault fault) {
  Device d;
  const uint64_t out = d.alloc(128);
  launch(d.s, &d.err, "exchange", {1, 32}, exchange_kernel, out, fault);
  const auto v = d.get<int>(out, 32);
  for (int i = 0; i < 32; i++)
    if (v[static_cast<size_t>(i)] != 31 - i) return false;
  return true;
}

__global__ void copy_kernel(uint64_t x, uint64_t out, Fault fault) {
  SHARED(uint32_t, box, 128);
  ptx::cp_async16(box + 4 * threadIdx.x, at<const uint32_t>(x) + 4 * threadIdx.x);
  ptx::cp_async_commit();
  if (fault == kNone) ptx::cp_async_wait<0>();
  __syncwarp();
  for (unsigned i = threadIdx.x; i < 128; i += 32) at<uint32_t>(out)[i] = box[127 - i];
}
__global__ void bulk_kernel(uint64_t x, uint64_t out, Fault fault) {
  SHARED(uint32_t, box, 128);
  SHARED(uint64_t, bar, 1);
  if (threadIdx.x == 0) ptx::mbarrier_init(bar, 1), ptx::mbarrier_visible();
  __syncthreads();
  for (uint32_t phase = 0; phase < 3; phase++) {  // the last one stays
    if (threadIdx.x == 0) {
      ptx::mbarrier_arrive_expect(bar, 512);
      ptx::bulk_load(box, at<const uint32_t>(x), 512, bar);
    }
    if (fault == kNone || phase < 2) ptx::mbarrier_wait(bar, phase & 1);
    for (unsigned i = threadIdx.x; i < 128; i += 32) at<uint32_t>(out)[i] = box[127 - i];
    __syncthreads();
  }
}
bool copies(void (*kernel)(uint64_t, uint64_t, Fault), Fault fault) {
  Device d;
  std::vector<uint32_t> in(128);
  for (uint32_t i = 0; i < 128; i++) in[i] = i;
  const uint64_t x = d.put(in), out = d.alloc(512);
  launch(d.s, &d.err, "copy", {1, 32}, kernel, x, out, fault);
  const auto v = d.get<uint32_t>(out, 128);
  for (uint32_t i = 0; i < 128; i++)
    if (v[i] != 127 - i) return false;
  return true;
}

// One mistake each.
enum Mistake {
  kRight,
  kMask,
  kEnded,
  kSharedEnd,
  kGlobalEnd,
  kGlobalStart,
  kUnaligned,
  kUnalignedCopy,
  kHostMemory,
  kLost
};
__global__ void mistake_kernel(uint64_t out, uint64_t host, Mistake m) {
  SHARED(int, box, 32);
  const int t = static_cast<int>(threadIdx.x);
  int *p = at<int>(out);
  if (m == kEnded && t == 5) return;
  const unsigned mask = m == kMask ? 0xFFFFu : kAllLanes;
  const int v = __shfl_xor_sync(mask, t, 1);
  box[m == kSharedEnd ? t + 1 : t] = v;
  if (m == kUnaligned) load16(p + 1);
  if (m == kUnalignedCopy) ptx::cp_async16(box, p + 1);
  if (m == kHostMemory) p = at<int>(host);
  if (m == kLost) p = at<int>(out + 4096);
  __syncthreads();
  p[m == kGlobalEnd ? t + 1 : m == kGlobalStart ? t - 1 : t] = box[t];
}
bool mistake(Mistake m) {
  Device d;
  static int host[32];
  const uint64_t out = d.alloc(128);
  launch(d.s, &d.err, "mistake", {1, 32}, mistake_kernel, out, reinterpret_cast<uint64_t>(host), m);
  const auto v = d.get<int>(out, 32);
  for (int i = 0; i < 32; i++)
    if (v[static_cast<size_t>(i)] != (i ^ 1)) return false;
  return true;
}

__global__ void add_kernel(uint64_t x, int by) { at<int>(x)[threadIdx.x] += by; }

TEST("sim: timed events tell how long what lies between them took; others, and unfinished ones, do not") {
  Device d;
  ced_event *from = nullptr, *to = nullptr, *plain = nullptr;
  REQUIRE_EQ(ced_event_open_timed(d.s, &from, &d.err), CED_OK);
  REQUIRE_EQ(ced_event_open_timed(d.s, &to, &d.err), CED_OK);
  REQUIRE_EQ(ced_event_open(d.s, &plain, &d.err), CED_OK);
  const uint64_t x = d.put(std::vector<int>(64, 0));
  double seconds = -1;
  CHECK_EQ(ced_event_elapsed(from, to, &seconds, &d.err), CED_EDEVICE);  // never recorded
  ced_event_record(d.s, from, &d.err);
  launch(d.s, &d.err, "add", {1, 64}, add_kernel, x, 1);
  ced_event_record(d.s, to, &d.err), ced_event_record(d.s, plain, &d.err);
  CHECK_EQ(ced_event_elapsed(from, to, &seconds, &d.err), CED_EDEVICE);
  REQUIRE_EQ(ced_stream_sync(d.s, &d.err), CED_OK);
  CHECK_EQ(ced_event_elapsed(from, to, &seconds, &d.err), CED_OK);
  CHECK(seconds > 0);
  CHECK_EQ(ced_event_elapsed(from, plain, &seconds, &d.err), CED_EDEVICE);
  CHECK_EQ(ced_event_elapsed(from, to, nullptr, &d.err), CED_EINVAL);
  ced_event_close(from), ced_event_close(to), ced_event_close(plain);
  ced_free(d.s, x);
  ced_stream_close(d.s);
}

TEST("sim: the probes of a device read every byte and count their products") {
  Device d;
  std::vector<uint32_t> words((1 << 16) + 12);
  uint32_t want = 0;
  for (size_t i = 0; i < words.size(); i++) want += words[i] = static_cast<uint32_t>(i * 2654435761u);
  const uint64_t x = d.put(words);
  uint64_t sum = 0;
  CHECK_EQ(ced_probe_read(d.s, x, words.size() * 4, &sum, &d.err), CED_OK);
  CHECK_EQ(sum, want);
  CHECK_EQ(ced_probe_read(d.s, x, words.size() * 4, nullptr, &d.err), CED_OK);
  CHECK_EQ(ced_probe_read(d.s, x + 4, 16, &sum, &d.err), CED_EINVAL);
  for (int bf16 : {0, 1}) {
    double one = 0, three = 0;
    CHECK_EQ(ced_probe_multiply(d.s, bf16, 1, &one, &d.err), CED_OK);
    CHECK_EQ(ced_probe_multiply(d.s, bf16, 3, &three, &d.err), CED_OK);
    CHECK(one > 0);
    CHECK_EQ(three, 3 * one);
  }
  CHECK_EQ(ced_stream_sync(d.s, &d.err), CED_OK);
  ced_free(d.s, x);
  ced_stream_close(d.s);
}

// Two streams, the second must wait for the first.
bool two_streams(Fault fault) {
  Device a, b;
  const uint64_t x = a.put(std::vector<int>(64, 1));
  ced_event *e = nullptr;
  ced_event_open(a.s, &e, &a.err);
  launch(a.s, &a.err, "add", {1, 64}, add_kernel, x, 1);
  ced_event_record(a.s, e, &a.err);
  if (fault == kNone) ced_event_wait(b.s, e, &b.err);
  return b.get<int>(x, 1)[0] == 2;
}

// Blocks that count each other, one at a time or not.
__global__ void meet_kernel(uint64_t counter) {
  auto *n = at<uint32_t>(counter);
  if (threadIdx.x == 0) {
    atomicAdd(n, 1u);
    while (ptx::load_acquire(n) < gridDim.x) __nanosleep(100);
  }
}

// Mistakes that change no result here, and that only a sanitizer sees.
enum Silent {
  kClean,
  kBlocks,        // two blocks write a word
  kWarps,         // two warps write a word, without a barrier between them
  kReadShared,    // past the end of an array
  kFarShared,     // written beyond the guard behind an array
  kReadGlobal,    // past the end of an allocation
  kFarGlobal,     // written beyond the guard behind an allocation
  kUnalignedLoad  // of 16 bytes, not through load16
};
__global__ void silent_kernel(uint64_t out, Silent m) {
  SHARED(int, box, 64);
  const int t = static_cast<int>(threadIdx.x);
  int *p = at<int>(out) + 64 * blockIdx.x;
  box[t] = t;
  int extra = 0;
  if (m == kWarps) box[t & 31] = t & 31;
  if (m == kReadShared) extra = box[64 + t];
  if (m == kFarShared) box[64 + 64 + t] = 0;
  if (m == kReadGlobal) extra = p[128 + t];
  if (m == kFarGlobal) p[128 + 256 + t] = 0;
  if (m == kUnalignedLoad) extra = reinterpret_cast<const int4 *>(p + 1)->x;
  if (m == kBlocks) at<int>(out)[t] = t;
  p[t] = extra == 12345 ? extra : box[t];
}
bool silent(Silent m) {
  Device d;
  const uint64_t out = d.alloc(512);
  launch(d.s, &d.err, "silent", {2, 64}, silent_kernel, out, m);
  const auto v = d.get<int>(out, 128);
  for (int i = 0; i < 128; i++)
    if (v[static_cast<size_t>(i)] != i % 64) return false;
  return true;
}

struct Outcome {
  int status;  // 0 right, 1 wrong, 86 a fault, else it crashed
  std::string text;
};
// Runs f in a process of its own.
template <class F>
Outcome outcome(long seed, const F &f) {
  int fds[2];
  if (pipe(fds) != 0) return {-1, "no pipe"};
  const pid_t child = fork();
  if (child == 0) {
    dup2(fds[1], 2);
    close(fds[0]);
    alarm(20);
    sim::options().seed = seed, sim::options().threads = 1;
    _exit(f() ? 0 : 1);
  }
  close(fds[1]);
  Outcome o{-1, ""};
  char buffer[512];
  for (ssize_t n; (n = read(fds[0], buffer, sizeof buffer)) > 0;)
    o.text.append(buffer, static_cast<size_t>(n));
  close(fds[0]);
  int status = 0;
  waitpid(child, &status, 0);
  o.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return o;
}
constexpr long kSeeds = 8;
template <class F>
void always_right(const char *what, const F &f) {
  for (long seed = 0; seed < kSeeds; seed++) {
    CONTEXT(what << " seed=" << seed);
    const Outcome o = outcome(seed, f);
    CHECK_EQ(o.status, 0);
    CHECK_EQ(o.text, "");
  }
}
// Wrong or a fault under some of the seeds.
template <class F>
void caught(const char *what, const F &f) {
  int found = 0;
  for (long seed = 0; seed < kSeeds; seed++) found += outcome(seed, f).status != 0;
  CONTEXT(what);
  CHECK(found > 0);
}

// A sanitizer stops it under every seed, and names the kernel's line.
template <class F>
[[maybe_unused]] void always_named(const char *what, const char *says, const F &f) {
  for (long seed : {0L, 1L, 3L}) {
    const Outcome o = outcome(seed, f);
    CONTEXT(what << " seed=" << seed << ": " << o.text);
    CHECK(o.status != 0);
    CHECK(o.text.find(says) != std::string::npos && o.text.find("sim_test.cc:") != std::string::npos);
  }
}

}  // namespace

TEST("sim: right kernels are right under every seed") {
  always_right("sum", [] { return sum(kNone); });
  always_right("exchange", [] { return exchange(kNone); });
  always_right("cp.async", [] { return copies(copy_kernel, kNone); });
  always_right("bulk copy", [] { return copies(bulk_kernel, kNone); });
  always_right("mistake", [] { return mistake(kRight); });
  always_right("streams", [] { return two_streams(kNone); });
  always_right("silent", [] { return silent(kClean); });
}

#if defined(__SANITIZE_THREAD__)
TEST("sim: TSan names the line of a race, whatever the schedule") {
  always_named("two blocks", "data race", [] { return silent(kBlocks); });
  always_named("two warps", "data race", [] { return silent(kWarps); });
  always_named("__syncthreads", "data race", [] { return sum(kMissing); });
  always_named("__syncwarp", "data race", [] { return exchange(kMissing); });
}
#endif

#if defined(__SANITIZE_ADDRESS__)
TEST("sim: ASan and UBSan name the line that goes past an end or off its alignment, where no guard is hit") {
  always_named("read shared", "heap-buffer-overflow", [] { return silent(kReadShared); });
  always_named("write shared", "AddressSanitizer", [] { return silent(kFarShared); });
  always_named("read global", "heap-buffer-overflow", [] { return silent(kReadGlobal); });
  always_named("write global", "AddressSanitizer", [] { return silent(kFarGlobal); });
  always_named("load", "misaligned address", [] { return silent(kUnalignedLoad); });
}
#endif

TEST("sim: what the hardware leaves to chance is caught: barriers, waits and events that are missing") {
  caught("__syncthreads", [] { return sum(kMissing); });
  caught("__syncwarp", [] { return exchange(kMissing); });
  caught("cp.async wait", [] { return copies(copy_kernel, kMissing); });
  caught("mbarrier wait", [] { return copies(bulk_kernel, kMissing); });
  caught("event", [] { return two_streams(kMissing); });
}

TEST("sim: a fault names kernel, line and thread") {
  const struct {
    Mistake m;
    const char *says;
  } cases[] = {{kMask, "sim_test.cc:"},
               {kEnded, "a lane ends"},
               {kUnaligned, "not aligned"},
               {kUnalignedCopy, "not aligned"},
               {kHostMemory, "neither device nor pinned"},
               {kLost, "neither device nor pinned"}};
  for (long seed : {0L, 1L, 3L}) {
    for (const auto &c : cases) {
      const Outcome o = outcome(seed, [&] { return mistake(c.m); });
      CONTEXT("mistake " << c.m << " seed=" << seed << ": " << o.text);
      CHECK_EQ(o.status, 86);
      CHECK(o.text.find("mistake") != std::string::npos && o.text.find(c.says) != std::string::npos);
    }
    const Outcome o = outcome(seed, [] { return sum(kDivergent); });
    CONTEXT("divergent seed=" << seed << ": " << o.text);
    CHECK_EQ(o.status, 86);
    CHECK(o.text.find("divergent __syncthreads") != std::string::npos);
  }
}

TEST("sim: writes past the ends of shared and device memory are caught") {
  for (Mistake m : {kSharedEnd, kGlobalEnd, kGlobalStart}) {
    const Outcome o = outcome(2, [&] { return mistake(m); });
    CONTEXT("mistake " << m << ": " << o.text);
    CHECK(o.status != 0);  // 86, or what a sanitizer ends with
    CHECK(o.text.find("past the") != std::string::npos || o.text.find("past its") != std::string::npos ||
          o.text.find("past their") != std::string::npos || o.text.find("before its") != std::string::npos ||
          o.text.find("overflow") != std::string::npos);
  }
}

TEST("sim: host code that looks into device memory is caught") {
  const Outcome o = outcome(2, [] {
    Device d;
    return *at<int>(d.alloc(64)) == 0;
  });
  CHECK_EQ(o.status, 86);
  CHECK(o.text.find("host code looks into device memory") != std::string::npos);
}

TEST("sim: blocks may wait for each other when all are resident, and only then") {
  const auto run = [](unsigned blocks, bool resident) {
    Device d;
    const uint64_t n = d.put(std::vector<uint32_t>{0});
    const int rc = launch(d.s, &d.err, "meet", {blocks, 32, 0, resident}, meet_kernel, n);
    return rc == CED_OK && d.get<uint32_t>(n, 1)[0] == blocks;
  };
  always_right("resident", [&] { return run(6, true); });
  CHECK_EQ(outcome(2, [&] { return run(4096, true); }).status, 1);  // more than fit at once: refused
}

TEST("sim: a graph replays the arguments of its capture") {
  Device d;
  const uint64_t x = d.put(std::vector<int>(64, 0));
  int by = 5;
  REQUIRE_EQ(ced_capture_begin(d.s, &d.err), CED_OK);
  launch(d.s, &d.err, "add", {1, 64}, add_kernel, x, by);
  by = 100;  // stale: the graph has 5
  launch(d.s, &d.err, "add", {1, 64}, add_kernel, x, 1);
  ced_graph *g = nullptr;
  REQUIRE_EQ(ced_capture_end(d.s, &g, &d.err), CED_OK);
  CHECK_EQ(d.get<int>(x, 1)[0], 0);
  for (int i = 1; i <= 3; i++) {
    CHECK_EQ(ced_graph_launch(d.s, g, &d.err), CED_OK);
    CHECK_EQ(d.get<int>(x, 64)[63], 6 * i);
  }
  ced_graph_close(g);
  ced_free(d.s, x);
  ced_stream_close(d.s);
}

TEST("sim: what a capture forbids fails, and the capture with it") {
  Device d;
  const uint64_t x = d.put(std::vector<int>(64, 0));
  int word = 0;
  uint64_t p = 0;
  const std::vector<std::function<int()>> calls = {[&] { return ced_stream_sync(d.s, &d.err); },
                                                   [&] { return ced_alloc(d.s, 64, &p, &d.err); },
                                                   [&] { return ced_upload(d.s, x, &word, 4, &d.err); },
                                                   [&] { return ced_download(d.s, &word, x, 4, &d.err); }};
  for (size_t i = 0; i < calls.size(); i++) {
    CONTEXT("call " << i);
    REQUIRE_EQ(ced_capture_begin(d.s, &d.err), CED_OK);
    CHECK(calls[i]() != CED_OK);
    ced_graph *g = nullptr;
    if (ced_capture_end(d.s, &g, &d.err) == CED_OK) ced_graph_close(g);  // refused before CUDA was asked
  }
  CHECK_EQ(ced_stream_sync(d.s, &d.err), CED_OK);
  ced_free(d.s, x);
  ced_stream_close(d.s);
}

TEST("sim: a capture is ended by the thread that began it") {
  Device d;
  ced_graph *g = nullptr;
  REQUIRE_EQ(ced_capture_begin(d.s, &d.err), CED_OK);
  std::thread([&] { CHECK_EQ(ced_capture_end(d.s, &g, &d.err), CED_EDEVICE); }).join();
  CHECK_EQ(ced_capture_end(d.s, &g, &d.err), CED_OK);
  ced_graph_close(g);
  ced_stream_close(d.s);
}

TEST("sim: streams that join a capture must be waited for before it ends") {
  for (bool joined : {true, false}) {
    Device a, b;
    const uint64_t x = a.put(std::vector<int>(64, 0));
    ced_event *fork = nullptr, *join = nullptr;
    ced_event_open(a.s, &fork, &a.err), ced_event_open(b.s, &join, &b.err);
    REQUIRE_EQ(ced_capture_begin(a.s, &a.err), CED_OK);
    ced_event_record(a.s, fork, &a.err);
    ced_event_wait(b.s, fork, &b.err);
    launch(b.s, &b.err, "add", {1, 64}, add_kernel, x, 7);
    ced_event_record(b.s, join, &b.err);
    if (joined) ced_event_wait(a.s, join, &a.err);
    ced_graph *g = nullptr;
    CHECK_EQ(ced_capture_end(a.s, &g, &a.err), joined ? CED_OK : CED_EDEVICE);
    if (g != nullptr) {
      ced_graph_launch(a.s, g, &a.err);
      CHECK_EQ(a.get<int>(x, 1)[0], 7);
      ced_graph_close(g);
    }
    ced_event_close(fork), ced_event_close(join);
    ced_free(a.s, x);
    ced_stream_close(a.s), ced_stream_close(b.s);
  }
}
