// block_body.h: BlockOps from the vector operations of one instruction set. Included once by each file that defines
//   CED_TARGET  the attribute of functions that use it
//   M           W lanes F; load, store, broadcast, zero, add, mul; fma(a, b, c) = a*b + c; sixteen codes to f32:
//               e4m3(codes, scale, out), e2m1(codes, scale, out); sums() of the lanes of kScoreHeads x 2 dot products
namespace ced {
namespace {

typedef M::F F;
constexpr int W = M::W, kParts = kQueryLanes / W;

CED_TARGET void prefetch(const Key &key, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(key.codes + i);
  __builtin_prefetch(key.scales);
}

CED_TARGET void values(const Key *keys, int n, int64_t dim, float *out) {
  constexpr int kAhead = 4;
  for (int j = 0; j < n; j++, out += value_stride(dim)) {
    const Key &key = keys[j];
    if (j + kAhead < n) prefetch(keys[j + kAhead], keys[j + kAhead].global ? dim / 2 : dim);
    if (!key.global) {
      for (int64_t d = 0; d < dim; d += 16) M::e4m3(key.codes + d, e8m0_to_f32(key.scales[d / 32]), out + d);
      continue;
    }
    for (int64_t d = 0; d < dim; d += 256) {
      const int64_t groups = std::min<int64_t>((dim - d) / 16, 16);
      uint8_t codes[16] = {};
      memcpy(codes, key.scales + d / 16, static_cast<size_t>(groups));
      alignas(64) float scales[16];
      M::e4m3(codes, 1, scales);
      for (int64_t g = 0; g < groups; g++) M::e2m1(key.codes + d / 2 + 8 * g, scales[g], out + d + 16 * g);
    }
  }
}

CED_TARGET void scores(const float *q, int64_t tiles, const float *keys, int n, int64_t dim, float scale,
                       float *logits) {
  constexpr int H = M::kScoreHeads;
  for (int64_t h = 0; h < tiles * kHeadTile; h += H) {
    const float *tile = q + h / kHeadTile * kHeadTile * dim + h % kHeadTile * kQueryLanes;
    for (int j = 0; j < n; j += 2) {
      const float *key0 = keys + j * value_stride(dim);
      const float *key1 = j + 1 < n ? key0 + value_stride(dim) : key0;
      F dot[kParts][H][2];
#pragma GCC unroll 4
      for (int part = 0; part < kParts; part++) {
        F sum[H][2];
#pragma GCC unroll 8
        for (int i = 0; i < H; i++) sum[i][0] = sum[i][1] = M::zero();
        const float *x = tile + part * W;
        for (int64_t d = part * W; d < dim; d += kQueryLanes, x += kHeadTile * kQueryLanes) {
          const F k0 = M::load(key0 + d), k1 = M::load(key1 + d);
#pragma GCC unroll 8
          for (int i = 0; i < H; i++) {
            const F v = M::load(x + i * kQueryLanes);
            sum[i][0] = M::fma(v, k0, sum[i][0]);
            sum[i][1] = M::fma(v, k1, sum[i][1]);
          }
        }
#pragma GCC unroll 8
        for (int i = 0; i < H; i++) dot[part][i][0] = sum[i][0], dot[part][i][1] = sum[i][1];
      }
      M::sums(dot, scale, logits + h * kBlock + j);
    }
  }
}

CED_TARGET void mix(const float *p, const float *carry, const float *keys, int n, int64_t dim, int64_t tiles,
                    float *acc) {
  constexpr int H = M::kMixHeads, V = M::kMixVectors;
  for (int64_t h = 0; h < tiles * kHeadTile; h += H) {
    for (int64_t d = 0; d < dim; d += V * W) {
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
