#include "kernel/csa2_attend/block.h"
#include "num/e8m0.h"
#include "num/fp8.h"

#define CED_TARGET
#define CED_OP static inline __attribute__((always_inline))

namespace ced {
namespace {

// The two values of a byte of e2m1 codes.
struct Pairs {
  float v[256][2] = {};
  constexpr Pairs() {
    constexpr float kValues[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    for (int i = 0; i < 256; i++) v[i][0] = kValues[i & 15], v[i][1] = kValues[i >> 4];
  }
};
constexpr Pairs kPairs;

struct M {
  typedef float F __attribute__((vector_size(16)));
  typedef float Memory __attribute__((vector_size(16), aligned(1), may_alias));
  typedef int32_t I __attribute__((vector_size(16)));
  typedef uint32_t U __attribute__((vector_size(16)));
  typedef uint64_t U64 __attribute__((vector_size(16)));
  static constexpr int W = 4, kScoreHeads = 4, kScoreKeys = 2, kMixHeads = 4, kMixVectors = 2;

  CED_OP F load(const float *p) { return *reinterpret_cast<const Memory *>(p); }
  CED_OP void store(float *p, F v) { *reinterpret_cast<Memory *>(p) = v; }
  CED_OP F broadcast(float x) { return F{x, x, x, x}; }
  CED_OP F zero() { return F{}; }
  CED_OP F add(F a, F b) { return a + b; }
  CED_OP F mul(F a, F b) { return a * b; }
  CED_OP F fma(F a, F b, F c) { return a * b + c; }

  // Subnormals through an integer conversion: denormal operands are slow.
  CED_OP void e4m3(const uint8_t *codes, float factor, float *out) {
    for (int i = 0; i < 16; i += 4) {
      const U code = {codes[i], codes[i + 1], codes[i + 2], codes[i + 3]}, magnitude = code & 0x7Fu;
      const F small = __builtin_convertvector((I)magnitude, F) * 0x1p-17f,
              normal = (F)((magnitude << 20) + (112u << 23));
      const U v = magnitude < 8 ? (U)small : (U)normal;
      store(out + i, (F)(v | ((code & 0x80u) << 24)) * factor);
    }
  }

  CED_OP void e2m1(const uint8_t *codes, float scale, float *out) {
    for (int i = 0; i < 8; i += 2) {
      uint64_t low, high;
      memcpy(&low, kPairs.v[codes[i]], 8);
      memcpy(&high, kPairs.v[codes[i + 1]], 8);
      store(out + 2 * i, (F)U64{low, high} * scale);
    }
  }

  CED_OP void sums(const F (&dot)[4][4][2], float scale, float *logits) {
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < 2; j++) {
        const F t = (dot[0][i][j] + dot[2][i][j]) + (dot[1][i][j] + dot[3][i][j]);
        logits[i * kBlock + j] = ((t[0] + t[2]) + (t[1] + t[3])) * scale;
      }
  }
};

}  // namespace
}  // namespace ced

#include "kernel/csa2_attend/block_body.h"

const ced::BlockOps ced::kBlockPlain = ced::kOps;

const ced::BlockOps &ced::block_ops(Isa isa) {
  switch (isa) {
#if CED_WIDE
    case Isa::kAvx512:
    case Isa::kAvx512Bf16:
      return kBlockAvx512;
    case Isa::kAvx2:
      return kBlockAvx2;
#endif
#if CED_NEON
    case Isa::kNeon:
      return kBlockNeon;
#endif
    default:
      return kBlockPlain;
  }
}
