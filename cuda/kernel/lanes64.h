// lanes64.h: functions in f64 vectors, with errors of about a unit in the last place: rounded to f32 they are the
// canonical results (spec 3.0). Polynomials and reductions are those of fdlibm; no products and sums are joined, so
// every instruction set gives the same bits.
#pragma once
#include "kernel/lanes.h"

namespace ced {

// f64 vectors of the size of W f32.
template <int W>
struct F64 {
  typedef double D __attribute__((vector_size(4 * W)));
  typedef uint64_t U __attribute__((vector_size(4 * W)));
  typedef float Half __attribute__((vector_size(2 * W)));
};

// Cosine and sine of angles up to 2^20 (beyond, the reduction loses bits), as f64: Cody and Waite's reduction by multiples of pi/2 in three parts, then the
// polynomials of fdlibm, for an error below 2^-52.
template <int W>
CED_INLINE void cos_sin(typename F64<W>::D x, typename F64<W>::D *cosine, typename F64<W>::D *sine) {
  typedef typename F64<W>::D D;
  typedef typename F64<W>::U U;
  const D shifted = x * 0x1.45f306dc9c883p-1 + 0x1.8p52, n = shifted - 0x1.8p52;
  const D r = ((x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a6p-34) - n * 0x1.3198a2e037073p-69;
  const D z = r * r;
  const D s = r + r * z *
                      (-1.66666666666666324348e-01 +
                       z * (8.33333333332248946124e-03 +
                            z * (-1.98412698298579493134e-04 +
                                 z * (2.75573137070700676789e-06 +
                                      z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)))));
  const D c =
      1.0 -
      (z * 0.5 - z * z *
                     (4.16666666666666019037e-02 +
                      z * (-1.38888888888741095749e-03 +
                           z * (2.48015872894767294178e-05 +
                                z * (-2.75573143513906633035e-07 +
                                     z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11))))));
  const U quarter = (U)shifted & 3, swapped = -(quarter & 1);
  const U cosine_sign = ((quarter + 1) & 2) << 62, sine_sign = (quarter & 2) << 62;
  *cosine = (D)((((U)s & swapped) | ((U)c & ~swapped)) ^ cosine_sign);
  *sine = (D)((((U)c & swapped) | ((U)s & ~swapped)) ^ sine_sign);
}

// e^x for x in [-700, 700].
template <int W>
CED_INLINE typename F64<W>::D exp64(typename F64<W>::D x) {
  typedef typename F64<W>::D D;
  typedef typename F64<W>::U U;
  const D shifted = x * 0x1.71547652b82fep+0 + 0x1.8p52, n = shifted - 0x1.8p52;
  const D high = x - n * 6.93147180369123816490e-01, low = n * 1.90821492927058770002e-10;
  const D r = high - low, t = r * r;
  const D c = r - t * (1.66666666666666019037e-01 +
                       t * (-2.77777777770155933842e-03 +
                            t * (6.61375632143793436117e-05 +
                                 t * (-1.65339022054652515390e-06 + t * 4.13813679705723846039e-08))));
  const D y = 1.0 - ((low - (r * c) / (2.0 - c)) - high);
  return y * (D)(((U)shifted + 1023) << 52);
}

// log(1 + u) for u >= 0.
template <int W>
CED_INLINE typename F64<W>::D log1p64(typename F64<W>::D u) {
  typedef typename F64<W>::D D;
  typedef typename F64<W>::U U;
  const D w = 1.0 + u;
  // w = 2^k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)).
  const U bits = (U)w + (0x3FF0000000000000 - 0x3FE6A09E667F3BCD);
  const U exponent = (bits >> 52) - 1023;
  const D f = (D)((bits & 0x000FFFFFFFFFFFFF) + 0x3FE6A09E667F3BCD) - 1.0;
  const D k = (D)(exponent + 0x4338000000000000) - 0x1.8p52;
  const D s = f / (2.0 + f), z = s * s, q = z * z, half = 0.5 * f * f;
  const D even =
      q * (3.999999999940941908e-01 + q * (2.222219843214978396e-01 + q * 1.531383769920937332e-01));
  const D odd =
      z * (6.666666666666735130e-01 +
           q * (2.857142874366239149e-01 + q * (1.818357216161805012e-01 + q * 1.479819860511658591e-01)));
  const D log_w = k * 6.93147180369123816490e-01 -
                  ((half - (s * (half + (even + odd)) + k * 1.90821492927058770002e-10)) - f);
  return log_w + (u - (w - 1.0)) / w;  // the second term is what rounding took from w
}

}  // namespace ced
