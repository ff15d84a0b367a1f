#include "device/isa.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "internal.h"
#if CED_WIDE
#include <immintrin.h>
#endif

namespace ced {
namespace {

constexpr const char *kVariable = "CEDRUN_ISA";
constexpr Isa kAll[] = {Isa::kPlain, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kNeon};

const char *wanted() {
  const char *name = getenv(kVariable);
  return name != nullptr && *name != 0 ? name : nullptr;
}

// The named set, or null.
const Isa *find(const char *name) {
  for (const Isa &isa : kAll)
    if (strcmp(isa_name(isa), name) == 0) return &isa;
  return nullptr;
}

#if CED_WIDE
// Whether VDPBF16PS multiplies faster than the f32 multiply-add, which does half the work: some cores split it. A few
// microseconds of each, the best of several, since the first ones wake the vector units.
typedef int64_t Ticks;
template <class Step>
__attribute__((always_inline)) inline Ticks ticks(Step step) {
  Ticks best = INT64_MAX;
  for (int round = 0; round < 8; round++) {
    const auto begin = __builtin_ia32_rdtsc();
    for (int i = 0; i < 64; i++) step();
    const auto spent = static_cast<Ticks>(__builtin_ia32_rdtsc() - begin);
    best = spent < best ? spent : best;
  }
  return best;
}

CED_AVX512_BF16 bool bf16_is_faster() {
  __m512 a[12] = {};
  const __m512i one = _mm512_set1_epi32(0x3F803F80);
  const Ticks fma = ticks([&]() CED_AVX512_BF16 {
    for (auto &v : a) v = _mm512_fmadd_ps(v, (__m512)one, (__m512)one);
    for (auto &v : a) __asm__ volatile("" : "+v"(v));
  });
  const Ticks dot = ticks([&]() CED_AVX512_BF16 {
    for (auto &v : a) v = _mm512_dpbf16_ps(v, (__m512bh)one, (__m512bh)one);
    for (auto &v : a) __asm__ volatile("" : "+v"(v));
  });
  return 10 * dot < 18 * fma;
}
#endif

Isa best() {
  Isa isa = Isa::kPlain;
  for (const Isa i : kAll)
    if (isa_supported(i)) isa = i;
#if CED_WIDE
  if (isa == Isa::kAvx512Bf16 && !bf16_is_faster()) isa = Isa::kAvx512;
#endif
  return isa;
}

}  // namespace

const char *isa_name(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512bf16";
    case Isa::kNeon:
      return "neon";
    default:
      return "plain";
  }
}

bool isa_supported(Isa isa) {
  switch (isa) {
    case Isa::kPlain:
      return true;
#if CED_WIDE
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("f16c");
    case Isa::kAvx512:
      return isa_supported(Isa::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
             __builtin_cpu_supports("avx512vnni");
    case Isa::kAvx512Bf16:
      return isa_supported(Isa::kAvx512) && __builtin_cpu_supports("avx512bf16");
#endif
#if CED_NEON
    case Isa::kNeon:
      return true;
#endif
    default:
      return false;
  }
}

int simd_width(Isa isa) {
  switch (isa) {
    case Isa::kAvx512:
    case Isa::kAvx512Bf16:
      return 16;
    case Isa::kAvx2:
      return 8;
    default:
      return 4;
  }
}

Isa isa() {
  static const Isa chosen = [] {
    const char *name = wanted();
    const Isa *forced = name != nullptr ? find(name) : nullptr;
    return forced != nullptr && isa_supported(*forced) ? *forced : best();
  }();
  return chosen;
}

int check_isa(ced_err *err) {
  const char *name = wanted();
  if (name == nullptr) return CED_OK;
  const Isa *isa = find(name);
  if (isa != nullptr && isa_supported(*isa)) return CED_OK;
  std::string names;
  for (const Isa i : kAll)
    if (isa_supported(i)) names += (names.empty() ? "" : ", ") + std::string(isa_name(i));
  return fail(err, CED_EINVAL, "%s=%s: %s; use one of: %s", kVariable, name,
              isa == nullptr ? "unknown instruction set" : "not supported by this machine or build",
              names.c_str());
}

}  // namespace ced

extern "C" const char *ced_isa(void) { return ced::isa_name(ced::isa()); }
