// Streams, memory and the thread pool.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "device/cpus.h"
#include "device/pool.h"
#include "internal.h"
#include "test/check.h"

namespace {

ced_stream *open(ced_kind kind, int threads) {
  ced_stream *s = nullptr;
  ced_err err{};
  REQUIRE_EQ(ced_stream_open(kind, 0, threads, 0, &s, &err), CED_OK);
  return s;
}

}  // namespace

TEST("device: parallel_for visits every item once, whatever the threads and the grain") {
  for (int threads : {1, 2, 3, 8}) {
    ced_stream *s = open(CED_CPU, threads);
    CHECK_EQ(ced_stream_threads(s), threads);
    for (int64_t n : {0, 1, 2, 7, 64, 1000}) {
      for (int64_t grain : {1, 3, 64, 5000}) {
        CONTEXT(threads << " threads, " << n << " items, grain " << grain);
        std::vector<int> visits(static_cast<size_t>(n));
        std::atomic<int> bad{0};
        ced::parallel_for(s, n, grain, [&](int64_t begin, int64_t end, int worker) {
          if (worker < 0 || worker >= threads || end - begin > grain || begin % grain != 0) bad++;
          for (int64_t i = begin; i < end; i++) visits[static_cast<size_t>(i)]++;
        });
        CHECK_EQ(bad.load(), 0);
        for (int v : visits) CHECK_EQ(v, 1);
      }
    }
    ced_stream_close(s);
  }
}

TEST("device: thousands of short jobs, back to back and with pauses, lose no item") {
  ced_stream *s = open(CED_CPU, 4);
  int64_t sum = 0;
  std::vector<int64_t> parts(16);
  for (int job = 0; job < 3000; job++) {
    ced::parallel_for(s, 16, 1,
                      [&](int64_t begin, int64_t, int) { parts[static_cast<size_t>(begin)] = job; });
    for (int64_t p : parts) sum += p;
    if (job % 100 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  CHECK_EQ(sum, 16LL * 2999 * 3000 / 2);
  ced_stream_close(s);
}

TEST("device: with more threads than processors every thread gets its turn") {
  ced::Pool pool(5, 2, {});
  std::vector<std::atomic<int>> pieces(5);
  const auto body = [](void *ctx, int64_t, int64_t, int worker) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    (*static_cast<std::vector<std::atomic<int>> *>(ctx))[static_cast<size_t>(worker)]++;
  };
  const auto busy = [&] {
    return std::count_if(pieces.begin(), pieces.end(), [](const auto &n) { return n.load() > 0; });
  };
  for (int job = 0; job < 2000 && busy() < 5; job++) {
    pool.run(10, 1, body, &pieces);
    if (job % 8 == 7)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // long enough to fall asleep
  }
  CHECK_EQ(busy(), 5);
}

TEST("device: pinned threads do the same work, more of them than processors too") {
  for (int threads : {0, 2, 8}) {
    ced_stream *s = nullptr;
    ced_err err{};
    REQUIRE_EQ(ced_stream_open(CED_CPU, 0, threads, CED_PIN, &s, &err), CED_OK);
    std::atomic<int64_t> sum{0};
    for (int job = 0; job < 50; job++)
      ced::parallel_for(s, 100, 7, [&](int64_t begin, int64_t end, int) { sum += end - begin; });
    CHECK_EQ(sum.load(), 50 * 100);
    ced_stream_close(s);
  }
}

TEST("device: threads by default are those of the affinity mask, at most the quota rounded up") {
  CHECK(ced::usable_cpus() >= 1);
  if (!ced::allowed_cpus().empty()) CHECK(ced::usable_cpus() <= static_cast<int>(ced::allowed_cpus().size()));
  ced_stream *s = open(CED_CPU, 0);
  CHECK_EQ(ced_stream_threads(s), ced::usable_cpus());
  ced_stream_close(s);
}

TEST("device: the quota is the least of the process's control group and those above it") {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / ("ced_quota_" + std::to_string(getpid()));
  const auto write = [&](const char *file, const char *text) {
    fs::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text;
  };
  write("cpu.max", "max 100000\n");
  write("a/cpu.max", "150000 100000\n");
  write("a/b/cpu.max", "400000 100000\n");
  write("cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  write("cpu,cpuacct/one/cpu.cfs_quota_us", "25000\n");
  write("cpu,cpuacct/one/cpu.cfs_period_us", "50000\n");
  write("cpu/cpu.cfs_quota_us", "300000\n");
  write("cpu/cpu.cfs_period_us", "100000\n");
  const struct {
    const char *memberships;
    double quota;
  } cases[] = {
      {"", 0},
      {"0::/\n", 0},
      {"0::/a\n", 1.5},
      {"0::/a/b\n", 1.5},
      {"0::/not/visible/here\n", 0},
      {"3:cpu,cpuacct:/one\n0::/\n", 0.5},
      {"4:memory:/a\n3:cpu:/of/the/host\n", 3},
      {"3:cpuset:/\n2:cpuacct:/\n", 0},
      {"no colons\n", 0},
  };
  for (const auto &c : cases) {
    CONTEXT(c.memberships);
    CHECK_EQ(ced::cpu_quota(c.memberships, root.string()), c.quota);
  }
  fs::remove_all(root);
}

TEST("device: two streams run at the same time from two threads") {
  std::atomic<int64_t> total{0};
  const auto use = [&] {
    ced_stream *s = nullptr;
    if (ced_stream_open(CED_CPU, 0, 2, 0, &s, nullptr) != CED_OK) return;
    for (int job = 0; job < 300; job++)
      ced::parallel_for(s, 8, 1,
                        [&](int64_t, int64_t, int) { total.fetch_add(1, std::memory_order_relaxed); });
    ced_stream_close(s);
  };
  std::thread other(use);
  use();
  other.join();
  CHECK_EQ(total.load(), 2 * 300 * 8);
}

TEST("device: a stream that did no work closes") {
  for (int threads : {0, 1, 16}) ced_stream_close(open(CED_CPU, threads));
  ced_stream_close(open(CED_REF, 4));
  ced_stream_close(nullptr);
}

TEST("device: memory is 64-byte aligned, and bytes come back as they went in") {
  for (ced_kind kind : {CED_REF, CED_CPU}) {
    ced_stream *s = open(kind, 1);
    ced_err err{};
    uint64_t a = 0, b = 0, none = 0;
    REQUIRE_EQ(ced_alloc(s, 1000, &a, &err), CED_OK);
    REQUIRE_EQ(ced_alloc(s, 1000, &b, &err), CED_OK);
    REQUIRE_EQ(ced_alloc(s, 0, &none, &err), CED_OK);
    CHECK_EQ(a % 64 + b % 64 + none % 64, 0);
    std::vector<char> in(1000, 'x'), out(1000);
    CHECK_EQ(ced_upload(s, a, in.data(), 1000, &err), CED_OK);
    CHECK_EQ(ced_fill(s, a + 10, 7, 5, &err), CED_OK);
    CHECK_EQ(ced_copy(s, b, a, 1000, &err), CED_OK);
    CHECK_EQ(ced_download(s, out.data(), b, 1000, &err), CED_OK);
    CHECK_EQ(ced_stream_sync(s, &err), CED_OK);
    memset(&in[10], 7, 5);
    CHECK_BITS(out.data(), in.data(), in.size());
    CHECK_EQ(ced_upload(s, 0, nullptr, 0, &err), CED_OK);
    for (uint64_t p : {a, b, none}) ced_free(s, p);
    ced_stream_close(s);
  }
}

TEST("device: what was uploaded may be overwritten at once, from page-locked memory too") {
  for (ced_kind kind : {CED_CPU, CED_CUDA}) {
    if (ced_device_count(kind) == 0) continue;
    ced_stream *s = open(kind, 1);
    ced_err err{};
    constexpr uint64_t kMost = (4 << 20) + 16;
    uint64_t at = 0, locked = 0;
    REQUIRE_EQ(ced_alloc(s, kMost, &at, &err), CED_OK);
    REQUIRE_EQ(ced_host_alloc(s, kMost, &locked, &err), CED_OK);
    std::vector<char> pageable(kMost), back(kMost);
    for (char *from : {pageable.data(), reinterpret_cast<char *>(locked)}) {
      for (uint64_t n : {uint64_t{64}, uint64_t{1} << 20, kMost}) {
        memset(from, 'x', n);
        REQUIRE_EQ(ced_upload(s, at, from, n, &err), CED_OK);
        memset(from, 'y', n);
        REQUIRE_EQ(ced_download(s, back.data(), at, n, &err), CED_OK);
        CHECK_EQ(std::count(back.begin(), back.begin() + static_cast<int64_t>(n), 'x'), n);
      }
    }
    ced_free(s, at);
    ced_host_free(s, locked);
    ced_stream_close(s);
  }
}

TEST("device: misuse is one clear sentence and changes nothing") {
  ced_stream *s = open(CED_CPU, 1), *out = s;
  ced_err err{};
  const auto message = [&](int rc, int want) {
    CHECK_EQ(rc, want);
    CHECK_EQ(err.code, want);
    return std::string(err.what);
  };
  CHECK_EQ(message(ced_stream_open(static_cast<ced_kind>(7), 0, 0, 0, &out, &err), CED_EINVAL),
           "stream: kind 7 is none of 0 (ref), 1 (cpu), 2 (cuda)");
  CHECK_EQ(message(ced_stream_open(CED_CPU, 3, 0, 0, &out, &err), CED_EINVAL),
           "stream: device 3 is outside 0..0");
  CHECK_EQ(message(ced_stream_open(CED_CPU, 0, -1, 0, &out, &err), CED_EINVAL),
           "stream: threads = -1 is outside 0..1024");
  CHECK_EQ(message(ced_stream_open(CED_CPU, 0, 1, 6, &out, &err), CED_EINVAL),
           "stream: flags = 0x6 is unknown");
  CHECK_EQ(message(ced_upload(s, 0, &err, 8, &err), CED_EINVAL), "upload: dst is missing for 8 bytes");
  CHECK_EQ(message(ced_download(s, nullptr, 64, 8, &err), CED_EINVAL),
           "download: dst is missing for 8 bytes");
  uint64_t addr = 5;
  CHECK_EQ(message(ced_alloc(s, UINT64_MAX, &addr, &err), CED_ENOMEM),
           "alloc: out of host memory for 18446744073709551615 bytes");
  CHECK_EQ(addr, 5);
  CHECK(out == s);
  if (ced_device_count(CED_CUDA) == 0) {
    CHECK_EQ(message(ced_stream_open(CED_CUDA, 0, 0, 0, &out, &err), CED_ENODEV),
             "no CUDA device: this build has no CUDA kernels; use --backend cpu");
  }
  ced_stream_close(s);
}

TEST("device: the digest of ced.h is a SHA-256") { CHECK_EQ(strlen(ced_abi()), 64); }
