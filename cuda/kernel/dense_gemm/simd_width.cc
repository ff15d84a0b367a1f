#include "kernel/dense_gemm/decode.h"

namespace ced {

int simd_width() {
#if CED_WIDE
  static const int width = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
                               ? 16
                           : __builtin_cpu_supports("avx2") ? 8
                                                            : 4;
  return width;
#else
  return 4;
#endif
}

}  // namespace ced
