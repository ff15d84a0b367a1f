// row_gpu.h: what several CUDA bodies do to rows and to checkpoint tensors.
#pragma once
#include "device/gpu.h"
#include "num/bf16.h"

namespace ced {

// A checkpoint tensor in BF16 or F32, which may start at any byte.
struct Weights {
  const unsigned char *data;
  bool bf16, even;  // even: elements are where the hardware wants them

  __device__ Weights(uint64_t tensor, uint32_t format)
      : data(at<const unsigned char>(tensor)),
        bf16(format == CED_BF16),
        even(aligned(tensor, format == CED_BF16 ? 2 : 4)) {}

  __device__ float operator[](size_t i) const {
    if (bf16) {
      const unsigned char *p = data + 2 * i;
      const auto u = even ? *reinterpret_cast<const uint16_t *>(p) : static_cast<uint16_t>(p[0] | p[1] << 8);
      return bf16_to_f32(u);
    }
    const unsigned char *p = data + 4 * i;
    if (even) return *reinterpret_cast<const float *>(p);
    return f32_of(p[0] | static_cast<uint32_t>(p[1]) << 8 | static_cast<uint32_t>(p[2]) << 16 |
                  static_cast<uint32_t>(p[3]) << 24);
  }
};

// Copies n bytes with the threads of a block; 16 at a time where both ends allow it.
__device__ inline void copy_bytes(unsigned char *to, const unsigned char *from, uint64_t n) {
  const uint64_t both = reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(from);
  const uint64_t pieces = aligned(both, 16) ? n / 16 : 0;
  for (uint64_t i = threadIdx.x; i < pieces; i += blockDim.x) store16(to + 16 * i, load16(from + 16 * i));
  for (uint64_t i = 16 * pieces + threadIdx.x; i < n; i += blockDim.x) to[i] = from[i];
}

// Blocks for a grid whose blocks walk over the rows.
inline dim3 row_blocks(uint32_t max_rows) { return dim3(max_rows < 65535 ? max_rows : 65535); }

// The two BF16 of a word.
__device__ inline float low_bf16(uint32_t word) { return f32_of(word << 16); }
__device__ inline float high_bf16(uint32_t word) { return f32_of(word & 0xFFFF0000u); }
__device__ inline uint32_t pack_bf16(float low, float high) {
  return f32_to_bf16(low) | static_cast<uint32_t>(f32_to_bf16(high)) << 16;
}

// Eight BF16 in 16 bytes.
__device__ inline void unpack8(const uint4 &w, float v[8]) {
  const uint32_t words[4] = {w.x, w.y, w.z, w.w};
  for (int i = 0; i < 4; i++) v[2 * i] = low_bf16(words[i]), v[2 * i + 1] = high_bf16(words[i]);
}
__device__ inline uint4 pack8(const float v[8]) {
  return make_uint4(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]),
                    pack_bf16(v[6], v[7]));
}

// One pair of channels rotated by an angle's cosine and sine (spec 3.7): products and sums apart.
__device__ inline void rotate_pair(float &even, float &odd, float cosine, float sine) {
  const float e = even, o = odd;
  even = bf16_round(e * cosine - o * sine);
  odd = bf16_round(e * sine + o * cosine);
}

// The cosine and sine of a position at a frequency: the f64 functions of the f32 product, rounded once.
__device__ inline void rope_angle(float freq, int32_t position, float &cosine, float &sine) {
  const double angle = static_cast<float>(position) * freq;
  cosine = static_cast<float>(cos(angle)), sine = static_cast<float>(sin(angle));
}

}  // namespace ced
