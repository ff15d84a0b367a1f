// exec.cc: threads, blocks and grids. Built without TSan (fiber.h), with the other sanitizers.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "sim/device.h"
#include "sim/fiber.h"

namespace sim {
namespace {

enum class State : uint8_t { kReady, kWaiting, kDone };
struct Block;
struct Gang;

// A cp.async that has not landed.
struct Copy {
  void *to;
  const void *from;
  int bytes, valid, group;
};

struct Fiber : Thread {
  Context context;
  Block *home = nullptr;
  State state = State::kReady;
  const char *why = "", *file = "";
  int line = 0;
  unsigned mask = 0;
  std::vector<Copy> copies;
  int group = 0;
};

// A rendezvous of lanes. Two buffers, so that a lane may be in the next one while others still read.
struct Meeting {
  unsigned mask = 0, arrived = 0;
  uint32_t round = 0;
  Kind kind{};
  const char *file = "";
  int line = 0;
  char lanes[2][kWarp][kPayload];
};

struct Warp {
  std::vector<std::unique_ptr<Meeting>> meetings;
  unsigned exited = 0;
};

struct Barrier {
  int expected = 0, arrived = 0, votes[2] = {};
  unsigned round = 0;
  const char *file = "";
  int line = 0;
  char order[2];  // TSan's objects, by parity: who runs ahead must not be ordered before who is still leaving
};

struct Mbarrier {
  int count = 0, pending = 0;
  int64_t bytes = 0;
  uint32_t phase = 0;
  char order[2];
};

struct Piece {
  char *at;
  size_t bytes;
};
struct Bulk {
  void *to;
  const void *from;
  uint32_t bytes;
  uint64_t *bar;
};

constexpr int kBarriers = 16, kSharedGuard = 64;

struct Block {
  std::vector<Stack> stacks;  // kept; dealt to the threads of a block anew
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Warp> warps;
  Barrier barriers[kBarriers];
  std::map<const void *, Piece> shared;
  std::map<uint64_t *, Mbarrier> mbarriers;
  std::vector<Bulk> bulk;
  Piece dynamic{};
  int threads = 0, alive = 0;
  unsigned number = 0;
  Gang *gang = nullptr;
};

// Blocks that run interleaved on one host thread.
struct Gang {
  const Launch *launch;
  int device;
  Context host;
  std::vector<Fiber *> ready, turn;
  std::vector<Fiber *> asleep;  // that look again when nobody else can go on
  size_t next = 0;
  Dice dice;
  void *grid_order;  // TSan's
  std::vector<Block *> blocks;

  Gang(const Launch *l, int d, uint64_t seed, void *order)
      : launch(l), device(d), dice(seed), grid_order(order) {}
};

thread_local Gang *gang;
thread_local const char *kernel_name;
thread_local int kernel_device;

Fiber &me() { return *static_cast<Fiber *>(self); }

std::mutex pool_mutex;
std::vector<Block *> &pool() {  // never freed: TSan keeps reading what fibers wrote
  static auto *p = new std::vector<Block *>;
  return *p;
}
Block *take_block() {
  const std::lock_guard<std::mutex> lock(pool_mutex);
  if (pool().empty()) return new Block;
  Block *b = pool().back();
  pool().pop_back();
  return b;
}
void give_block(Block *b) {
  const std::lock_guard<std::mutex> lock(pool_mutex);
  pool().push_back(b);
}

// No libc fill on memory that kernels see: TSan would charge it to a kernel's thread.
void poison(char *p, size_t n) {
  volatile char *c = p;
  for (size_t i = 0; i < n; i++) c[i] = static_cast<char>(0xFF);
}

// TSan: fresh mappings, so that nothing is remembered of the address. ASan: the exact size. Else: a guard behind.
Piece new_piece(size_t n) {
  Piece p{nullptr, n};
#if defined(__SANITIZE_ADDRESS__)
  constexpr size_t kExtra = 0;
#else
  constexpr size_t kExtra = kSharedGuard;
#endif
  void *m = nullptr;
  if (kTsan) {
    m = mmap(nullptr, n + kExtra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) abort();
  } else if (posix_memalign(&m, 1024, n + kExtra > 0 ? n + kExtra : 1) != 0) {
    abort();
  }
  p.at = static_cast<char *>(m);
  poison(p.at, n + kExtra);
  return p;
}
void free_piece(const Piece &p, const char *kernel) {
#if !defined(__SANITIZE_ADDRESS__)
  for (int i = 0; i < kSharedGuard; i++) {
    if (static_cast<unsigned char>(p.at[p.bytes + static_cast<size_t>(i)]) == 0xFF) continue;
    fprintf(stderr, "sim: fault in %s: %zu bytes of shared memory were written %d past their end\n", kernel,
            p.bytes, i);
    fflush(stderr);
    _exit(86);
  }
#endif
  if (kTsan) {
    munmap(p.at, p.bytes + kSharedGuard);
  } else {
    free(p.at);
  }
  (void)kernel;
}

void wake_sleepers() {
  gang->ready.insert(gang->ready.end(), gang->asleep.begin(), gang->asleep.end());
  gang->asleep.clear();
}

void back_to_host(bool last = false) {
  Fiber &f = me();
  switch_to(f.context, gang->host, true, last);
}
void wake(Fiber &f) {
  if (f.state != State::kWaiting) return;
  f.state = State::kReady;
  gang->ready.push_back(&f);
}
void let_others() {
  gang->ready.push_back(&me());
  back_to_host();
}
void wait_for(const char *why, const char *file, int line) {
  Fiber &f = me();
  f.state = State::kWaiting, f.why = why, f.file = file, f.line = line;
  back_to_host();
  f.why = "";
}

constexpr const char *kNames[] = {"__syncwarp", "shuffle", "vote", "ldmatrix", "mma"};
constexpr const char *kSync = "a barrier", *kMbarrier = "an mbarrier";

void release_barrier(Block &b, Barrier &bar) {
  bar.arrived = 0, bar.round++;
  bar.votes[bar.round & 1] = 0;
  for (int i = 0; i < b.threads; i++) {
    Fiber &f = *b.fibers[static_cast<size_t>(i)];
    if (f.why == kSync && f.mask == static_cast<unsigned>(&bar - b.barriers)) wake(f);
  }
}
// Barrier 0 is for the threads that are still there.
void check_barrier(Block &b) {
  Barrier &bar = b.barriers[0];
  if (bar.arrived > 0 && bar.expected == 0 && bar.arrived == b.alive) release_barrier(b, bar);
}

int arrive(int id, int threads, int vote, const char *file, int line) {
  Fiber &f = me();
  Block &b = *f.home;
  if (id < 0 || id >= kBarriers || threads % kWarp != 0)
    fault(file, line, "barrier %d for %d threads", id, threads);
  Barrier &bar = b.barriers[id];
  if (bar.arrived++ == 0) {
    bar.file = file, bar.line = line, bar.expected = threads;
  } else if (bar.line != line && id == 0) {
    fault(file, line, "divergent __syncthreads: others wait at line %d", bar.line);
  } else if (bar.expected != threads) {
    fault(file, line, "barrier %d for %d threads, others said %d", id, threads, bar.expected);
  }
  const unsigned round = bar.round;
  bar.votes[round & 1] += vote != 0;
  void *order = &bar.order[round & 1];
  release(order);
  f.mask = static_cast<unsigned>(id);
  if (bar.arrived == (threads == 0 ? b.alive : threads)) {
    release_barrier(b, bar);
    let_others();
  } else {
    wait_for(kSync, file, line);
  }
  f.mask = 0;
  acquire(order);
  return bar.votes[round & 1];
}

void land(const Copy &c) {
  memcpy(c.to, c.from, static_cast<size_t>(c.valid));
  if (c.valid < c.bytes)
    memset(static_cast<char *>(c.to) + c.valid, 0, static_cast<size_t>(c.bytes - c.valid));
}

void settle(Block &b, uint64_t *key, Mbarrier &m) {
  if (m.pending != 0 || m.bytes != 0) return;
  m.phase ^= 1, m.pending = m.count;
  for (int i = 0; i < b.threads; i++) {
    Fiber &f = *b.fibers[static_cast<size_t>(i)];
    if (f.why == kMbarrier) wake(f);
  }
  (void)key;
}
void land_bulk(Block &b, size_t i) {
  const Bulk c = b.bulk[i];
  b.bulk[i] = b.bulk.back();
  b.bulk.pop_back();
  memcpy(c.to, c.from, c.bytes);
  Mbarrier &m = b.mbarriers[c.bar];
  m.bytes -= c.bytes;
  settle(b, c.bar, m);
}
bool land_some_bulk() {
  for (Block *b : gang->blocks)
    if (!b->bulk.empty()) {
      land_bulk(*b, gang->dice.below(static_cast<uint32_t>(b->bulk.size())));
      return true;
    }
  return false;
}

Mbarrier &find_mbarrier(uint64_t *bar, const char *file, int line) {
  Block &b = *me().home;
  const auto it = b.mbarriers.find(bar);
  if (it == b.mbarriers.end()) fault(file, line, "mbarrier was not initialised");
  return it->second;
}

void thread_main() {
  entered();
  Fiber &f = me();
  Block &b = *f.home;
  acquire(&gang->host);
  gang->launch->body();
  for (const Copy &c : f.copies) land(c);
  release(gang->grid_order);  // orders every thread before what the host does next, no block before another
  f.state = State::kDone;
  b.alive--;
  Warp &w = b.warps[static_cast<size_t>(f.index / kWarp)];
  w.exited |= 1u << (f.index % kWarp);
  for (const auto &m : w.meetings)
    if (m->arrived != 0 && (m->mask & w.exited) != 0)
      fault(m->file, m->line, "a lane ends while others wait for it here");
  check_barrier(b);
  back_to_host(true);
  abort();
}

void start_block(Block *b, unsigned number) {
  const Launch &l = *gang->launch;
  b->gang = gang, b->number = number;
  b->threads = b->alive = static_cast<int>(l.block.x * l.block.y * l.block.z);
  const auto n = static_cast<size_t>(b->threads), warps = (n + kWarp - 1) / kWarp;
  while (b->stacks.size() < n) b->stacks.push_back(new_stack());
  while (b->fibers.size() < n) b->fibers.push_back(std::make_unique<Fiber>());
  if (b->warps.size() < warps) b->warps.resize(warps);
  for (Warp &w : b->warps) {
    w.exited = 0;
    for (auto &m : w.meetings) m->arrived = 0;
  }
  if (n % kWarp != 0) b->warps[n / kWarp].exited = ~0u << (n % kWarp);
  for (Barrier &bar : b->barriers) bar.arrived = 0, bar.votes[0] = bar.votes[1] = 0;
  b->dynamic = new_piece(l.shared_bytes);
  if (kTsan)  // a word's writers in two blocks must be two of TSan's threads
    for (size_t i = n; i > 1; i--)
      std::swap(b->stacks[i - 1], b->stacks[gang->dice.below(static_cast<uint32_t>(i))]);
  for (size_t i = 0; i < n; i++) {
    Fiber &f = *b->fibers[i];
    const auto t = static_cast<unsigned>(i);
    f.thread = {t % l.block.x, t / l.block.x % l.block.y, t / (l.block.x * l.block.y)};
    f.block = {number % l.grid.x, number / l.grid.x % l.grid.y, number / (l.grid.x * l.grid.y)};
    f.block_dim = l.block, f.grid_dim = l.grid, f.index = static_cast<int>(i);
    f.home = b, f.state = State::kReady, f.why = "", f.mask = 0, f.group = 0;
    f.copies.clear();
    f.context.stack = b->stacks[i];
    prepare(f.context, thread_main);
    gang->ready.push_back(&f);
  }
}

void end_block(Block *b) {
  const char *kernel = gang->launch->name;
  if (!b->bulk.empty()) {
    fprintf(stderr, "sim: fault in %s: a block ended with a bulk copy under way\n", kernel);
    fflush(stderr);
    _exit(86);
  }
  for (const auto &s : b->shared) free_piece(s.second, kernel);
  free_piece(b->dynamic, kernel);
  b->shared.clear(), b->mbarriers.clear();
  give_block(b);
}

[[noreturn]] void deadlock() {
  fprintf(stderr, "sim: fault in %s: deadlock\n", gang->launch->name);
  int shown = 0;
  for (const Block *b : gang->blocks)
    for (int i = 0; i < b->threads; i++) {
      const Fiber &f = *b->fibers[static_cast<size_t>(i)];
      if (f.state != State::kWaiting || shown++ >= 8) continue;
      fprintf(stderr, "  block (%u,%u,%u) thread %d waits in %s at %s:%d (mask or id %x)\n", f.block.x,
              f.block.y, f.block.z, f.index, f.why, f.file, f.line, f.mask);
    }
  fflush(stderr);
  _exit(86);
}

Fiber *pick() {
  Gang &g = *gang;
  if (options().seed <= 1) {  // rounds in order, or in reverse
    if (g.next == g.turn.size()) {
      g.turn.swap(g.ready);
      g.ready.clear(), g.next = 0;
      std::sort(g.turn.begin(), g.turn.end(), [](const Fiber *a, const Fiber *b) {
        return a->home->number != b->home->number ? a->home->number < b->home->number : a->index < b->index;
      });
      if (options().seed == 1) std::reverse(g.turn.begin(), g.turn.end());
    }
    return g.next < g.turn.size() ? g.turn[g.next++] : nullptr;
  }
  if ((g.dice.draw() & 15) == 0) land_some_bulk();
  if (!g.asleep.empty() && (g.dice.draw() & 63) == 0) wake_sleepers();
  if (g.ready.empty()) return nullptr;
  const size_t i = g.dice.below(static_cast<uint32_t>(g.ready.size()));
  Fiber *f = g.ready[i];
  g.ready[i] = g.ready.back();
  g.ready.pop_back();
  return f;
}

void run_gang(const Launch &launch, int device, const std::vector<unsigned> &numbers, void *order) {
  Gang g(&launch, device, static_cast<uint64_t>(options().seed) * 1000003 + numbers[0], order);
  gang = &g, kernel_name = launch.name, kernel_device = device;
  adopt_thread(g.host);
  release(&g.host);
  {
    const Hidden hidden;
    const size_t threads = numbers.size() * launch.block.x * launch.block.y * launch.block.z;
    for (auto *fibers : {&g.ready, &g.turn, &g.asleep})
      fibers->reserve(threads);  // threads of the device must not be seen to grow them
    for (unsigned n : numbers) {
      g.blocks.push_back(take_block());
      start_block(g.blocks.back(), n);
    }
    const auto alive = [&] {
      return std::any_of(g.blocks.begin(), g.blocks.end(), [](const Block *b) { return b->alive > 0; });
    };
    for (;;) {
      Fiber *f = pick();
      if (f == nullptr) {
        if (!alive()) break;
        if (!land_some_bulk() && g.asleep.empty()) deadlock();
        wake_sleepers();
        continue;
      }
      self = f;
      switch_to(g.host, f->context, false, false);
    }
    self = nullptr;
    for (Block *b : g.blocks) end_block(b);
  }
  gang = nullptr, kernel_name = nullptr;
}

}  // namespace

thread_local Thread *self;

const char *running_kernel() { return kernel_name; }
int running_device() { return kernel_device; }

void fault(const char *file, int line, const char *format, ...) {
  char what[256];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  if (self != nullptr) {
    fprintf(stderr, "sim: fault in %s at %s:%d, block (%u,%u,%u) thread %d: %s\n", kernel_name, file, line,
            self->block.x, self->block.y, self->block.z, self->index, what);
  } else {
    fprintf(stderr, "sim: fault: %s\n", what);
  }
  fflush(stderr);
  _exit(86);
}

void yield() {
  gang->asleep.push_back(&me());
  back_to_host();
}

void barrier(int id, int threads, const char *file, int line) { arrive(id, threads, 0, file, line); }
int barrier_count(int vote, const char *file, int line) { return arrive(0, 0, vote, file, line); }

Lanes meet(unsigned mask, const void *mine, size_t n, Kind kind, const char *file, int line,
           void (*combine)(Lanes)) {
  Fiber &f = me();
  const int l = f.index % kWarp;
  Warp &w = f.home->warps[static_cast<size_t>(f.index / kWarp)];
  const char *name = kNames[static_cast<int>(kind)];
  if ((mask >> l & 1) == 0) fault(file, line, "%s: lane %d is not in its own mask %08x", name, l, mask);
  Meeting *m = nullptr;
  Lanes lanes;
  {
    const Hidden hidden;
    for (const auto &p : w.meetings) {
      if (p->mask == mask) {
        m = p.get();
      } else if (p->arrived != 0 && (p->mask & mask) != 0) {
        fault(file, line, "%s with mask %08x while lanes of it wait with mask %08x at line %d", name, mask,
              p->mask, p->line);
      }
    }
    if (m == nullptr) {
      w.meetings.push_back(std::make_unique<Meeting>());
      m = w.meetings.back().get();
      m->mask = mask;
    }
    if ((w.exited & mask) != 0) fault(file, line, "%s: mask %08x names a lane that has ended", name, mask);
    if (m->arrived == 0) {
      m->kind = kind, m->file = file, m->line = line;
    } else if (m->kind != kind || m->line != line) {
      fault(file, line, "divergent %s: others are in %s at line %d", name, kNames[static_cast<int>(m->kind)],
            m->line);
    }
    lanes = m->lanes[m->round & 1];
    if (n > 0) memcpy(lanes[l], mine, n);
  }
  m->arrived |= 1u << l;
  f.mask = mask;
  if (kind == Kind::kSyncWarp) release(lanes);  // shuffles, votes and mma do not order memory
  if (m->arrived == mask) {
    if (combine != nullptr) {
      const Hidden hidden;
      combine(lanes);
    }
    m->arrived = 0, m->round++;
    const auto base = static_cast<size_t>(f.index - l);
    for (int i = 0; i < kWarp; i++)
      if (i != l && (mask >> i & 1) != 0) wake(*f.home->fibers[base + static_cast<size_t>(i)]);
    let_others();
  } else {
    wait_for(name, file, line);
  }
  f.mask = 0;
  if (kind == Kind::kSyncWarp) acquire(lanes);
  return lanes;
}

void *shared(const void *key, size_t bytes) {
  const Hidden hidden;
  Piece &p = me().home->shared[key];
  if (p.at == nullptr) p = new_piece(bytes);
  return p.at;
}
void *dynamic_shared() { return me().home->dynamic.at; }

void copy_async(void *to, const void *from, int bytes, int valid, const char *file, int line) {
  Fiber &f = me();
  const auto step = static_cast<uintptr_t>(bytes) - 1;
  if (((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) & step) != 0)
    fault(file, line, "cp.async of %d bytes: an address is not aligned to them", bytes);
  const Copy c{to, from, bytes, valid, f.group};
  if (options().seed > 1 && (gang->dice.draw() & 3) == 0) return land(c);
  const Hidden hidden;
  f.copies.push_back(c);
}
void copy_commit() { me().group++; }
void copy_wait(int pending) {
  Fiber &f = me();
  size_t kept = 0;
  for (size_t i = 0; i < f.copies.size(); i++) {
    const Copy c = f.copies[i];
    if (c.group < f.group - pending) {
      land(c);
    } else {
      f.copies[kept++] = c;
    }
  }
  f.copies.resize(kept);
}

void mbarrier_init(uint64_t *bar, int arrivals, const char *file, int line) {
  if (arrivals < 1) fault(file, line, "mbarrier for %d arrivals", arrivals);
  const Hidden hidden;
  Mbarrier &m = me().home->mbarriers[bar];
  m = Mbarrier();
  m.count = m.pending = arrivals;
}
void mbarrier_arrive(uint64_t *bar, uint32_t expect_bytes, const char *file, int line) {
  Mbarrier &m = find_mbarrier(bar, file, line);
  release(&m.order[m.phase]);
  m.bytes += expect_bytes;
  if (m.pending-- == 0) fault(file, line, "mbarrier: more arrivals than the %d it waits for", m.count);
  settle(*me().home, bar, m);
}
void copy_arrive(uint64_t *bar, const char *file, int line) {
  Mbarrier &m = find_mbarrier(bar, file, line);
  Fiber &f = me();
  {
    const Hidden hidden;
    for (const Copy &c : f.copies) {
      if (c.valid != c.bytes) fault(file, line, "cp.async of fewer bytes cannot report to an mbarrier here");
      m.bytes += c.bytes;
      f.home->bulk.push_back({c.to, c.from, static_cast<uint32_t>(c.bytes), bar});
    }
    f.copies.clear();
  }
  mbarrier_arrive(bar, 0, file, line);
}
bool has_bulk() { return options().capability >= 90; }
void mbarrier_wait(uint64_t *bar, uint32_t parity, const char *file, int line) {
  Mbarrier &m = find_mbarrier(bar, file, line);
  while (m.phase == (parity & 1)) wait_for(kMbarrier, file, line);
  acquire(&m.order[parity & 1]);
}
void bulk_load(void *to, const void *from, uint32_t bytes, uint64_t *bar, const char *file, int line) {
  if (((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes) & 15) != 0)
    fault(file, line, "bulk copy of %u bytes: an address or the size is not a multiple of 16", bytes);
  find_mbarrier(bar, file, line);
  Block &b = *me().home;
  const Hidden hidden;
  b.bulk.push_back({to, from, bytes, bar});
  if (options().seed > 1 && (gang->dice.draw() & 7) == 0) land_bulk(b, b.bulk.size() - 1);
}

void run_grid(const Launch &launch, int device) {
  const unsigned n = launch.grid.x * launch.grid.y * launch.grid.z;
  const long seed = options().seed;
  std::vector<unsigned> order(n);
  for (unsigned i = 0; i < n; i++) order[i] = seed == 1 ? n - 1 - i : i;
  Dice dice(static_cast<uint64_t>(seed) + 77);
  if (seed > 1)
    for (unsigned i = n; i > 1; i--) std::swap(order[i - 1], order[dice.below(i)]);
  char done[8];  // TSan's
  if (launch.resident) {
    run_gang(launch, device, order, done);
  } else {
    // At random, two blocks interleaved on a host thread.
    std::atomic<unsigned> next{0};
    const unsigned pair = seed > 1 && n > 1 && dice.below(2) == 0 ? 2 : 1;
    const auto work = [&] {
      for (unsigned i; (i = next.fetch_add(pair)) < n;)
        run_gang(launch, device, {order.begin() + i, order.begin() + std::min(n, i + pair)}, done);
    };
    std::vector<std::thread> helpers;
    const auto threads = static_cast<unsigned>(options().threads);
    for (unsigned i = 1; i < threads && n >= 4 * pair && i < n / pair; i++) helpers.emplace_back(work);
    work();
    for (auto &t : helpers) t.join();
  }
  acquire(done);
}

}  // namespace sim
