// probe.cc: what this machine's memory and multiply units can do, the limits that kernels are measured against.
#include <atomic>
#include <cstring>

#include "device/isa.h"
#include "device/stream.h"
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define CED_INLINE inline __attribute__((always_inline))

namespace ced {
namespace {

constexpr int64_t kReadPiece = 1 << 20;  // bytes
constexpr int kRounds = 1 << 15, kAccumulators = 16;

typedef uint64_t V2 __attribute__((vector_size(16)));
typedef uint64_t V4 __attribute__((vector_size(32)));
typedef uint64_t V8 __attribute__((vector_size(64)));

// Sums a piece as 64-bit words: eight sums, so that additions never wait for each other.
template <class V>
CED_INLINE uint64_t sum_words(const uint8_t *p, int64_t bytes) {
  constexpr int kSums = 8, kStep = sizeof(V);
  V sums[kSums] = {};
  int64_t at = 0;
  for (; at + kSums * kStep <= bytes; at += kSums * kStep) {
    for (int i = 0; i < kSums; i++) {
      V v;
      memcpy(&v, p + at + i * kStep, kStep);
      sums[i] += v;
    }
  }
  uint64_t sum = 0;
  for (const V &v : sums) {
    for (size_t j = 0; j < kStep / sizeof(uint64_t); j++) sum += v[j];
  }
  for (; at < bytes; at++) sum += p[at];
  return sum;
}

// A round multiplies and adds in every lane of all accumulators. They start apart and the empty asm may change the
// factor, so the compiler can neither merge nor fold them.
uint64_t multiply_plain(float x) {
  float sums[kAccumulators];
  for (int i = 0; i < kAccumulators; i++) sums[i] = static_cast<float>(i);
  for (int r = 0; r < kRounds; r++) {
    __asm__ volatile("" : "+r"(x));
    for (float &s : sums) s += x * x;
  }
  for (float s : sums) sums[0] += s;
  return static_cast<uint64_t>(sums[0]);
}

#if CED_WIDE
CED_AVX512 uint64_t read_avx512(const uint8_t *p, int64_t n) { return sum_words<V8>(p, n); }
CED_AVX2 uint64_t read_avx2(const uint8_t *p, int64_t n) { return sum_words<V4>(p, n); }

CED_AVX512 uint64_t multiply_avx512(float x) {
  __m512 v = _mm512_set1_ps(x);
  __m512 sums[kAccumulators];
  for (int i = 0; i < kAccumulators; i++) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  for (int r = 0; r < kRounds; r++) {
    __asm__ volatile("" : "+v"(v));
    for (auto &s : sums) s = _mm512_fmadd_ps(v, v, s);
  }
  for (auto &s : sums) sums[0] = _mm512_add_ps(sums[0], s);
  return static_cast<uint64_t>(_mm512_cvtss_f32(sums[0]));
}

CED_AVX512_BF16 uint64_t multiply_bf16(float x) {
  __m512bh v = _mm512_cvtne2ps_pbh(_mm512_set1_ps(x), _mm512_set1_ps(x));
  __m512 sums[kAccumulators];
  for (int i = 0; i < kAccumulators; i++) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  for (int r = 0; r < kRounds; r++) {
    __asm__ volatile("" : "+v"(v));
    for (auto &s : sums) s = _mm512_dpbf16_ps(s, v, v);
  }
  for (auto &s : sums) sums[0] = _mm512_add_ps(sums[0], s);
  return static_cast<uint64_t>(_mm512_cvtss_f32(sums[0]));
}

constexpr int kAvx2Accumulators = 14;  // of 16 registers
CED_AVX2 uint64_t multiply_avx2(float x) {
  __m256 v = _mm256_set1_ps(x);
  __m256 sums[kAvx2Accumulators];
  for (int i = 0; i < kAvx2Accumulators; i++) sums[i] = _mm256_set1_ps(static_cast<float>(i));
  for (int r = 0; r < kRounds; r++) {
    __asm__ volatile("" : "+x"(v));
    for (auto &s : sums) s = _mm256_fmadd_ps(v, v, s);
  }
  for (auto &s : sums) sums[0] = _mm256_add_ps(sums[0], s);
  return static_cast<uint64_t>(_mm256_cvtss_f32(sums[0]));
}
#elif CED_NEON
uint64_t multiply_neon(float x) {
  float32x4_t v = vdupq_n_f32(x);
  float32x4_t sums[kAccumulators];
  for (int i = 0; i < kAccumulators; i++) sums[i] = vdupq_n_f32(static_cast<float>(i));
  for (int r = 0; r < kRounds; r++) {
    __asm__ volatile("" : "+w"(v));
    for (auto &s : sums) s = vfmaq_f32(s, v, v);
  }
  for (auto &s : sums) sums[0] = vaddq_f32(sums[0], s);
  return static_cast<uint64_t>(vgetq_lane_f32(sums[0], 0));
}
#endif

uint64_t read_plain(const uint8_t *p, int64_t n) { return sum_words<V2>(p, n); }

using Read = uint64_t (*)(const uint8_t *, int64_t);
using Multiply = uint64_t (*)(float);

// The machine's best, whatever CEDRUN_ISA forces on the kernels.
Read best_read() {
#if CED_WIDE
  if (isa_supported(Isa::kAvx512)) return read_avx512;
  if (isa_supported(Isa::kAvx2)) return read_avx2;
#endif
  return read_plain;
}

// The loop and the multiplications and additions of one call of it.
Multiply best_multiply(bool bf16, double *flops) {
  const double lanes = 2.0 * kRounds * kAccumulators;
#if CED_WIDE
  if (bf16 && isa_supported(Isa::kAvx512Bf16)) {
    *flops = lanes * 32;
    return multiply_bf16;
  }
  if (isa_supported(Isa::kAvx512)) {
    *flops = lanes * 16;
    return multiply_avx512;
  }
  if (isa_supported(Isa::kAvx2)) {
    *flops = 2.0 * kRounds * kAvx2Accumulators * 8;
    return multiply_avx2;
  }
#elif CED_NEON
  *flops = lanes * 4;
  return multiply_neon;
#endif
  static_cast<void>(bf16);
  *flops = lanes;
  return multiply_plain;
}

}  // namespace
}  // namespace ced

extern "C" {

int ced_probe_read(ced_stream *s, uint64_t addr, uint64_t bytes, uint64_t *sum, ced_err *err) {
  if (bytes > 0 && addr == 0) return ced::fail(err, CED_EINVAL, "probe_read: addr is missing");
  if (s->kind == CED_CUDA) return ced::cuda_probe_read(s, addr, bytes, sum, err);
  if (sum == nullptr) return ced::fail(err, CED_EINVAL, "probe_read: sum is missing");
  const ced::Read read = ced::best_read();
  std::atomic<uint64_t> total{0};
  ced::parallel_for(s, static_cast<int64_t>(bytes), ced::kReadPiece, [&](int64_t begin, int64_t end, int) {
    total += read(ced::at<const uint8_t>(addr) + begin, end - begin);
  });
  *sum = total;
  return CED_OK;
}

int ced_probe_multiply(ced_stream *s, int bf16, uint32_t calls, double *flops, ced_err *err) {
  if (flops == nullptr) return ced::fail(err, CED_EINVAL, "probe_multiply: flops is missing");
  if (s->kind == CED_CUDA) return ced::cuda_probe_multiply(s, bf16 != 0, calls, flops, err);
  double each = 0;
  const ced::Multiply multiply = ced::best_multiply(bf16 != 0, &each);
  std::atomic<uint64_t> total{0};
  ced::parallel_for(s, calls, 1, [&](int64_t, int64_t, int) { total += multiply(0.5F); });
  *flops = total > 0 ? each * calls : 0;
  return CED_OK;
}

}  // extern "C"
