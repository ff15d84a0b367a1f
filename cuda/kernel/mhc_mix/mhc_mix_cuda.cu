#include "device/gpu.h"
#include "kernel/mhc_border/mhc_border.h"

namespace ced {

// A border of mixes alone.
int mhc_mix_cuda(ced_stream *s, const ced_mhc_mix_args &a, ced_err *err) {
  ced_mhc_border_args b{};
  b.rows = a.rows, b.h = a.h, b.post = a.post, b.comb = a.comb, b.next = a.pre;
  b.fn = a.fn, b.base = a.base, b.scale = a.scale;
  b.max_rows = a.max_rows, b.dim = a.dim, b.streams = a.streams, b.iters = a.iters;
  b.norm_eps = a.norm_eps, b.hc_eps = a.hc_eps;
  return mhc_border_launch(s, "mhc_mix", b, err);
}

}  // namespace ced
