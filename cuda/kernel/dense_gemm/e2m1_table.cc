#include "kernel/dense_gemm/e2m1_table.h"

namespace ced {

constexpr E2m1Table kE2m1;
constexpr E2m1Bytes kE2m1Bytes(kE2m1);

}  // namespace ced
