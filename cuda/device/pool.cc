#include "device/pool.h"

#include <chrono>

namespace ced {
namespace {

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Spins for at most 2 us: a kernel follows the one before it after about that time or much later.
template <class F>
bool spin_until(const F &done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(2);
  do {
    for (int i = 0; i < 8; i++) {
      if (done()) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace

Pool::Pool(int threads) {
  workers_.reserve(static_cast<size_t>(threads - 1));
  try {
    for (int i = 1; i < threads; i++) workers_.emplace_back([this, i] { work(i); });
  } catch (...) {
    stop();
    throw;
  }
}

Pool::~Pool() { stop(); }

void Pool::stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  opened_.notify_all();
  for (auto &w : workers_) w.join();
  workers_.clear();
}

void Pool::run(int64_t n, int64_t grain, Body body, void *ctx) {
  job_ = {n, grain, body, ctx};
  next_.store(0, std::memory_order_relaxed);
  const int64_t helpers = (n + grain - 1) / grain - 1;  // the caller takes one piece
  if (workers_.empty() || helpers <= 0) {
    take(0);
    return;
  }
  gate_.fetch_add(kJob | kOpen);
  if (asleep_.load() > 0) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
    }  // whoever counts as asleep is waiting by now
    if (helpers < asleep_.load()) {
      for (int64_t i = 0; i < helpers; i++) opened_.notify_one();
    } else {
      opened_.notify_all();
    }
  }
  take(0);
  gate_.fetch_and(~kOpen);
  const auto empty = [this] { return (gate_.load() & kInside) == 0; };
  if (spin_until(empty)) return;
  std::unique_lock<std::mutex> lock(mutex_);
  caller_asleep_ = true;
  emptied_.wait(lock, empty);
  caller_asleep_ = false;
}

void Pool::take(int worker) {
  const int64_t pieces = (job_.n + job_.grain - 1) / job_.grain;
  for (;;) {
    const int64_t i = next_.fetch_add(1, std::memory_order_relaxed);
    if (i >= pieces) return;
    const int64_t begin = i * job_.grain, end = begin + job_.grain;
    job_.body(job_.ctx, begin, end < job_.n ? end : job_.n, worker);
  }
}

// Joins the open job unless this worker has seen it.
bool Pool::enter(uint64_t *seen) {
  uint64_t g = gate_.load();
  while ((g & kOpen) != 0 && g / kJob != *seen) {
    if (gate_.compare_exchange_weak(g, g + 1)) {
      *seen = g / kJob;
      return true;
    }
  }
  return false;
}

void Pool::leave() {
  const uint64_t g = gate_.fetch_sub(1) - 1;
  if ((g & (kInside | kOpen)) == 0 && caller_asleep_.load()) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
    }
    emptied_.notify_one();
  }
}

void Pool::work(int worker) {
  uint64_t seen = 0;
  for (;;) {
    bool inside = false;
    const auto ready = [&] { return stopping_.load() || (inside = enter(&seen)); };
    if (!spin_until(ready)) {
      std::unique_lock<std::mutex> lock(mutex_);
      asleep_++;
      opened_.wait(lock, ready);
      asleep_--;
    }
    if (!inside) return;
    take(worker);
    leave();
  }
}

}  // namespace ced
