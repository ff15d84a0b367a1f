// isa.h: which instructions the CPU bodies use. All of them give the same bits.
#pragma once
#include "ced.h"

// Code for instructions beyond the build's baseline: CED_AVX2 and CED_AVX512 functions are called only where isa()
// allows it. Not under sanitizers: they want plain code.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define CED_WIDE 1
#define CED_AVX2 __attribute__((target("avx2,fma,f16c")))
#define CED_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni,avx2,fma,f16c")))
#define CED_AVX512_BF16                                                                      \
  __attribute__((                                                                            \
      target("avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni,avx2,fma," \
             "f16c")))
#else
#define CED_WIDE 0
#endif
#if defined(__aarch64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CED_NEON 1
#else
#define CED_NEON 0
#endif

namespace ced {

enum class Isa {
  kPlain,       // the compiler's baseline
  kAvx2,        // with FMA and F16C
  kAvx512,      // F, BW, DQ, VL, VBMI, VNNI (Ice Lake, Zen 4 and later); f32 multiply-add
  kAvx512Bf16,  // and VDPBF16PS
  kNeon,        // aarch64
};

// The best set that this machine supports, or the one that the environment variable CEDRUN_ISA names. Constant.
// kAvx512Bf16 is best where VDPBF16PS is measured to multiply faster than the f32 multiply-add.
Isa isa();
bool isa_supported(Isa isa);
const char *isa_name(Isa isa);
// f32 lanes of a vector: 16, 8 or 4.
int simd_width(Isa isa);
inline int simd_width() { return simd_width(isa()); }

// Refuses a CEDRUN_ISA that is unknown, or that this build or machine lacks.
int check_isa(ced_err *err);

}  // namespace ced
