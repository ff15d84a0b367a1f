#include "kernel/dense_gemm/linear_ref.h"
#include "kernel/expert_gemm/expert_gemm.h"
#include "num/quant.h"

namespace ced {
namespace {

// One output of a linear of an expert, rounded to BF16.
float linear(const uint8_t *x, const uint8_t *x_scales, uint64_t w, uint64_t w_scales, ced_format format,
             int64_t n, int64_t k) {
  const bool fp8 = format == CED_FP8;
  return bf16_round(quantised_dot(x, x_scales, at<const uint8_t>(w) + n * (fp8 ? k : k / 2),
                                  at<const uint8_t>(w_scales) + (fp8 ? n / 32 : n) * (k / 32), format, k));
}

// out = expert(row r), as BF16.
void expert(const ced_expert_gemm_args &a, const ExpertWorkspace &work, int64_t r, const ced_expert &e,
            ced_format format, float weight, uint16_t *out) {
  const int64_t dim = a.dim, inter = a.inter;
  const uint8_t *x = at<const uint8_t>(a.x) + r * dim,
                *x_scales = at<const uint8_t>(a.x_scales) + r * (dim / 32);
  for (int64_t begin = 0; begin < inter; begin += 32) {
    float v[32];
    for (int64_t i = 0; i < 32; i++)
      v[i] = swiglu(linear(x, x_scales, e.w1, e.w1_scales, format, begin + i, dim),
                    linear(x, x_scales, e.w3, e.w3_scales, format, begin + i, dim), a.limit, weight);
    act_quant32(v, at<uint8_t>(work.codes) + begin, at<uint8_t>(work.scales) + begin / 32);
  }
  for (int64_t i = 0; i < dim; i++)
    out[i] = f32_to_bf16(linear(at<const uint8_t>(work.codes), at<const uint8_t>(work.scales), e.w2,
                                e.w2_scales, format, i, inter));
}

}  // namespace

void expert_gemm_ref(ced_stream *, const ced_expert_gemm_args &a) {
  const ExpertWorkspace work = expert_workspace(a);
  const int64_t dim = a.dim, top_k = a.top_k;
  for (int64_t r = 0; r < row_count(a.rows); r++) {
    const int32_t *idx = at<const int32_t>(a.idx) + r * top_k;
    uint16_t *out = at<uint16_t>(work.out);  // per chosen expert, then the shared one
    for (int64_t j = 0; j < top_k; j++)
      if (has_expert(a, idx[j]))
        expert(a, work, r, at<const ced_expert>(a.experts)[idx[j]], CED_FP4,
               at<const float>(a.weights)[r * top_k + j], out + j * dim);
    const bool shared = a.shared.w1 != 0;
    if (shared) expert(a, work, r, a.shared, CED_FP8, 1, out + top_k * dim);
    for (int64_t d = 0; d < dim; d++) {
      float sum = 0;
      for (int32_t e = 0; e < static_cast<int32_t>(a.experts_count); e++)
        for (int64_t j = 0; j < top_k; j++)
          if (idx[j] == e && has_expert(a, e)) sum = sum + bf16_to_f32(out[j * dim + d]);
      if (a.addend != 0) sum = sum + at<const float>(a.addend)[r * dim + d];
      if (shared) sum = sum + bf16_to_f32(out[top_k * dim + d]);
      if (a.y_format == CED_F32)
        at<float>(a.y)[r * dim + d] = sum;
      else
        at<uint16_t>(a.y)[r * dim + d] = f32_to_bf16(sum);
    }
  }
}

}  // namespace ced
