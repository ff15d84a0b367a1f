#include "kernel/route/route.h"
#include "kernel/row.h"

namespace ced {

static void route_row(const ced_route_args &a, int64_t r) {
  const auto &rows = *at<const ced_rows>(a.rows);
  const bool image =
      a.bias_vl != 0 && rows.flags != 0 && (at<const uint32_t>(rows.flags)[r] & CED_ROW_IMAGE) != 0;
  const uint64_t bias = image ? a.bias_vl : a.bias;
  const float *logits = at<const float>(a.logits) + r * a.experts;
  float score[kMaxExperts], biased[kMaxExperts];
  for (uint32_t e = 0; e < a.experts; e++) {
    score[e] = std::sqrt(f32_softplus(logits[e] / a.temperature));
    const float v = score[e] + weight_at(bias, a.bias_format, e);
    biased[e] = std::isnan(v) ? -INFINITY : v;
  }
  int32_t *idx = at<int32_t>(a.idx) + r * a.top_k;
  double sum = 0;
  float last = INFINITY;  // the choice before this one; the next is the best of those that come after it
  int32_t last_e = -1;
  for (uint32_t k = 0; k < a.top_k; k++) {
    int32_t best = -1;
    for (int32_t e = 0; e < static_cast<int32_t>(a.experts); e++) {
      const bool after = biased[e] < last || (biased[e] == last && e > last_e);
      if (after && (best < 0 || biased[e] > biased[best])) best = e;
    }
    idx[k] = last_e = best;
    last = biased[best];
    sum += static_cast<double>(score[best]);
  }
  const float total = static_cast<float>(sum) + 1e-20f;
  for (uint32_t k = 0; k < a.top_k; k++) {
    const float weight = score[idx[k]];
    at<float>(a.weights)[r * a.top_k + k] = (a.normalise ? weight / total : weight) * a.route_scale;
  }
}

void route_ref(ced_stream *s, const ced_route_args &a) { route_cpu(s, a); }

void route_cpu(ced_stream *s, const ced_route_args &a) {
  parallel_for(s, row_count(a.rows), 1, [&](int64_t r, int64_t, int) { route_row(a, r); });
}

}  // namespace ced
