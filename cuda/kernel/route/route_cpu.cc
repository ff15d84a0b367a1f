#include <cmath>

#include "kernel/lanes64.h"
#include "kernel/route/route.h"

namespace ced {
namespace {

// score[e] = sqrt(softplus(logits[e] / temperature)).
struct Scores {
  template <int W>
  static CED_INLINE void run(const float *logits, float temperature, int64_t experts, float *score) {
    constexpr int N = W / 2;
    int64_t e = 0;
    for (; e + N <= experts; e += N) softplus<W>(logits + e, temperature, score + e);
    if (e < experts) {
      float x[N] = {}, y[N];
      memcpy(x, logits + e, static_cast<size_t>(experts - e) * 4);
      softplus<W>(x, temperature, y);
      memcpy(score + e, y, static_cast<size_t>(experts - e) * 4);
    }
    for (e = 0; e < experts; e++) score[e] = std::sqrt(score[e]);
  }

  // Of W/2 logits.
  template <int W>
  static CED_INLINE void softplus(const float *logits, float temperature, float *to) {
    typedef typename F64<W>::D D;
    typedef typename F64<W>::Half Half;
    Half x;
    memcpy(&x, logits, sizeof x);
    const D z = __builtin_convertvector(x / temperature, D);
    const D low = D{} - 200, high = D{} + 20;
    const D above = z < low ? low : z, clamped = above > high ? high : above;
    const D soft = log1p64<W>(exp64<W>(clamped));  // 0 in f32 at low
    const D all = z > high ? z : soft;
    x = __builtin_convertvector(all, Half);
    memcpy(to, &x, sizeof x);
  }
};

}  // namespace

void route_cpu(ced_stream *s, const ced_route_args &a) {
  const int64_t experts = a.experts;
  parallel_for(s, row_count(a.rows), grain_of(100 + experts * 3), [&](int64_t begin, int64_t end, int) {
    float score[kMaxExperts];
    for (int64_t r = begin; r < end; r++) {
      vectorised<Scores>(at<const float>(a.logits) + r * experts, a.temperature, experts,
                         static_cast<float *>(score));
      route_choose(a, r, score);
    }
  });
}

}  // namespace ced
