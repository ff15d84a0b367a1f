#include "device/pool.h"

#include "device/cpus.h"

namespace ced {
namespace {

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

}  // namespace

template <class F>
bool Patience::until(const F &done) {
  if (limit_ < kMost) limit_ += kRegain;
  Clock::time_point start{}, last{};
  for (;;) {
    for (int i = 0; i < 16; i++) {
      if (done()) return true;
      relax();
    }
    const auto now = Clock::now();
    if (start == Clock::time_point{}) start = last = now;
    if (now - last > kLost) limit_ = kLeast;
    if (now - start >= limit_) return false;
    last = now;
  }
}

Pool::Pool(int threads, int cpus, const std::vector<int> &pin)
    : threads_(threads),
      cpus_(cpus),
      shares_(new Share[static_cast<size_t>(threads)]),
      seats_(new Seat[static_cast<size_t>(threads)]) {
  try {
    for (int i = 1; i < threads; i++) {
      const int cpu = pin.empty() ? -1 : pin[static_cast<size_t>(i) % pin.size()];
      seats_[i].thread = std::thread([this, i, cpu] { work(i, cpu); });
    }
  } catch (...) {
    stop();
    throw;
  }
}

Pool::~Pool() { stop(); }

void Pool::stop() {
  stopping_.store(true);
  turn_ = 0;
  wake(threads_, threads_);
  for (int i = 1; i < threads_; i++)
    if (seats_[i].thread.joinable()) seats_[i].thread.join();
}

void Pool::run(int64_t n, int64_t grain, Body body, void *ctx) {
  const int64_t pieces = (n + grain - 1) / grain;
  const int64_t whole = (n + grain / 2) / grain;  // a thread is not asked in for much less than a piece
  const int shares = static_cast<int>(whole < threads_ ? whole : threads_);
  const uint64_t closed = (gate_.load(std::memory_order_relaxed) & ~kParts) + kJob;
  if (shares <= 1) {
    gate_.store(closed, std::memory_order_relaxed);  // a sign of life
    for (int64_t i = 0; i < n; i += grain) body(ctx, i, i + grain < n ? i + grain : n, 0);
    return;
  }
  job_ = {n, grain, shares, body, ctx};
  for (int i = 0; i < shares; i++) {
    shares_[i].next.store(pieces * i / shares, std::memory_order_relaxed);
    shares_[i].end = pieces * (i + 1) / shares;
  }
  // More threads than processors: as many as can run are awake, whichever they are.
  const bool crowded = threads_ > cpus_;
  const int parts = crowded ? threads_ : shares;
  gate_.store(closed | static_cast<uint64_t>(parts));
  const int asleep = asleep_.load();
  if (asleep > 0) wake(parts, crowded ? cpus_ - (threads_ - asleep) : parts);
  take(0);
  gate_.store(closed);
  join(parts);
}

// Own pieces first, then those of the threads that follow.
void Pool::take(int worker) {
  const int first = worker % job_.shares;
  for (int i = 0; i < job_.shares; i++) {
    Share &share = shares_[(first + i) % job_.shares];
    while (share.next.load(std::memory_order_relaxed) < share.end) {
      const int64_t piece = share.next.fetch_add(1, std::memory_order_relaxed);
      if (piece >= share.end) break;
      const int64_t begin = piece * job_.grain, end = begin + job_.grain;
      job_.body(job_.ctx, begin, end < job_.n ? end : job_.n, worker);
    }
  }
}

// Wakes `count` of the threads that take part, others each time.
void Pool::wake(int parts, int count) {
  for (int i = 1; i < parts && count > 0; i++) {
    Seat &seat = seats_[1 + (turn_++ % static_cast<uint32_t>(parts - 1))];
    if (!seat.asleep.load()) continue;
    {
      std::lock_guard<std::mutex> lock(seat.mutex);
    }  // whoever counts as asleep is waiting by now
    seat.wake.notify_one();
    count--;
  }
}

// Returns when no thread is inside the closed job.
void Pool::join(int parts) {
  int left = 1;
  const auto empty = [&] {
    while (left < parts && !seats_[left].inside.load()) left++;
    return left == parts;
  };
  if (patience_.until(empty)) return;
  std::unique_lock<std::mutex> lock(mutex_);
  caller_asleep_.store(true);
  emptied_.wait(lock, empty);
  caller_asleep_.store(false);
}

// Waits for a job that this worker takes part in and has not seen; 0: the pool stops. Jobs without it are a sign that
// more will follow: it goes on looking.
uint64_t Pool::wait(int worker, uint64_t seen, Patience *patience) {
  Seat &seat = seats_[worker];
  uint64_t gate = seen;
  const auto ready = [&] { return stopping_.load() || static_cast<int>(gate & kParts) > worker; };
  const auto changed = [&] { return (gate = gate_.load()) / kJob != seen / kJob || stopping_.load(); };
  while (patience->until(changed)) {
    if (ready()) return stopping_.load() ? 0 : gate;
    seen = gate;
  }
  std::unique_lock<std::mutex> lock(seat.mutex);
  asleep_++;
  seat.asleep.store(true);
  seat.wake.wait(lock, [&] { return changed() && ready(); });
  seat.asleep.store(false);
  asleep_--;
  return stopping_.load() ? 0 : gate;
}

void Pool::work(int worker, int cpu) {
  if (cpu >= 0) pin_thread(cpu);
  Seat &seat = seats_[worker];
  Patience patience;
  uint64_t gate = 0;
  while ((gate = wait(worker, gate, &patience)) != 0) {
    // Announce, then look again: either this sees the gate closed, or the caller sees who is inside.
    seat.inside.store(true);
    if (gate_.load() == gate) take(worker);
    seat.inside.store(false);
    if (caller_asleep_.load()) {
      {
        std::lock_guard<std::mutex> lock(mutex_);
      }
      emptied_.notify_one();
    }
  }
}

}  // namespace ced
