// sha256.h: digests of tensors that are too large to store.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <string>

namespace check {

// Of whole bytes, as hex.
inline std::string sha256(const void *data, size_t size) {
  // The first 32 bits of the fractional parts of the square and cube roots of the first primes.
  std::array<uint32_t, 8> h{};
  std::array<uint32_t, 64> k{};
  const auto fraction = [](long double root) {
    return static_cast<uint32_t>((root - floorl(root)) * 0x1p32L);
  };
  size_t primes = 0;
  for (unsigned n = 2; primes < 64; n++) {
    bool prime = true;
    for (unsigned d = 2; d * d <= n; d++) prime = prime && n % d != 0;
    if (!prime) continue;
    if (primes < 8) h[primes] = fraction(sqrtl(n));
    k[primes++] = fraction(cbrtl(n));
  }
  std::string m(static_cast<const char *>(data), size);
  m += '\x80';
  m.resize((m.size() + 8 + 63) / 64 * 64, '\0');
  for (size_t i = 0; i < 8; i++) m[m.size() - 1 - i] = static_cast<char>(uint64_t{size} * 8 >> (8 * i));
  const auto rotated = [](uint32_t x, int n) { return x >> n | x << (32 - n); };
  for (size_t at = 0; at < m.size(); at += 64) {
    uint32_t w[64];
    for (size_t i = 0; i < 16; i++) {
      w[i] = 0;
      for (size_t j = 0; j < 4; j++) w[i] = w[i] << 8 | static_cast<uint8_t>(m[at + 4 * i + j]);
    }
    for (size_t i = 16; i < 64; i++) {
      const uint32_t s0 = rotated(w[i - 15], 7) ^ rotated(w[i - 15], 18) ^ w[i - 15] >> 3;
      const uint32_t s1 = rotated(w[i - 2], 17) ^ rotated(w[i - 2], 19) ^ w[i - 2] >> 10;
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto v = h;
    for (size_t i = 0; i < 64; i++) {
      const uint32_t s1 = rotated(v[4], 6) ^ rotated(v[4], 11) ^ rotated(v[4], 25);
      const uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[i] + w[i];
      const uint32_t s0 = rotated(v[0], 2) ^ rotated(v[0], 13) ^ rotated(v[0], 22);
      const uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
      v = {t1 + t2, v[0], v[1], v[2], v[3] + t1, v[4], v[5], v[6]};
    }
    for (size_t i = 0; i < 8; i++) h[i] += v[i];
  }
  std::string hex;
  for (uint32_t x : h)
    for (int shift = 28; shift >= 0; shift -= 4) hex += "0123456789abcdef"[x >> shift & 15];
  return hex;
}

}  // namespace check
