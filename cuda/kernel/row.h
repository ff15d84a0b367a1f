// row.h: what several kernels do to one row, in canonical arithmetic (spec 3.0). Rows are BF16 values held as
// f32. Also the checks that several kernels make.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>

#include "internal.h"
#include "num/bf16.h"
#include "num/func.h"

namespace ced {

// Element i of a checkpoint tensor, which may start at any byte.
inline float weight_at(uint64_t tensor, uint32_t format, size_t i) {
  if (format == CED_BF16) {
    uint16_t h;
    memcpy(&h, at<const char>(tensor) + 2 * i, 2);
    return bf16_to_f32(h);
  }
  float f;
  memcpy(&f, at<const char>(tensor) + 4 * i, 4);
  return f;
}

// 1/sqrt(mean(x^2) + eps).
inline float rms_scale(const float *x, int64_t n, float eps) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += static_cast<double>(x[i] * x[i]);
  return f32_rsqrt(static_cast<float>(sum / static_cast<double>(n)) + eps);
}

// RMSNorm (spec 3.1) in place.
inline void rms_norm(float *x, int n, uint64_t weight, uint32_t format, float eps) {
  const float scale = rms_scale(x, n, eps);
  for (int i = 0; i < n; i++)
    x[i] = bf16_round(weight_at(weight, format, static_cast<size_t>(i)) * (x[i] * scale));
}

// The rotations of a position (spec 3.7), one a pair of channels.
inline void rope_angles(const float *freqs, int pairs, int32_t position, float *cosine, float *sine) {
  for (int i = 0; i < pairs; i++) {
    const double angle = static_cast<float>(position) * freqs[i];
    cosine[i] = static_cast<float>(std::cos(angle)), sine[i] = static_cast<float>(std::sin(angle));
  }
}

// Rotates adjacent pairs of channels in place.
inline void rotate_pairs(float *x, int pairs, const float *cosine, const float *sine) {
  for (int i = 0; i < pairs; i++) {
    const float e = x[2 * i], o = x[2 * i + 1];
    x[2 * i] = bf16_round(e * cosine[i] - o * sine[i]);
    x[2 * i + 1] = bf16_round(e * sine[i] + o * cosine[i]);
  }
}

// Rotates the last rope_dim of n channels in place.
inline void rotate(float *x, int n, int rope_dim, const float *freqs, int32_t position) {
  for (int i = 0; i < rope_dim / 2; i++) {
    float cosine, sine;
    rope_angles(freqs + i, 1, position, &cosine, &sine);
    rotate_pairs(x + (n - rope_dim) + 2 * i, 1, &cosine, &sine);
  }
}

inline void load_row(const uint16_t *bf16, int64_t n, float *x) {
  for (int64_t i = 0; i < n; i++) x[i] = bf16_to_f32(bf16[i]);
}

// The longest row that the row-wise kernels keep on the stack.
constexpr uint32_t kMaxRow = 8192;

inline int check_range(const char *kernel, const char *field, uint64_t value, uint64_t low, uint64_t high,
                       ced_err *err) {
  if (value >= low && value <= high) return CED_OK;
  return fail(err, CED_EINVAL, "%s: %s is %llu, must be %llu..%llu", kernel, field,
              static_cast<unsigned long long>(value), static_cast<unsigned long long>(low),
              static_cast<unsigned long long>(high));
}

inline int check_multiple(const char *kernel, const char *field, uint64_t value, uint64_t of, ced_err *err) {
  if (value > 0 && value % of == 0) return CED_OK;
  return fail(err, CED_EINVAL, "%s: %s is %llu, must be a positive multiple of %llu", kernel, field,
              static_cast<unsigned long long>(value), static_cast<unsigned long long>(of));
}

// Rotary channels: even, and inside a row of dim.
inline int check_rope(const char *kernel, uint32_t rope_dim, uint32_t dim, ced_err *err) {
  if (rope_dim % 2 == 0 && rope_dim <= dim) return CED_OK;
  return fail(err, CED_EINVAL, "%s: rope_dim is %u, must be even and at most %u", kernel, rope_dim, dim);
}

inline int check_weight(const char *kernel, const char *field, uint64_t tensor, uint32_t format,
                        ced_err *err) {
  if (format != CED_BF16 && format != CED_F32)
    return fail(err, CED_EINVAL, "%s: weight_format is %u, must be BF16 or F32", kernel, format);
  return check_address(kernel, field, tensor, 1, err);
}

// A ced_rows whose position and slot lists are there (host streams; device memory cannot be looked into).
inline int check_sequence_rows(const ced_stream *s, const char *kernel, uint64_t rows, uint32_t max_rows,
                               ced_err *err) {
  const int rc = check_rows(s, kernel, rows, max_rows, err);
  if (rc != CED_OK || kind_of(s) == CED_CUDA || row_count(rows) == 0) return rc;
  const auto &r = *at<const ced_rows>(rows);
  if (r.pos && r.slot) return CED_OK;
  return fail(err, CED_EINVAL, "%s: rows->%s is null", kernel, r.pos ? "slot" : "pos");
}

}  // namespace ced
