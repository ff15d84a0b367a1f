// abi.cc: the sizes of ced.h's structs. They are the same on every 64-bit target; a change here is a change
// of ABI.
#include "ced.h"

static_assert(sizeof(ced_err) == 256);
static_assert(sizeof(ced_device) == 96);
static_assert(sizeof(ced_rows) == 56);
static_assert(sizeof(ced_groups) == 16);
static_assert(sizeof(ced_kv) == 64);
static_assert(sizeof(ced_embed_args) == 64);
static_assert(sizeof(ced_row_gather_args) == 48);
static_assert(sizeof(ced_norm_quant_args) == 64);
static_assert(sizeof(ced_dense_gemm_args) == 80);
static_assert(sizeof(ced_rope_args) == 48);
static_assert(sizeof(ced_mhc_mix_args) == 88);
static_assert(sizeof(ced_mhc_collapse_args) == 48);
static_assert(sizeof(ced_mhc_expand_args) == 56);
static_assert(sizeof(ced_mhc_border_args) == 144);
static_assert(sizeof(ced_engram_gather_args) == 64);
static_assert(sizeof(ced_engram_gate_args) == 64);
static_assert(sizeof(ced_window_pack_args) == 64);
static_assert(sizeof(ced_window_commit_args) == 40);
static_assert(sizeof(ced_csa2_compress_args) == 80);
static_assert(sizeof(ced_kv_append_args) == 128);
static_assert(sizeof(ced_csa2_index_args) == 176);
static_assert(sizeof(ced_csa2_attend_args) == 168);
static_assert(sizeof(ced_route_args) == 80);
static_assert(sizeof(ced_expert) == 48);
static_assert(sizeof(ced_expert_gemm_args) == 160);
static_assert(sizeof(ced_greedy_args) == 32);
