#include <cmath>

#include "kernel/route/route.h"
#include "kernel/row.h"

namespace ced {
namespace {

// Equal scores keep the order of their experts.
struct Choice {
  float biased;
  int32_t expert;
};

}  // namespace

void route_choose(const ced_route_args &a, int64_t r, const float *score) {
  const auto &rows = *at<const ced_rows>(a.rows);
  const bool image =
      a.bias_vl != 0 && rows.flags != 0 && (at<const uint32_t>(rows.flags)[r] & CED_ROW_IMAGE) != 0;
  const uint64_t bias = image ? a.bias_vl : a.bias;
  Choice best[kMaxExperts];  // so far, in descending order
  uint32_t count = 0;
  for (uint32_t e = 0; e < a.experts; e++) {
    const float sum = score[e] + weight_at(bias, a.bias_format, e);
    const float biased = std::isnan(sum) ? -INFINITY : sum;
    if (count == a.top_k && !(biased > best[count - 1].biased)) continue;
    uint32_t place = count < a.top_k ? count++ : count - 1;
    for (; place > 0 && biased > best[place - 1].biased; place--) best[place] = best[place - 1];
    best[place] = {biased, static_cast<int32_t>(e)};
  }
  int32_t *idx = at<int32_t>(a.idx) + r * a.top_k;
  double sum = 0;
  for (uint32_t k = 0; k < a.top_k; k++) {
    idx[k] = best[k].expert;
    sum += static_cast<double>(score[idx[k]]);
  }
  const float total = static_cast<float>(sum) + 1e-20f;
  for (uint32_t k = 0; k < a.top_k; k++) {
    const float weight = score[idx[k]];
    at<float>(a.weights)[r * a.top_k + k] = (a.normalise ? weight / total : weight) * a.route_scale;
  }
}

void route_ref(ced_stream *, const ced_route_args &a) {
  float score[kMaxExperts];
  for (int64_t r = 0; r < row_count(a.rows); r++) {
    const float *logits = at<const float>(a.logits) + r * a.experts;
    for (uint32_t e = 0; e < a.experts; e++) score[e] = std::sqrt(f32_softplus(logits[e] / a.temperature));
    route_choose(a, r, score);
  }
}

}  // namespace ced
