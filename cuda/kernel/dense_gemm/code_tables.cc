#include "kernel/dense_gemm/code_tables.h"

namespace ced {

constexpr E2m1Table kE2m1;
constexpr E2m1Bytes kE2m1Bytes(kE2m1);
constexpr E4m3Table kE4m3;

}  // namespace ced
