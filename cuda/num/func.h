// func.h: functions of the canonical arithmetic (spec 3.0): one f64 expression of f32 arguments, rounded
// once.
#pragma once
#include <cmath>

#include "num/bits.h"

namespace ced {

CED_HD inline float f32_exp(float x) { return static_cast<float>(exp(static_cast<double>(x))); }
CED_HD inline float f32_rsqrt(float x) { return static_cast<float>(1.0 / sqrt(static_cast<double>(x))); }
CED_HD inline float f32_sigmoid(float x) {
  return static_cast<float>(1.0 / (1.0 + exp(-static_cast<double>(x))));
}

CED_HD inline float f32_silu(float x) {
  const double z = x;
  return static_cast<float>(z / (1.0 + exp(-z)));
}

CED_HD inline float f32_softplus(float x) {
  const double z = x;
  return static_cast<float>(z > 20 ? z : log1p(exp(z)));
}

}  // namespace ced
