// runtime.h: the CUDA runtime, or the simulated device's; and what the CUDA side knows of a stream.
#pragma once
#include "device/stream.h"

#ifdef CED_SIM
#include "sim/runtime.h"
#else
#include <cuda_runtime.h>
#endif

namespace ced {

// Small uploads go through a page-locked buffer of two halves. A half is used again when its event says that the
// copies out of it are done.
struct Staging {
  static constexpr size_t kHalf = size_t{1} << 20;
  char *host = nullptr;
  cudaEvent_t done[2] = {};
  int half = 0;
  size_t used = 0;
};

struct CudaStream {
  cudaStream_t stream = nullptr;
  int device = 0;
  int processors = 0;       // multiprocessors
  int capability = 0;       // 80, 89, 90, 100, 120
  size_t shared_bytes = 0;  // dynamic shared memory that a block may have
  bool wgmma = false;       // warpgroups' matrix instructions give the bits of the warps'
  Staging staging;
  // Device memory for what the blocks of one kernel call tell each other; the stream's next call uses it again.
  static constexpr size_t kScratch = size_t{8} << 20;
  void *scratch = nullptr;
  // Zeros by which blocks find out who is the last of them; that one leaves a zero.
  static constexpr uint32_t kArrivals = 1024;
  uint32_t *arrivals = nullptr;
};

inline CudaStream &cuda_of(const ced_stream *s) { return *static_cast<CudaStream *>(s->cuda); }

// Sets c.wgmma by a known answer (wgmma.cu), which a device of capability 90 has to give.
int try_wgmma(CudaStream &c, ced_err *err);

// The runtime's error as a status: what was being done, and its own words.
int cuda_fail(ced_err *err, cudaError_t e, const char *what);

}  // namespace ced

#define CED_CUDA_TRY(call, what)                                                   \
  do {                                                                             \
    const cudaError_t ced_cuda_rc = (call);                                        \
    if (ced_cuda_rc != cudaSuccess) return ced::cuda_fail(err, ced_cuda_rc, what); \
  } while (0)
