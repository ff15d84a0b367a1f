#include "kernel/csa2_index/csa2_index.h"

using namespace ced;

extern "C" uint64_t ced_csa2_index_workspace(const ced_stream *s, const ced_csa2_index_args *a) {
  // refused by the call itself; a model without an indexer asks all the same
  if (a->max_groups == 0 || (a->publish != 0 && a->block == 0)) return 64;
#ifdef CED_WITH_CUDA
  if (kind_of(s) == CED_CUDA) return csa2_index_cuda_workspace(*a);
#endif
  return kind_of(s) == CED_REF ? csa2_index_ref_workspace(*a) : csa2_index_cpu_workspace(*a);
}

extern "C" int ced_csa2_index(ced_stream *s, const ced_csa2_index_args *a, ced_err *err) {
  const char *name = "csa2_index";
  CED_TRY(check_range(name, "heads", a->heads, 1, kMaxIndexHeads, err));
  CED_TRY(check_range(name, "top_k", a->top_k, 1, 1u << 20, err));
  CED_TRY(check_kv(name, a->kv, false, true, err));
  CED_TRY(check_range(name, "kv.index_dim", a->kv.index_dim, 32, kMaxIndexDim, err));
  CED_TRY(check_rope(name, a->rope_dim, a->kv.index_dim, err));
  const uint64_t capacity = uint64_t{a->kv.max_pages} * a->kv.page_rows;
  CED_TRY(check_range(name, "max_groups", a->max_groups, 1, std::min<uint64_t>(capacity, 1u << 24), err));
  CED_TRY(check_sequence_rows(s, name, a->rows, a->max_rows, err));
  CED_TRY(check_address(name, "q", a->q, 64, err));
  CED_TRY(check_address(name, "w", a->w, 64, err));
  CED_TRY(check_address(name, "freqs", a->freqs, 4, err));
  CED_TRY(check_address(name, "sel", a->sel, 4, err));
  CED_TRY(check_address(name, "workspace", a->workspace, 64, err));
  if (a->publish != 0 && a->restrict_ != 0)
    return fail(err, CED_EINVAL,
                "csa2_index: publish and restrict_ are both set; a candidate source is not restricted");
  if (a->publish != 0 || a->restrict_ != 0) {
    CED_TRY(check_range(name, "block", a->block, 1, 1u << 16, err));
    CED_TRY(check_range(name, "max_blocks", a->max_blocks, 1, 1u << 20, err));
    CED_TRY(check_address(name, "candidates", a->candidates, 4, err));
  }
  if (a->scores != 0) {
    CED_TRY(check_address(name, "scores", a->scores, 4, err));
    CED_TRY(check_range(name, "score_stride", a->score_stride, 1, UINT32_MAX, err));
  }
  CED_DISPATCH(csa2_index, s, a, err)
}
