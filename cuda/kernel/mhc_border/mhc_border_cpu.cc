#include "kernel/mhc_border/mhc_border.h"

namespace ced {

void mhc_border_cpu(ced_stream *s, const ced_mhc_border_args &a) {
  if (a.y != 0) mhc_expand_cpu(s, expand_of(a));
  if (a.fn != 0) mhc_mix_cpu(s, mix_of(a));
  mhc_collapse_cpu(s, collapse_of(a));
  norm_quant_cpu(s, norm_of(a));
}

}  // namespace ced
