// decode.h: sizes of the formats, and inlining across instruction sets.
#pragma once
#include <cstdint>
#include <cstring>

#include "ced.h"
#include "device/isa.h"
#include "num/bf16.h"
#include "num/e8m0.h"
#include "num/fp8.h"

#define CED_INLINE inline __attribute__((always_inline))

namespace ced {

// Bytes of 32 elements.
constexpr uint32_t bytes32(ced_format f) {
  return f == CED_F32 ? 128 : f == CED_BF16 ? 64 : f == CED_FP8 ? 32 : 16;
}

}  // namespace ced
