// rules.h: the conformance data's tolerance rules (its section 5) for bodies that are not canonical.
// R0 and R1 are CHECK_BITS of check.h; these are the rows of R2.
//
//   CHECK_ROWS(got.data(), want.as<uint16_t>(), rows, columns, check::kLinear);
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "test/check.h"

namespace check {

// What one tensor is held to, element by element: an element passes when it is within any bound that is set.
// ulps counts BF16 units in the last place of max(|want|, rms of the row).
struct Rule {
  const char *name;
  double share;       // of the elements that must lie within share_ulps (0: equal)
  double share_ulps;  //
  double ulps, of_rms, relative, absolute;
};
// Quantised and BF16 linears, norms, RoPE, collapse and expand, Engram update.
constexpr Rule kLinear{"linear", 0.99, 0, 1, 0, 0, 0};
// Experts, attn_out, ffn_out: two quantisation stages.
constexpr Rule kExpert{"expert", 0.97, 1, 0, 0.05, 0, 0};
// Attention core, against the golden o and against o_exact.
constexpr Rule kAttention{"attention", 0, 0, 2, 0, 0, 0};
constexpr Rule kAttentionExact{"attention against f64", 0, 0, 0, 0.01, 0, 0};
// mHC pre, post and comb from identical streams.
constexpr Rule kMix{"mhc mix", 0, 0, 0, 0, 1e-5, 0};
// Routing weights and confidences; logits.
constexpr Rule kWeight{"route weight", 0, 0, 0, 0, 1e-4, 1e-5};
constexpr Rule kLogit{"logit", 0, 0, 0, 1e-4, 1e-4, 0};

inline double value(float f) { return f; }
inline double value(uint16_t bf16) {
  uint32_t u = uint32_t(bf16) << 16;
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}

// One BF16 unit in the last place at magnitude x.
inline double bf16_ulp(double x) { return x > 0 ? std::ldexp(1.0, std::max(std::ilogb(x), -126) - 7) : 0; }

// Holds rows x columns elements (BF16 bits or F32) to a rule.
template <class G, class W>
void check_rows(const G *got, const W *want, size_t rows, size_t columns, const Rule &rule, const char *text,
                const char *file, int line) {
  size_t close = 0, outside = 0, first = 0;
  for (size_t r = 0; r < rows; r++) {
    double squares = 0;
    for (size_t c = 0; c < columns; c++)
      squares += value(want[r * columns + c]) * value(want[r * columns + c]);
    const double rms = std::sqrt(squares / double(columns));
    for (size_t i = r * columns; i < (r + 1) * columns; i++) {
      const double w = value(want[i]), error = std::fabs(value(got[i]) - w);
      const double ulp = bf16_ulp(std::max(std::fabs(w), rms));
      const double bound =
          std::max({rule.ulps * ulp, rule.of_rms * rms, rule.relative * std::fabs(w), rule.absolute});
      close += error <= rule.share_ulps * ulp;
      if (!(error <= bound) && outside++ == 0) first = i;  // a NaN is outside
    }
  }
  const size_t n = rows * columns;
  if (outside) {
    fail(file, line,
         std::string(text) + ", rule " + rule.name + ": " + show(outside) + " of " + show(n) +
             " too far, first at row " + show(first / columns) + " column " + show(first % columns) + ": " +
             show(value(got[first])) + ", want " + show(value(want[first])));
  } else if (double(close) < rule.share * double(n)) {
    fail(file, line,
         std::string(text) + ", rule " + rule.name + ": only " + show(close) + " of " + show(n) + " within " +
             show(rule.share_ulps) + " ulp");
  }
}

}  // namespace check

#define CHECK_ROWS(got, want, rows, columns, rule) \
  ::check::check_rows(got, want, rows, columns, rule, #got " ~ " #want, __FILE__, __LINE__)
