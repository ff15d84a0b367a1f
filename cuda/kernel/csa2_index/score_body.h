// score_body.h: ScoreOps from the vector operations of one instruction set. Included once by each file that defines
//   CED_TARGET  the attribute of functions that use it
//   M           W lanes F of f32 and I of i32; decode() of kDecodeKeys keys' block; block(), the integer sums of a
//               block for H heads and V vectors of keys; f32 operations; store_scores()
namespace ced {
namespace {

typedef M::F F;
typedef M::I I;
constexpr int W = M::W, H = M::H, V = M::V;

CED_TARGET void decode_scales(const IndexKey *keys, int blocks, KeyTile *tile) {
  for (int i = 0; i < kTileKeys; i++)
    for (int b = 0; b < blocks; b++) {
      const uint8_t e = keys[i].scales[b];
      tile->scales[b][i] = e <= 1 ? 0 : e8m0_to_f32(e);
    }
}

CED_TARGET void decode_words(const IndexKey *keys, int blocks, KeyTile *tile) {
  for (int i = 0; i < kTileKeys; i += M::kDecodeKeys)
    for (int b = 0; b < blocks; b++) M::decode(keys + i, b, tile->words[b * kBlockWords][i]);
  decode_scales(keys, blocks, tile);
  tile->has_words = true;
}

CED_TARGET void score_words(const KeyTile &tile, const IndexQuery &q, int heads, int dim, Score *out) {
  const int blocks = dim / 32;
  for (int key = 0; key < kTileKeys; key += V * W) {
    F total[V];
    for (int v = 0; v < V; v++) total[v] = M::zero();
    for (int h = 0; h < heads; h += H) {
      F dot[H][V];
#pragma GCC unroll 8
      for (int i = 0; i < H; i++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) dot[i][v] = M::zero();
      const int8_t *words = q.words + h / kIndexHeads * kIndexHeads * dim + h % kIndexHeads * 4;
      for (int b = 0; b < blocks; b++, words += kBlockWords * kIndexHeads * 4) {
        I sum[H][V];
        M::block(tile.words[b * kBlockWords][key], words, q.offset + h * blocks + b, blocks, sum);
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) {
          const F scale = M::load(&tile.scales[b][key + v * W]);
#pragma GCC unroll 8
          for (int i = 0; i < H; i++) {
            const F both = M::mul(scale, M::broadcast(q.scales[(h + i) * blocks + b]));
            dot[i][v] = M::fma(M::to_f32(sum[i][v]), both, dot[i][v]);
          }
        }
      }
#pragma GCC unroll 8
      for (int i = 0; i < H; i++) {
        const F w = M::broadcast(q.w[h + i]);
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
          total[v] = M::add(total[v], M::round_bf16(M::mul(M::positive(M::round_bf16(dot[i][v])), w)));
      }
    }
    for (int v = 0; v < V; v++) M::store_scores(out + key + v * W, M::round_bf16(total[v]));
  }
}

}  // namespace
}  // namespace ced
