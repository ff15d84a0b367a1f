// block_body.h: BlockOps from the vector operations of one instruction set. Included once by each file that defines
//   CED_TARGET  the attribute of functions that use it
//   M           W lanes F; load, store, broadcast, zero, add, mul; fma(a, b, c) = a*b + c; sixteen codes to f32:
//               e4m3(codes, factor, out): values / 256 * factor, e2m1(codes, scale, out);
//               sums() of the lanes of kScoreHeads x kScoreKeys dot products
namespace ced {
namespace {

typedef M::F F;
constexpr int W = M::W, kParts = kQueryLanes / W;

CED_TARGET void prefetch(const Key &key, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(key.codes + i);
  __builtin_prefetch(key.scales);
}

CED_TARGET void values(const Key *keys, int n, int more, int64_t dim, float *out) {
  for (int j = 0; j < n; j++, out += value_stride(dim)) {
    const Key &key = keys[j];
    if (j + kChunk < n + more) prefetch(keys[j + kChunk], keys[j + kChunk].global ? dim / 2 : dim);
    if (!key.global) {
      for (int64_t d = 0; d < dim; d += 32) {
        const uint8_t scale = key.scales[d / 32];
        const float factor = e8m0_to_f32(static_cast<uint8_t>(scale < 247 ? scale + 8 : scale));
        M::e4m3(key.codes + d, factor, out + d);
        M::e4m3(key.codes + d + 16, factor, out + d + 16);
        for (int64_t i = d; scale >= 247 && i < d + 32; i++) out[i] *= 256;
      }
      continue;
    }
    // All scales first: read back one by one, they are broadcast by the loads.
    alignas(64) float scales[kMaxRow / 16];
    const int64_t groups = dim / 16;
    for (int64_t g = 0; g < groups; g += 16) {
      uint8_t tail[16] = {};
      if (groups - g < 16) memcpy(tail, key.scales + g, static_cast<size_t>(groups - g));
      M::e4m3(groups - g < 16 ? tail : key.scales + g, 256, scales + g);
    }
    for (int64_t g = 0; g < groups; g++) M::e2m1(key.codes + 8 * g, scales[g], out + 16 * g);
  }
}

CED_TARGET void scores(const float *q, int64_t tiles, const float *keys, int n, int64_t dim, float scale,
                       float *logits) {
  constexpr int H = M::kScoreHeads, K = M::kScoreKeys;
  for (int64_t h = 0; h < tiles * kHeadTile; h += H) {
    const float *tile = q + h / kHeadTile * kHeadTile * dim + h % kHeadTile * kQueryLanes;
    for (int j = 0; j < n; j += K) {
      const float *key[K];
      for (int c = 0; c < K; c++) key[c] = keys + std::min(j + c, n - 1) * value_stride(dim);
      F dot[kParts][H][K];
#pragma GCC unroll 4
      for (int part = 0; part < kParts; part++) {
        F sum[H][K];
#pragma GCC unroll 8
        for (int i = 0; i < H; i++)
#pragma GCC unroll 4
          for (int c = 0; c < K; c++) sum[i][c] = M::zero();
        const float *x = tile + part * W;
        for (int64_t d = part * W; d < dim; d += kQueryLanes, x += kHeadTile * kQueryLanes) {
          F k[K];
#pragma GCC unroll 4
          for (int c = 0; c < K; c++) k[c] = M::load(key[c] + d);
#pragma GCC unroll 8
          for (int i = 0; i < H; i++) {
            const F v = M::load(x + i * kQueryLanes);
#pragma GCC unroll 4
            for (int c = 0; c < K; c++) sum[i][c] = M::fma(v, k[c], sum[i][c]);
          }
        }
#pragma GCC unroll 8
        for (int i = 0; i < H; i++)
#pragma GCC unroll 4
          for (int c = 0; c < K; c++) dot[part][i][c] = sum[i][c];
      }
      M::sums(dot, scale, logits + h * kBlock + j);
    }
  }
}

CED_TARGET void mix(const float *p, const float *carry, const float *keys, int n, int64_t dim, int64_t tiles,
                    float *acc) {
  constexpr int H = M::kMixHeads, V = M::kMixVectors;
  for (int64_t d = 0; d < dim; d += V * W) {  // columns that the heads share stay in the first-level cache
    for (int64_t h = 0; h < tiles * kHeadTile; h += H) {
      F sum[H][V];
#pragma GCC unroll 8
      for (int i = 0; i < H; i++)
#pragma GCC unroll 4
        for (int c = 0; c < V; c++) sum[i][c] = M::zero();
      const float *key = keys + d, *weight = p + h * kBlock;
      for (int j = 0; j < n; j++, key += value_stride(dim), weight++) {
        F v[V];
#pragma GCC unroll 4
        for (int c = 0; c < V; c++) v[c] = M::load(key + c * W);
#pragma GCC unroll 8
        for (int i = 0; i < H; i++) {
          const F x = M::broadcast(weight[i * kBlock]);
#pragma GCC unroll 4
          for (int c = 0; c < V; c++) sum[i][c] = M::fma(x, v[c], sum[i][c]);
        }
      }
#pragma GCC unroll 8
      for (int i = 0; i < H; i++) {
        float *place = acc + (h + i) * dim + d;
        const F old = M::broadcast(carry[h + i]);
#pragma GCC unroll 4
        for (int c = 0; c < V; c++)
          M::store(place + c * W, M::add(M::mul(M::load(place + c * W), old), sum[i][c]));
      }
    }
  }
}

constexpr BlockOps kOps = {values, scores, mix};

}  // namespace
}  // namespace ced
