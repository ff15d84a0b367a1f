// internal.h: what every kernel file shares. Native side only; Go sees ced.h.
#pragma once
#include "ced.h"

#include <cstdint>

#include "num/bits.h"

#ifdef CED_SIM
namespace sim {
uint64_t resolve(uint64_t addr);  // sim/sim.h
}
#endif

namespace ced {

// Writes a formatted message to *err (if any) and returns code.
int fail(ced_err *err, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

// Runs body(begin, end, worker) over [0, n) cut into pieces of `grain`, on the stream's threads; returns when
// all are done. worker < ced_stream_threads(s). REF streams run in order on the caller. Which worker runs a
// piece is unspecified: results must not depend on it.
using Body = void (*)(void *ctx, int64_t begin, int64_t end, int worker);
void parallel(ced_stream *s, int64_t n, int64_t grain, Body body, void *ctx);

template <class F>
void parallel_for(ced_stream *s, int64_t n, int64_t grain, const F &f) {
  parallel(
      s, n, grain, [](void *ctx, int64_t b, int64_t e, int w) { (*static_cast<const F *>(ctx))(b, e, w); },
      const_cast<F *>(&f));
}

// How many items of about ns nanoseconds make a piece that is worth a thread's attention.
constexpr int64_t grain_of(int64_t ns) { return ns >= 4000 ? 1 : 4000 / (ns > 0 ? ns : 1); }

// In a body: the memory behind an address. The simulated device checks that it is the body's to look at.
template <class T>
CED_HD T *at(uint64_t addr) {
#ifdef CED_SIM
  addr = sim::resolve(addr);
#endif
  return reinterpret_cast<T *>(addr);
}

CED_HD inline int32_t row_count(uint64_t rows) { return *at<const int32_t>(rows); }

ced_kind kind_of(const ced_stream *s);

// The kernels that have a CUDA body in this build, " embed row_gather "; empty without CUDA.
const char *cuda_bodies();

// Checks for the .cc file of a kernel; each writes a message that names kernel, field and value.
// rows: present, and (host streams) holding 0..max_rows rows.
int check_rows(const ced_stream *s, const char *kernel, uint64_t rows, uint32_t max_rows, ced_err *err);
// An operand that must be there, aligned: 64 for activations, 1 for checkpoint tensors.
int check_address(const char *kernel, const char *field, uint64_t addr, uint64_t align, ced_err *err);

}  // namespace ced

// Returns the status of a failing check.
#define CED_TRY(call)                            \
  do {                                           \
    const int ced_try_rc = (call);               \
    if (ced_try_rc != CED_OK) return ced_try_rc; \
  } while (0)

// Body dispatch behind the common checks of a kernel's .cc file. REF and CPU bodies run at once and cannot
// fail; a CUDA body launches. A CUDA build defines name##_cuda for every kernel: cuda_bodies.cc refuses for those that
// have none yet.
#ifdef CED_WITH_CUDA
#define CED_CUDA_BODY(name, s, a, err) return name##_cuda(s, *(a), err)
#else
#define CED_CUDA_BODY(name, s, a, err) \
  return ced::fail(err, CED_ENODEV, #name ": this build has no CUDA kernels; use --backend cpu")
#endif
#define CED_DISPATCH(name, s, a, err) \
  switch (ced::kind_of(s)) {          \
    case CED_REF:                     \
      name##_ref(s, *(a));            \
      return CED_OK;                  \
    case CED_CPU:                     \
      name##_cpu(s, *(a));            \
      return CED_OK;                  \
    default:                          \
      CED_CUDA_BODY(name, s, a, err); \
  }
