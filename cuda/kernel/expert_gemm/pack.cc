#include "kernel/expert_gemm/pack.h"

#include <cstring>

#include "kernel/row.h"

using namespace ced;

namespace {

typedef uint32_t Words8 __attribute__((vector_size(32)));  // a row's codes of a k-step

struct Matrix {
  const uint8_t *codes, *scales;
  uint32_t k;
};

// Row r of 16 and its partner lie side by side: a row brings 8 of every 16 bytes.
void pack_tile(const Matrix &m, uint32_t row, uint32_t step, uint8_t *to) {
  const uint32_t k0 = step * Pack::kStep, n = m.k - k0 < Pack::kStep ? m.k - k0 : Pack::kStep;
  for (uint32_t r = 0; r < 16; r++) {
    const uint64_t at = row + r;
    Words8 q = {};
    if (n == Pack::kStep)
      memcpy(&q, m.codes + (at * m.k + k0) / 2, sizeof q);
    else
      memcpy(&q, m.codes + (at * m.k + k0) / 2, n / 2);
    q = pack_word(q);
    uint8_t *lane = to + r % 8 * 64 + r / 8 * 8;
    for (uint32_t t = 0; t < 4; t++) memcpy(lane + 16 * t, reinterpret_cast<const uint8_t *>(&q) + 8 * t, 8);
    for (uint32_t b = 0; b < 2; b++)
      to[Pack::kCodes + r % 8 * 4 + 2 * b + r / 8] =
          32 * b < n ? m.scales[at * (m.k / 32) + k0 / 32 + b] : uint8_t{127};
  }
}

// Items [begin, end) of a part whose tiles come from the matrices in turn.
void pack_items(const Matrix *matrices, uint32_t count, uint64_t begin, uint64_t end, uint8_t *to) {
  const uint32_t k = matrices[0].k, tiles = 2 * count;
  for (auto item = static_cast<uint32_t>(begin); item < end; item++)
    for (uint32_t step = 0; step < Pack::steps(k); step++)
      for (uint32_t i = 0; i < tiles; i++)
        pack_tile(matrices[i % count], Pack::kChannels * item + 16 * (i / count), step,
                  to + Pack::tile(item, step, i, k, tiles));
}

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
  pack_items(up, 2, first * part / parts, first * (part + 1) / parts, at<uint8_t>(to));
  pack_items(&down, 1, second * part / parts, second * (part + 1) / parts,
             at<uint8_t>(to) + Pack::bytes(inter, dim, Pack::kUpTiles));
  return CED_OK;
}
