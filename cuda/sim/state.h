// state.h: between memory and streams of the simulated device.
#pragma once
#include <cstddef>
#include <cstdint>

namespace sim {

int allocate_device(void **p, size_t n, int device);
int allocate_pinned(void **p, size_t n);
int register_pinned(void *p, size_t n);
int release_memory(void *p);
uint64_t used_bytes(int device);
bool peer_enabled(int device, int peer);

}  // namespace sim
