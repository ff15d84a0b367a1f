#include "kernel/expert_gemm/pack.h"

#include <cstring>

#include "kernel/lanes.h"
#include "kernel/row.h"

using namespace ced;

namespace {

struct Matrix {
  const uint8_t *codes, *scales;
  uint32_t k;
};

// Items [begin, end) of a part whose tiles come from the matrices in turn.
struct PackItems {
  typedef uint32_t Row __attribute__((vector_size(32)));  // a row's codes of a k-step

  // The tile's row g and its partner bring 8 bytes in turn.
  static CED_INLINE void tile(const Matrix &m, uint32_t row, uint32_t step, uint32_t number, uint32_t tiles,
                              uint8_t *to) {
    const uint32_t k0 = step * Pack::kStep, n = m.k - k0 < Pack::kStep ? m.k - k0 : Pack::kStep;
    for (uint32_t g = 0; g < 8; g++) {
      uint64_t words[2][4];
      for (uint32_t h = 0; h < 2; h++) {
        const uint64_t at = row + g + 8 * h;
        __builtin_prefetch(m.codes + (at * m.k + k0) / 2 +
                           256);  // so many rows at once are beyond the processor's own
        Row q = {};
        if (n == Pack::kStep)
          memcpy(&q, m.codes + (at * m.k + k0) / 2, sizeof q);
        else
          memcpy(&q, m.codes + (at * m.k + k0) / 2, n / 2);
        q = pack_word(q);
        memcpy(words[h], &q, sizeof q);
        for (uint32_t b = 0; b < 2; b++)
          to[Pack::scales(g, b, number, tiles) + h] =
              32 * b < n ? m.scales[at * (m.k / 32) + k0 / 32 + b] : uint8_t{127};
      }
      uint8_t *lanes = to + Pack::kCodes * number + 64 * g;
      for (uint32_t t = 0; t < 4; t++)
        memcpy(lanes + 16 * t, &words[0][t], 8), memcpy(lanes + 16 * t + 8, &words[1][t], 8);
    }
  }

  template <int W>
  static CED_INLINE void run(const Matrix *matrices, uint32_t count, uint64_t begin, uint64_t end,
                             uint8_t *part) {
    const uint32_t k = matrices[0].k, tiles = 2 * count;
    for (auto item = static_cast<uint32_t>(begin); item < end; item++)
      for (uint32_t step = 0; step < Pack::steps(k); step++)
        for (uint32_t i = 0; i < tiles; i++)
          tile(matrices[i % count], Pack::kChannels * item + 16 * (i / count), step, i, tiles,
               part + Pack::step(item, step, k, tiles));
  }
};

}  // namespace

extern "C" uint64_t ced_expert_pack_bytes(uint32_t dim, uint32_t inter, uint64_t *w2) {
  *w2 = Pack::bytes(inter, dim, Pack::kUpTiles);
  return *w2 + Pack::bytes(dim, inter, Pack::kDownTiles);
}

extern "C" int ced_expert_pack(const ced_expert *from, uint32_t dim, uint32_t inter, uint32_t part,
                               uint32_t parts, uint64_t to, ced_err *err) {
  const char *name = "expert_pack";
  CED_TRY(check_multiple(name, "dim", dim, 32, err));
  CED_TRY(check_multiple(name, "inter", inter, 32, err));
  if (part >= parts) return fail(err, CED_EINVAL, "%s: part is %u, of %u", name, part, parts);
  if (from->w1 == 0 || from->w1_scales == 0 || from->w3 == 0 || from->w3_scales == 0 || from->w2 == 0 ||
      from->w2_scales == 0)
    return fail(err, CED_EINVAL, "%s: a tensor of the expert is missing", name);
  CED_TRY(check_address(name, "to", to, 32, err));
  const Matrix up[] = {{at<const uint8_t>(from->w1), at<const uint8_t>(from->w1_scales), dim},
                       {at<const uint8_t>(from->w3), at<const uint8_t>(from->w3_scales), dim}},
               down{at<const uint8_t>(from->w2), at<const uint8_t>(from->w2_scales), inter};
  const uint64_t first = inter / Pack::kChannels, second = dim / Pack::kChannels;
  vectorised<PackItems>(static_cast<const Matrix *>(up), 2u, first * part / parts, first * (part + 1) / parts,
                        at<uint8_t>(to));
  vectorised<PackItems>(&down, 1u, second * part / parts, second * (part + 1) / parts,
                        at<uint8_t>(to) + Pack::bytes(inter, dim, Pack::kUpTiles));
  return CED_OK;
}
