package ced

/*
#include <stddef.h>
#include "ced.h"
*/
import "C"

import "unsafe"

// layout pairs the C and Go sizes of a struct and the offsets of its last member.
type layout struct {
	name                         string
	cSize, goSize, cLast, goLast uintptr
}

// layouts exists for the layout test: cgo cannot be used in a test file.
func layouts() []layout {
	return []layout{
		{"ced_rows", C.sizeof_ced_rows, unsafe.Sizeof(Rows{}), unsafe.Offsetof(C.ced_rows{}.seq_first), unsafe.Offsetof(Rows{}.SeqFirst)},
		{"ced_groups", C.sizeof_ced_groups, unsafe.Sizeof(Groups{}), unsafe.Offsetof(C.ced_groups{}.row), unsafe.Offsetof(Groups{}.Row)},
		{"ced_kv", C.sizeof_ced_kv, unsafe.Sizeof(KV{}), unsafe.Offsetof(C.ced_kv{}.index_scales), unsafe.Offsetof(KV{}.IndexScales)},
		{"ced_embed_args", C.sizeof_ced_embed_args, unsafe.Sizeof(EmbedArgs{}), unsafe.Offsetof(C.ced_embed_args{}.table_format), unsafe.Offsetof(EmbedArgs{}.TableFormat)},
		{"ced_row_gather_args", C.sizeof_ced_row_gather_args, unsafe.Sizeof(RowGatherArgs{}), unsafe.Offsetof(C.ced_row_gather_args{}.max_rows), unsafe.Offsetof(RowGatherArgs{}.MaxRows)},
		{"ced_norm_quant_args", C.sizeof_ced_norm_quant_args, unsafe.Sizeof(NormQuantArgs{}), unsafe.Offsetof(C.ced_norm_quant_args{}.eps), unsafe.Offsetof(NormQuantArgs{}.Eps)},
		{"ced_dense_gemm_args", C.sizeof_ced_dense_gemm_args, unsafe.Sizeof(DenseGEMMArgs{}), unsafe.Offsetof(C.ced_dense_gemm_args{}.y_format), unsafe.Offsetof(DenseGEMMArgs{}.YFormat)},
		{"ced_rope_args", C.sizeof_ced_rope_args, unsafe.Sizeof(RoPEArgs{}), unsafe.Offsetof(C.ced_rope_args{}.inverse), unsafe.Offsetof(RoPEArgs{}.Inverse)},
		{"ced_mhc_mix_args", C.sizeof_ced_mhc_mix_args, unsafe.Sizeof(MHCMixArgs{}), unsafe.Offsetof(C.ced_mhc_mix_args{}.hc_eps), unsafe.Offsetof(MHCMixArgs{}.HcEps)},
		{"ced_mhc_collapse_args", C.sizeof_ced_mhc_collapse_args, unsafe.Sizeof(MHCCollapseArgs{}), unsafe.Offsetof(C.ced_mhc_collapse_args{}.streams), unsafe.Offsetof(MHCCollapseArgs{}.Streams)},
		{"ced_mhc_expand_args", C.sizeof_ced_mhc_expand_args, unsafe.Sizeof(MHCExpandArgs{}), unsafe.Offsetof(C.ced_mhc_expand_args{}.streams), unsafe.Offsetof(MHCExpandArgs{}.Streams)},
		{"ced_mhc_border_args", C.sizeof_ced_mhc_border_args, unsafe.Sizeof(MHCBorderArgs{}), unsafe.Offsetof(C.ced_mhc_border_args{}.hc_eps), unsafe.Offsetof(MHCBorderArgs{}.HcEps)},
		{"ced_engram_gather_args", C.sizeof_ced_engram_gather_args, unsafe.Sizeof(EngramGatherArgs{}), unsafe.Offsetof(C.ced_engram_gather_args{}.dim), unsafe.Offsetof(EngramGatherArgs{}.Dim)},
		{"ced_engram_gate_args", C.sizeof_ced_engram_gate_args, unsafe.Sizeof(EngramGateArgs{}), unsafe.Offsetof(C.ced_engram_gate_args{}.eps), unsafe.Offsetof(EngramGateArgs{}.Eps)},
		{"ced_window_pack_args", C.sizeof_ced_window_pack_args, unsafe.Sizeof(WindowPackArgs{}), unsafe.Offsetof(C.ced_window_pack_args{}.eps), unsafe.Offsetof(WindowPackArgs{}.Eps)},
		{"ced_window_commit_args", C.sizeof_ced_window_commit_args, unsafe.Sizeof(WindowCommitArgs{}), unsafe.Offsetof(C.ced_window_commit_args{}.ring_rows), unsafe.Offsetof(WindowCommitArgs{}.RingRows)},
		{"ced_csa2_compress_args", C.sizeof_ced_csa2_compress_args, unsafe.Sizeof(CSA2CompressArgs{}), unsafe.Offsetof(C.ced_csa2_compress_args{}.eps), unsafe.Offsetof(CSA2CompressArgs{}.Eps)},
		{"ced_kv_append_args", C.sizeof_ced_kv_append_args, unsafe.Sizeof(KVAppendArgs{}), unsafe.Offsetof(C.ced_kv_append_args{}.eps), unsafe.Offsetof(KVAppendArgs{}.Eps)},
		{"ced_csa2_index_args", C.sizeof_ced_csa2_index_args, unsafe.Sizeof(CSA2IndexArgs{}), unsafe.Offsetof(C.ced_csa2_index_args{}.scale), unsafe.Offsetof(CSA2IndexArgs{}.Scale)},
		{"ced_csa2_attend_args", C.sizeof_ced_csa2_attend_args, unsafe.Sizeof(CSA2AttendArgs{}), unsafe.Offsetof(C.ced_csa2_attend_args{}.top_k), unsafe.Offsetof(CSA2AttendArgs{}.TopK)},
		{"ced_route_args", C.sizeof_ced_route_args, unsafe.Sizeof(RouteArgs{}), unsafe.Offsetof(C.ced_route_args{}.bias_format), unsafe.Offsetof(RouteArgs{}.BiasFormat)},
		{"ced_expert", C.sizeof_ced_expert, unsafe.Sizeof(Expert{}), unsafe.Offsetof(C.ced_expert{}.w2_scales), unsafe.Offsetof(Expert{}.W2Scales)},
		{"ced_expert_gemm_args", C.sizeof_ced_expert_gemm_args, unsafe.Sizeof(ExpertGEMMArgs{}), unsafe.Offsetof(C.ced_expert_gemm_args{}.flags), unsafe.Offsetof(ExpertGEMMArgs{}.Flags)},
		{"ced_greedy_args", C.sizeof_ced_greedy_args, unsafe.Sizeof(GreedyArgs{}), unsafe.Offsetof(C.ced_greedy_args{}.vocab), unsafe.Offsetof(GreedyArgs{}.Vocab)},
	}
}
