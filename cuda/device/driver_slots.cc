// driver_slots.cc: the driver's functions, for a program that starts without the driver. gorgonia.org/cu links them as
// -lcuda; this is the libcuda.a that it gets. Each function jumps through a slot. At first all say that there is no
// device, but cuInit, which cu calls when the program starts, succeeds and does nothing; the first question for the
// number of devices loads the driver and fills the slots with what it has.
#include <dlfcn.h>
#include <pthread.h>

namespace {

constexpr int kNoDevice = 100;

int absent() { return kNoDevice; }
int started(unsigned) { return 0; }
int first_count(int *n);

}  // namespace

extern "C" {
#define X(name) void *ced_slot_##name = reinterpret_cast<void *>(absent);
#include "device/driver_symbols.h"
#undef X
}

// The jumps are hidden: the driver's own calls of its functions must not come here.
#if defined(__x86_64__)
#define JUMP(name) "endbr64\n jmp *ced_slot_" #name "(%rip)\n"
#elif defined(__aarch64__)
#define JUMP(name) \
  "hint #34\n adrp x16, ced_slot_" #name "\n ldr x16, [x16, #:lo12:ced_slot_" #name "]\n br x16\n"
#else
#error "no jump through a slot for this architecture"
#endif
#define X(name) \
  __asm__(".text\n.globl " #name "\n.hidden " #name "\n.type " #name ", %function\n" #name ":\n" JUMP(name));
#include "device/driver_symbols.h"
#undef X

namespace {

void load() {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return;
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  if (init == nullptr || init(0) != 0) return;
#define X(name) \
  if (void *f = dlsym(driver, #name); f != nullptr) ced_slot_##name = f;
#include "device/driver_symbols.h"
#undef X
}

int first_count(int *n) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  *n = 0;
  const auto count = reinterpret_cast<int (*)(int *)>(ced_slot_cuDeviceGetCount);
  return count == first_count ? 0 : count(n);
}

struct Initial {
  Initial() {
    ced_slot_cuInit = reinterpret_cast<void *>(started);
    ced_slot_cuDeviceGetCount = reinterpret_cast<void *>(first_count);
  }
} initial;

}  // namespace
