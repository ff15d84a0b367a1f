#include "kernel/dense_gemm/tile_isa.h"

#if CED_WIDE
#include <immintrin.h>

#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC 12 on its own header
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni,avx2,fma,f16c")

namespace ced {
namespace {

#include "kernel/dense_gemm/tile_avx512.h"
#include "kernel/dense_gemm/tile_body.h"

}  // namespace

void gemm_tile_avx512(ced_format x_format, ced_format w_format, uint32_t k, const GemmRow *w, int count,
                      const GemmRow *x, int rows, GemmSums sums) {
  any_tile<Avx512>(x_format, w_format, k, w, count, x, rows, sums);
}

}  // namespace ced
#pragma GCC pop_options
#endif
