// prng.h: the generator of the conformance data's inputs and weights (its section 3).
// A stream is addressed by name; element i is its row-major index over the tensor's shape.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace prng {

constexpr uint64_t kSeed = 2026;  // of every tensor in testdata/ops

constexpr uint64_t mix64(uint64_t z) {
  z ^= z >> 30;
  z *= 0xBF58476D1CE4E5B9u;
  z ^= z >> 27;
  z *= 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

constexpr uint64_t fnv1a64(std::string_view name) {
  uint64_t h = 0xCBF29CE484222325u;
  for (char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return h;
}

// BF16 bits of a finite f, round to nearest even. Apart from num/bf16.h on purpose: tests of that
// codec take their inputs from here.
inline uint16_t bf16(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  return static_cast<uint16_t>((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}

class Stream {
 public:
  explicit Stream(std::string_view name, uint64_t seed = kSeed) : s_(mix64(seed ^ fnv1a64(name))) {}
  uint64_t id() const { return s_; }
  uint64_t operator[](uint64_t i) const { return mix64(s_ + (i + 1) * 0x9E3779B97F4A7C15u); }
  // Near-normal, standard deviation 1.155, within +-4, exact in F32.
  float gauss(uint64_t i) const {
    uint64_t r = (*this)[i];
    int32_t k = int32_t((r & 0xFFFF) + (r >> 16 & 0xFFFF) + (r >> 32 & 0xFFFF) + (r >> 48)) - 131070;
    return float(k) * 0x1p-15f;
  }
  // A number in [0, n).
  uint32_t below(uint64_t i, uint32_t n) const { return uint32_t(((*this)[i] >> 32) % n); }

 private:
  uint64_t s_;
};

template <class T, class F>
std::vector<T> generate(size_t n, F f) {
  std::vector<T> v(n);
  for (size_t i = 0; i < n; i++) v[i] = f(i);
  return v;
}

// gauss * 2^e as BF16 bits.
inline std::vector<uint16_t> xb(std::string_view name, size_t n, int e, uint64_t seed = kSeed) {
  Stream s(name, seed);
  float scale = std::ldexp(1.f, e);
  return generate<uint16_t>(n, [&](size_t i) { return bf16(s.gauss(i) * scale); });
}

// gauss * 2^e in F32, exact.
inline std::vector<float> xf(std::string_view name, size_t n, int e = 0, uint64_t seed = kSeed) {
  Stream s(name, seed);
  float scale = std::ldexp(1.f, e);
  return generate<float>(n, [&](size_t i) { return s.gauss(i) * scale; });
}

// 1 + gauss * 2^e, added in F32, as BF16 bits: norm weights.
inline std::vector<uint16_t> norm(std::string_view name, size_t n, int e, uint64_t seed = kSeed) {
  Stream s(name, seed);
  float scale = std::ldexp(1.f, e);
  return generate<uint16_t>(n, [&](size_t i) { return bf16(1.f + s.gauss(i) * scale); });
}

// E4M3 codes with exponent fields emin .. emin+count-1 and any sign and mantissa.
inline std::vector<uint8_t> e4m3(std::string_view name, size_t n, uint32_t emin = 5, uint32_t count = 4,
                                 uint64_t seed = kSeed) {
  Stream s(name, seed);
  return generate<uint8_t>(n, [&](size_t i) {
    uint64_t r = s[i];
    return uint8_t(r >> 63 << 7 | (emin + (r >> 32) % count) << 3 | (r >> 8 & 7));
  });
}

// Uniform bytes; one is two FP4 codes, low nibble first.
inline std::vector<uint8_t> bytes(std::string_view name, size_t n, uint64_t seed = kSeed) {
  Stream s(name, seed);
  return generate<uint8_t>(n, [&](size_t i) { return uint8_t(s[i] >> 32); });
}

// UE8M0 scale bytes base .. base+count-1.
inline std::vector<uint8_t> e8m0(std::string_view name, size_t n, uint32_t base, uint32_t count = 4,
                                 uint64_t seed = kSeed) {
  Stream s(name, seed);
  return generate<uint8_t>(n, [&](size_t i) { return uint8_t(base + s.below(i, count)); });
}

// Integers in [lo, hi).
inline std::vector<int32_t> ints(std::string_view name, size_t n, int32_t lo, int32_t hi,
                                 uint64_t seed = kSeed) {
  Stream s(name, seed);
  return generate<int32_t>(n, [&](size_t i) { return lo + int32_t(s.below(i, uint32_t(hi - lo))); });
}

}  // namespace prng
