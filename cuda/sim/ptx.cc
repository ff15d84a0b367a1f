// ptx.cc: matrix instructions of the simulated device, computed by the lane that comes last for all of them.
#include "sim/sim.h"

namespace sim {
namespace {

struct Operands {
  uint32_t a[4], b[2];
  float d[4];
};

float bf16(uint32_t word, int high) {
  const uint32_t u = high ? word & 0xFFFF0000u : word << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}

// D[16][8] += A[16][16] B[16][8]. Products are exact, their sum is rounded once; a tensor core drops bits below the
// largest addend, so equal bits are not to be expected of it.
void mma_m16n8k16(Lanes lanes) {
  typedef double Row __attribute__((vector_size(64)));
  Row b[16];
  double a[16][16];
  for (int l = 0; l < kWarp; l++) {
    Operands o;
    memcpy(&o, lanes[l], sizeof o);
    const int g = l / 4, t = l % 4 * 2;
    for (int i = 0; i < 2; i++) {
      a[g][t + i] = bf16(o.a[0], i), a[g + 8][t + i] = bf16(o.a[1], i);
      a[g][t + 8 + i] = bf16(o.a[2], i), a[g + 8][t + 8 + i] = bf16(o.a[3], i);
      b[t + i][g] = bf16(o.b[0], i), b[t + 8 + i][g] = bf16(o.b[1], i);
    }
  }
  Row sums[16];
  for (int m = 0; m < 16; m++) {
    Row sum = {};
    for (int k = 0; k < 16; k++) sum += a[m][k] * b[k];
    sums[m] = sum;
  }
  for (int l = 0; l < kWarp; l++) {
    Operands o;
    memcpy(&o, lanes[l], sizeof o);
    for (int i = 0; i < 4; i++)
      o.d[i] = static_cast<float>(static_cast<double>(o.d[i]) + sums[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2]);
    memcpy(lanes[l], o.d, sizeof o.d);
  }
}

struct IntegerOperands {
  uint32_t a[4], b[2];
  int32_t d[4];
};

void mma_m16n8k32(Lanes lanes) {
  int a[16][32], b[32][8];
  for (int l = 0; l < kWarp; l++) {
    IntegerOperands o;
    memcpy(&o, lanes[l], sizeof o);
    const int g = l / 4, t = l % 4 * 4;
    for (int i = 0; i < 4; i++) {
      for (int r = 0; r < 4; r++)
        a[g + r % 2 * 8][t + i + r / 2 * 16] = static_cast<int8_t>(o.a[r] >> (8 * i));
      for (int r = 0; r < 2; r++) b[t + i + r * 16][g] = static_cast<uint8_t>(o.b[r] >> (8 * i));
    }
  }
  for (int l = 0; l < kWarp; l++) {
    IntegerOperands o;
    memcpy(&o, lanes[l], sizeof o);
    for (int i = 0; i < 4; i++)
      for (int k = 0; k < 32; k++) o.d[i] += a[l / 4 + i / 2 * 8][k] * b[k][l % 4 * 2 + i % 2];
    memcpy(lanes[l], o.d, sizeof o.d);
  }
}

}  // namespace

void mma_m16n8k32_s8u8(int32_t d[4], const uint32_t a[4], const uint32_t b[2], const char *file, int line) {
  IntegerOperands o;
  memcpy(o.a, a, sizeof o.a), memcpy(o.b, b, sizeof o.b), memcpy(o.d, d, sizeof o.d);
  const Lanes lanes = meet(~0u, &o, sizeof o, Kind::kMma, file, line, mma_m16n8k32);
  memcpy(d, lanes[lane()], 4 * sizeof(int32_t));
}

void mma_m16n8k16_bf16(float d[4], const uint32_t a[4], const uint32_t b[2], const char *file, int line) {
  Operands o;
  memcpy(o.a, a, sizeof o.a), memcpy(o.b, b, sizeof o.b), memcpy(o.d, d, sizeof o.d);
  const Lanes lanes = meet(~0u, &o, sizeof o, Kind::kMma, file, line, mma_m16n8k16);
  memcpy(d, lanes[lane()], 4 * sizeof(float));
}

}  // namespace sim
