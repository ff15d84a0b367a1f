// mhc_border: what lies between two sub-layers (spec 4.2), in one pass over the streams: mhc_expand of the one's output,
// mhc_mix, mhc_collapse and norm_quant for the other. Every value has the bits of those four in turn; x depends on the mix
// before only, so that nothing waits for the new one.
//   y [rows, dim], h [rows, n, dim], pre [rows, n] -> h, x [rows, dim] and its codes and scales, next, post, comb
#pragma once
#include "kernel/mhc_collapse/mhc_collapse.h"
#include "kernel/mhc_expand/mhc_expand.h"
#include "kernel/mhc_mix/mhc_mix.h"
#include "kernel/norm_quant/norm_quant.h"

namespace ced {

void mhc_border_ref(ced_stream *s, const ced_mhc_border_args &a);
void mhc_border_cpu(ced_stream *s, const ced_mhc_border_args &a);
int mhc_border_cuda(ced_stream *s, const ced_mhc_border_args &a, ced_err *err);
// The same for the kernel of that name; x may be 0 too: then the mixes are all.
int mhc_border_launch(ced_stream *s, const char *name, const ced_mhc_border_args &a, ced_err *err);

// The border's part of each of the four kernels.
inline ced_mhc_expand_args expand_of(const ced_mhc_border_args &a) {
  return {a.rows, a.y, a.post, a.comb, a.h, a.max_rows, a.dim, a.streams, 0};
}
inline ced_mhc_mix_args mix_of(const ced_mhc_border_args &a) {
  return {a.rows, a.h,        a.fn,  a.base,    a.scale, a.next,     a.post,
          a.comb, a.max_rows, a.dim, a.streams, a.iters, a.norm_eps, a.hc_eps};
}
inline ced_mhc_collapse_args collapse_of(const ced_mhc_border_args &a) {
  return {a.rows, a.h, a.pre, a.x, a.max_rows, a.dim, a.streams, 0};
}
CED_HD inline ced_norm_quant_args norm_of(const ced_mhc_border_args &a) {
  return {a.rows, a.x, a.weight, a.x, a.codes, a.scales, a.max_rows, a.dim, a.weight_format, a.norm_eps};
}

}  // namespace ced
