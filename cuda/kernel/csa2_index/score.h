// score.h: scores of 32 index keys against one query row, once per instruction set. All give the same bits: the dot
// product of 32 channels of FP4 codes is a sum of small integers, hence exact in any order, and what follows it is
// f32 arithmetic in a fixed order with exact products:
//   dot_h = sum over blocks in order of integer * (query scale * key scale)
//   score = bf16(sum over heads in order of bf16(max(bf16(dot_h), 0) * w_h))
// Key scales up to 2^-126, of blocks of zeros, count as 0: products with them would be slow denormals.
#pragma once
#include "device/isa.h"
#include "kernel/csa2_index/select.h"
#include "kernel/kv_rows.h"

namespace ced {

constexpr uint32_t kMaxIndexDim = 512, kMaxIndexHeads = 256;
constexpr int kTileKeys = 32;    // keys that are decoded together
constexpr int kIndexHeads = 8;   // heads are padded to a multiple of this
constexpr int kKeyOffset = 12;   // added to twice a key's value: 0..24
constexpr int kMaxFold = 3;      // binades that scales of a folded row may span
constexpr int kFoldOffset = 96;  // added to twice a key's value times its fold: 0..192

// A block of 32 channels is eight words of four: word 2i has the channels 8i, 8i+2, 8i+4, 8i+6 (low nibbles of the
// codes' 32-bit words), word 2i+1 has the odd ones.
constexpr int kBlockWords = 8;

struct IndexKey {
  const uint8_t *codes, *scales;
};

// 32 decoded keys: by word, then by key, four bytes of channels.
struct KeyTile {
  alignas(64) uint8_t words[kMaxIndexDim / 4][kTileKeys][4];  // twice the value + kKeyOffset
  alignas(64) float scales[kMaxIndexDim / 32][kTileKeys];     //
  alignas(64)
      uint8_t folded[kMaxIndexDim / 4][kTileKeys][4];  // twice the value * 2^fold of its block + kFoldOffset
  alignas(64) float fold_scale[kTileKeys];             // scale of fold 0
  bool has_words, has_folded;
};

// A query row's heads, padded with zeros. words: [heads / 8][dim/4][8][4], twice the values.
struct IndexQuery {
  int8_t *words;
  int32_t *offset;  // [heads, dim/32] -kKeyOffset * the block's sum
  float *scales;    // [heads, dim/32] a quarter of the scale: both sides are doubled
  float *w;         // [heads]
  // Where the scales of every head span few binades: the values times 2^fold of their block, the scale of fold 0 in w.
  int8_t *folded;
  int32_t *fold_offset;  // [heads] -kFoldOffset * the head's sum
  float *fold_w;
  bool folds;
};

struct ScoreOps {
  // Decodes 32 keys: words, or folded words where the keys allow it; words as well if they are wanted.
  void (*decode)(const IndexKey *keys, int dim, bool words, bool folded, KeyTile *tile);
  void (*score)(const KeyTile &tile, const IndexQuery &q, int heads, int dim, Score *out);
  bool folds;  // has a use for folded queries
};

// Those of an instruction set that this machine supports.
const ScoreOps &score_ops(Isa isa);

extern const ScoreOps kScorePlain, kScoreAvx2, kScoreAvx512, kScoreNeon;  // defined where the build has them

}  // namespace ced
