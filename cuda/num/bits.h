// bits.h: bit patterns of f32, and the mark of code that runs on host and device.
#pragma once
#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define CED_HD __host__ __device__
#else
#define CED_HD
#endif

namespace ced {

CED_HD inline uint32_t f32_bits(float x) {
  uint32_t u;
  memcpy(&u, &x, 4);
  return u;
}

CED_HD inline float f32_of(uint32_t u) {
  float x;
  memcpy(&x, &u, 4);
  return x;
}

CED_HD inline float f32_abs(float x) { return f32_of(f32_bits(x) & 0x7FFFFFFFu); }
CED_HD inline float f32_max(float a, float b) { return a > b ? a : b; }
CED_HD inline float f32_min(float a, float b) { return a < b ? a : b; }

}  // namespace ced
