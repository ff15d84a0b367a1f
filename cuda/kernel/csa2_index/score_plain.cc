#include "kernel/csa2_index/score.h"
#include "num/bf16.h"
#include "num/e8m0.h"

#define CED_TARGET
#define CED_OP static inline __attribute__((always_inline))

namespace ced {
namespace {

struct M {
  typedef float F __attribute__((vector_size(16)));
  typedef int32_t I __attribute__((vector_size(16)));
  typedef uint32_t U __attribute__((vector_size(16)));
  typedef int16_t I16 __attribute__((vector_size(16)));
  static constexpr int W = 4, H = 2, V = 4, kDecodeKeys = 1;

  CED_OP F load(const float *p) { return F{p[0], p[1], p[2], p[3]}; }
  CED_OP F broadcast(float x) { return F{x, x, x, x}; }
  CED_OP F zero() { return F{}; }
  CED_OP F add(F a, F b) { return a + b; }
  CED_OP F mul(F a, F b) { return a * b; }
  CED_OP F fma(F a, F b, F c) { return a * b + c; }
  CED_OP F to_f32(I a) { return __builtin_convertvector(a, F); }
  CED_OP F positive(F a) { return a > zero() ? a : zero(); }
  CED_OP F round_bf16(F a) {
    const U u = (U)a;
    return (F)((u + 0x7FFFu + ((u >> 16) & 1u)) & 0xFFFF0000u);
  }
  CED_OP void store_scores(Score *out, F a) {
    for (int i = 0; i < W; i++) out[i] = score_of(static_cast<uint16_t>(f32_bits(a[i]) >> 16));
  }

  // Sixteen-bit products of the even and of the odd bytes.
  CED_OP void block(const uint8_t *keys, const int8_t *q, const int32_t *offset, int stride, I (&sum)[H][V]) {
    I16 part[H][V] = {};
    for (int word = 0; word < kBlockWords; word++) {
      I16 even[V], odd[V];
      for (int v = 0; v < V; v++) {
        memcpy(&odd[v], keys + word * kTileKeys * 4 + v * W * 4, sizeof odd[v]);
        even[v] = odd[v] & 255, odd[v] = odd[v] >> 8;
      }
      for (int i = 0; i < H; i++) {
        int32_t x;
        memcpy(&x, q + (word * kIndexHeads + i) * 4, 4);
        const I16 both = (I16)(I{} + x), e = (both << 8) >> 8, o = both >> 8;
        for (int v = 0; v < V; v++) part[i][v] += even[v] * e + odd[v] * o;
      }
    }
    for (int i = 0; i < H; i++)
      for (int v = 0; v < V; v++) {
        const I both = (I)part[i][v];
        sum[i][v] = ((I)((U)both << 16) >> 16) + (both >> 16) + offset[i * stride];
      }
  }

  CED_OP void decode(const IndexKey *keys, int b, uint8_t *out) {
    static constexpr uint8_t kValues[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
    const uint8_t *codes = keys->codes + 16 * b;
    for (int w = 0; w < 4; w++)
      for (int i = 0; i < 4; i++) {
        const uint8_t pair = codes[4 * w + i];
        out[2 * w * kTileKeys * 4 + i] = kValues[pair & 15];
        out[(2 * w + 1) * kTileKeys * 4 + i] = kValues[pair >> 4];
      }
  }
};

}  // namespace
}  // namespace ced

#include "kernel/csa2_index/score_body.h"

namespace ced {
namespace {

void decode(const IndexKey *keys, int dim, bool, bool, KeyTile *tile) { decode_words(keys, dim / 32, tile); }

}  // namespace
}  // namespace ced

const ced::ScoreOps ced::kScorePlain = {ced::decode, ced::score_words, false};

const ced::ScoreOps &ced::score_ops(Isa isa) {
  switch (isa) {
#if CED_WIDE
    case Isa::kAvx512:
    case Isa::kAvx512Bf16:
      return kScoreAvx512;
    case Isa::kAvx2:
      return kScoreAvx2;
#endif
#if CED_NEON
    case Isa::kNeon:
      return kScoreNeon;
#endif
    default:
      return kScorePlain;
  }
}
