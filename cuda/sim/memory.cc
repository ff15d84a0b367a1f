// memory.cc: device and pinned memory. Device addresses are marked, so that only kernels and copies reach behind them.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

#include "sim/device.h"
#include "sim/state.h"

namespace sim {
namespace {

constexpr size_t kCanary = 256;

struct Allocation {
  char *raw = nullptr;  // what malloc gave; the contents start behind the canary
  char *data = nullptr;
  size_t bytes = 0;
  Where where = Where::kPinned;
  int device = 0;
  bool registered = false;  // the caller's own memory
};

std::mutex mutex;
std::map<uint64_t, Allocation> &allocations() {  // by the address that the caller knows
  static auto *m = new std::map<uint64_t, Allocation>;
  return *m;
}
uint64_t used[256];  // bytes of each device

#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kGuard = 0;
#else
constexpr size_t kGuard = kCanary;
#endif

const Allocation *find(uint64_t addr, uint64_t *base) {
  auto it = allocations().upper_bound(addr);
  if (it == allocations().begin()) return nullptr;
  --it;
  if (addr - it->first > it->second.bytes) return nullptr;
  *base = it->first;
  return &it->second;
}

int allocate(void **out, size_t n, Where where, int device) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto limit = static_cast<uint64_t>(options().memory_mib) << 20;
  if (where == Where::kDevice && (n > limit || used[device] > limit - n)) return cudaErrorMemoryAllocation;
  void *p = nullptr;
  if (n > PTRDIFF_MAX / 2 || posix_memalign(&p, 256, n + 2 * kGuard > 0 ? n + 2 * kGuard : 1) != 0)
    return cudaErrorMemoryAllocation;
  memset(p, 0xFF, n + 2 * kGuard);
  Allocation a;
  a.raw = static_cast<char *>(p), a.data = a.raw + kGuard, a.bytes = n, a.where = where, a.device = device;
  auto addr = reinterpret_cast<uint64_t>(a.data);
  if (where == Where::kDevice) addr |= kDeviceBit | static_cast<uint64_t>(device) << 48, used[device] += n;
  allocations()[addr] = a;
  *out = reinterpret_cast<void *>(addr);
  return cudaSuccess;
}

// The first byte of a canary that is not whole, kGuard if none. Every launch asks for every allocation.
size_t damage(const char *p) {
  static const std::string whole(kGuard, '\xFF');
  if (memcmp(p, whole.data(), kGuard) == 0) return kGuard;
  for (size_t i = 0; i < kGuard; i++)
    if (static_cast<unsigned char>(p[i]) != 0xFF) return i;
  return kGuard;
}

// The last allocation that this host thread resolved.
struct Recent {
  uint64_t base = 1, bytes = 0;
  char *data = nullptr;
  uint64_t generation = 0;
};
thread_local Recent recent;
uint64_t generation = 1;

}  // namespace

int allocate_device(void **p, size_t n, int device) { return allocate(p, n, Where::kDevice, device); }
int allocate_pinned(void **p, size_t n) { return allocate(p, n, Where::kPinned, 0); }

int register_pinned(void *p, size_t n) {
  const std::lock_guard<std::mutex> lock(mutex);
  Allocation a;
  a.data = static_cast<char *>(p), a.bytes = n, a.registered = true;
  return allocations().emplace(reinterpret_cast<uint64_t>(p), a).second ? cudaSuccess : cudaErrorInvalidValue;
}

int release_memory(void *p) {
  check_canaries("a kernel before a free");
  const std::lock_guard<std::mutex> lock(mutex);
  const auto it = allocations().find(reinterpret_cast<uint64_t>(p));
  if (it == allocations().end()) return cudaErrorInvalidValue;
  if (it->second.where == Where::kDevice) used[it->second.device] -= it->second.bytes;
  free(it->second.raw);
  allocations().erase(it);
  generation++;
  return cudaSuccess;
}

uint64_t used_bytes(int device) {
  const std::lock_guard<std::mutex> lock(mutex);
  return used[device];
}

void check_canaries(const char *who) {
  const std::lock_guard<std::mutex> lock(mutex);
  for (const auto &entry : allocations()) {
    const Allocation &a = entry.second;
    if (a.registered) continue;
    const size_t before = damage(a.raw), after = damage(a.data + a.bytes);
    if (before == kGuard && after == kGuard) continue;
    if (after < kGuard)
      fault("", 0, "%s: an allocation of %zu bytes was written %zu past its end", who, a.bytes, after);
    fault("", 0, "%s: an allocation of %zu bytes was written %zu before its start", who, a.bytes,
          kGuard - before);
  }
}

void *locate(const void *p, size_t n, Where *where, int *device) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto addr = reinterpret_cast<uint64_t>(p);
  uint64_t base = 0;
  const Allocation *a = find(addr, &base);
  *where = Where::kPageable, *device = 0;
  if (a == nullptr) return (addr & kDeviceBit) != 0 ? nullptr : const_cast<void *>(p);
  if (n > a->bytes - (addr - base)) return nullptr;
  *where = a->where, *device = a->device;
  return a->data + (addr - base);
}

uint64_t resolve(uint64_t addr) {
  const char *kernel = running_kernel();
  if (kernel == nullptr) {
    if ((addr & kDeviceBit) != 0)
      fault("", 0, "host code looks into device memory at 0x%llx", static_cast<unsigned long long>(addr));
    return addr;
  }
  if (addr == 0) return 0;
  Recent &r = recent;
  if (r.generation != generation || addr - r.base > r.bytes) {
    const std::lock_guard<std::mutex> lock(mutex);
    const Allocation *a = find(addr, &r.base);
    if (a == nullptr)
      fault("", 0, "%s looks at 0x%llx, which is neither device nor pinned memory", kernel,
            static_cast<unsigned long long>(addr));
    if (a->where == Where::kDevice && a->device != running_device() &&
        !peer_enabled(running_device(), a->device))
      fault("", 0, "%s on device %d looks into device %d", kernel, running_device(), a->device);
    r.bytes = a->bytes, r.data = a->data, r.generation = generation;
  }
  return reinterpret_cast<uint64_t>(r.data + (addr - r.base));
}

}  // namespace sim
