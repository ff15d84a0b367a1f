// block.h: what attention does with a block of 64 keys, once per instruction set. All give the same bits: the products
// of a BF16 and a key's channel are exact in f32, so that fused and separate additions agree, and the order of the
// additions is fixed (for q of magnitude 0 or 2^-90 and more: below that, products leave the range of f32).
#pragma once
#include "device/isa.h"
#include "kernel/csa2_attend/csa2_attend.h"

namespace ced {

constexpr int kHeadTile = 8;  // heads that are computed together; head counts are padded to it
constexpr int kQueryLanes = 16;
constexpr int kChunk = 8;  // keys that are multiplied with the queries while the first-level cache has them

// Floats from one key's values to the next: rows of 2 KB would all fall into the same sets of the first-level cache.
constexpr int64_t value_stride(int64_t dim) { return dim + 16; }

struct BlockOps {
  // Dequantised rows of n keys, [n, value_stride(dim)]. Asks for those kChunk keys on, of which `more` follow the n.
  void (*values)(const Key *keys, int n, int more, int64_t dim, float *out);
  // logits[h][j] = scale * q_h . key j, [tiles * 8, 64]; those from n on are undefined. q [tiles, dim/16, 8, 16].
  // Lane l of 16 adds channels l, l+16, ... in this order, then the lanes at distances 8, 4, 2, 1.
  void (*scores)(const float *q, int64_t tiles, const float *values, int n, int64_t dim, float scale,
                 float *logits);
  // acc[h] = acc[h] * carry[h] + sum over j in order of p[h][j] * values[j]. acc [tiles * 8, dim], p [tiles * 8, 64].
  void (*mix)(const float *p, const float *carry, const float *values, int n, int64_t dim, int64_t tiles,
              float *acc);
};

// Those of an instruction set that this machine supports.
const BlockOps &block_ops(Isa isa);

extern const BlockOps kBlockPlain, kBlockAvx2, kBlockAvx512, kBlockNeon;  // defined where the build has them

}  // namespace ced
