#include "kernel/mhc_border/mhc_border.h"

namespace ced {

void mhc_border_ref(ced_stream *s, const ced_mhc_border_args &a) {
  if (a.y != 0) mhc_expand_ref(s, expand_of(a));
  if (a.fn != 0) mhc_mix_ref(s, mix_of(a));
  mhc_collapse_ref(s, collapse_of(a));
  norm_quant_ref(s, norm_of(a));
}

}  // namespace ced
