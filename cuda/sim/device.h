// device.h: what the parts of the simulated device share.
#pragma once
#include <cstdint>

#include "sim/runtime.h"

namespace sim {

// The environment's choices; see sim.h.
struct Options {
  long seed, threads, devices, memory_mib, fault_launch, nomem_launch, capability, unified;
};
Options &options();  // tests change the seed

// The machine: an H200 with few processors, so that grids sized by it stay small.
constexpr int kMultiprocessors = 4, kMaxThreads = 1024, kMaxShared = 232448, kDefaultShared = 49152,
              kSharedPerMultiprocessor = 233472, kThreadsPerMultiprocessor = 2048;

// Random numbers of a part of the simulation.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 0x2545F4914F6CDD1Du) {
    for (int i = 0; i < 4; i++) draw();
  }
  uint32_t draw() {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return static_cast<uint32_t>((state_ * 0x2545F4914F6CDD1Du) >> 32);
  }
  // 0..n-1
  uint32_t below(uint32_t n) { return static_cast<uint32_t>((uint64_t{draw()} * n) >> 32); }

 private:
  uint64_t state_;
};

// Runs all blocks of a launch. Faults end the process.
void run_grid(const Launch &launch, int device);
// The kernel that this host thread runs, nullptr outside, and its device.
const char *running_kernel();
int running_device();

// Memory: canaries around every allocation, whole or the kernel (or copy) just run is at fault.
void check_canaries(const char *who);
// The host pointer of an address that the runtime was given, and whether [p, p+n) lies in one allocation of the device
// or of pinned memory (nullptr if not).
enum class Where { kPageable, kPinned, kDevice };
void *locate(const void *p, size_t n, Where *where, int *device);

}  // namespace sim
