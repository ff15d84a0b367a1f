// pool.h: the threads of a CPU stream. They live as long as the stream; running a job allocates nothing.
#pragma once
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "internal.h"

namespace ced {

// A job is n items cut into pieces; threads take pieces from a shared counter. The caller works too and
// closes the gate when the counter is used up, so a thread that wakes too late costs nothing.
class Pool {
 public:
  // threads >= 1 includes the caller. Throws std::system_error if a thread cannot be started.
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool &) = delete;
  Pool &operator=(const Pool &) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }
  void run(int64_t n, int64_t grain, Body body, void *ctx);

 private:
  // The gate: job number in the upper bits, then whether the job is open, then the count of workers inside.
  static constexpr uint64_t kInside = 0xFFFF, kOpen = 0x10000, kJob = 0x20000;

  void work(int worker);
  void take(int worker);
  bool enter(uint64_t *seen);
  void leave();
  void stop();

  struct {
    int64_t n, grain;
    Body body;
    void *ctx;
  } job_{};
  std::atomic<int64_t> next_{0};
  std::atomic<uint64_t> gate_{0};
  std::atomic<int> asleep_{0};
  std::atomic<bool> caller_asleep_{false}, stopping_{false};
  std::mutex mutex_;
  std::condition_variable opened_, emptied_;
  std::vector<std::thread> workers_;
};

}  // namespace ced
