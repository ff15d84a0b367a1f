// pool.h: the threads of a CPU stream. They live as long as the stream; running a job allocates nothing.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "internal.h"

namespace ced {

// How long a thread looks for what comes next before it sleeps. Kernels follow each other within microseconds, so
// looking is cheap; but who looks holds a core. A thread that lost its core meanwhile knows that others want it, and
// has little patience for the next hundred times.
class Patience {
 public:
  using Clock = std::chrono::steady_clock;
  // Whether done() became true in time.
  template <class F>
  bool until(const F &done);

 private:
  static constexpr std::chrono::microseconds kLeast{2}, kMost{100}, kLost{20}, kRegain{1};
  Clock::duration limit_ = kMost;
};

// A job is n items cut into pieces of `grain`. Every thread has a share of neighbouring pieces, the same in every job
// of that size; who is through with its own takes pieces of others. The caller works too and closes the job when
// no piece is left, so a thread that wakes too late costs nothing.
class Pool {
 public:
  // threads >= 1 includes the caller. cpus: how many can run at once; no more are woken.
  // pin: processors for the threads, used in turn; the caller's, the first, is only left free. Empty: not bound.
  // Throws std::system_error if a thread cannot be started.
  Pool(int threads, int cpus, const std::vector<int> &pin);
  ~Pool();
  Pool(const Pool &) = delete;
  Pool &operator=(const Pool &) = delete;

  int threads() const { return threads_; }
  void run(int64_t n, int64_t grain, Body body, void *ctx);

 private:
  // What one thread writes often lies on cache lines of its own.
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  struct alignas(64) Seat {
    std::atomic<bool> inside{false};  // may be reading the job
    alignas(64) std::atomic<bool> asleep{false};
    std::mutex mutex;
    std::condition_variable wake;
    std::thread thread;
  };
  // The gate: job number in the upper bits, below it how many threads take part, 0 = closed.
  static constexpr uint64_t kParts = 0xFFFF, kJob = 0x10000;

  void work(int worker, int cpu);
  uint64_t wait(int worker, uint64_t seen, Patience *patience);
  void take(int worker);
  void wake(int parts, int count);
  void join(int parts);
  void stop();

  const int threads_, cpus_;
  uint32_t turn_ = 0;
  struct {
    int64_t n, grain;
    int shares;
    Body body;
    void *ctx;
  } job_{};
  std::unique_ptr<Share[]> shares_;
  std::unique_ptr<Seat[]> seats_;
  Patience patience_;  // the caller's
  alignas(64) std::atomic<uint64_t> gate_{0};
  alignas(64) std::atomic<int> asleep_{0};
  std::atomic<bool> caller_asleep_{false}, stopping_{false};
  std::mutex mutex_;
  std::condition_variable emptied_;
};

}  // namespace ced
