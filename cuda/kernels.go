package ced

/*
#cgo noescape ced_embed
#cgo nocallback ced_embed
#cgo noescape ced_row_gather
#cgo nocallback ced_row_gather
#cgo noescape ced_norm_quant
#cgo nocallback ced_norm_quant
#cgo noescape ced_dense_gemm
#cgo nocallback ced_dense_gemm
#cgo noescape ced_rope
#cgo nocallback ced_rope
#cgo noescape ced_mhc_mix
#cgo nocallback ced_mhc_mix
#cgo noescape ced_mhc_collapse
#cgo nocallback ced_mhc_collapse
#cgo noescape ced_mhc_expand
#cgo nocallback ced_mhc_expand
#cgo noescape ced_mhc_border
#cgo nocallback ced_mhc_border
#cgo noescape ced_engram_gather
#cgo nocallback ced_engram_gather
#cgo noescape ced_engram_gate
#cgo nocallback ced_engram_gate
#cgo noescape ced_window_pack
#cgo nocallback ced_window_pack
#cgo noescape ced_window_commit
#cgo nocallback ced_window_commit
#cgo noescape ced_csa2_compress
#cgo nocallback ced_csa2_compress
#cgo noescape ced_kv_append
#cgo nocallback ced_kv_append
#cgo noescape ced_csa2_index
#cgo nocallback ced_csa2_index
#cgo noescape ced_csa2_attend
#cgo nocallback ced_csa2_attend
#cgo noescape ced_route
#cgo nocallback ced_route
#cgo noescape ced_expert_gemm
#cgo nocallback ced_expert_gemm
#cgo noescape ced_greedy
#cgo nocallback ced_greedy
#include "ced.h"
*/
import "C"

import "unsafe"

// Every method enqueues the kernel of its name; ced.h holds the contract.

// Embed enqueues ced_embed.
func (s *Stream) Embed(a *EmbedArgs) error {
	at := s.begin()
	rc := C.ced_embed(s.c, (*C.ced_embed_args)(unsafe.Pointer(a)), &s.err)
	return s.end("embed", at, int(rc))
}

// RowGather enqueues ced_row_gather.
func (s *Stream) RowGather(a *RowGatherArgs) error {
	at := s.begin()
	rc := C.ced_row_gather(s.c, (*C.ced_row_gather_args)(unsafe.Pointer(a)), &s.err)
	return s.end("row_gather", at, int(rc))
}

// NormQuant enqueues ced_norm_quant.
func (s *Stream) NormQuant(a *NormQuantArgs) error {
	at := s.begin()
	rc := C.ced_norm_quant(s.c, (*C.ced_norm_quant_args)(unsafe.Pointer(a)), &s.err)
	return s.end("norm_quant", at, int(rc))
}

// DenseGEMM enqueues ced_dense_gemm.
func (s *Stream) DenseGEMM(a *DenseGEMMArgs) error {
	at := s.begin()
	rc := C.ced_dense_gemm(s.c, (*C.ced_dense_gemm_args)(unsafe.Pointer(a)), &s.err)
	return s.end("dense_gemm", at, int(rc))
}

// RoPE enqueues ced_rope.
func (s *Stream) RoPE(a *RoPEArgs) error {
	at := s.begin()
	rc := C.ced_rope(s.c, (*C.ced_rope_args)(unsafe.Pointer(a)), &s.err)
	return s.end("rope", at, int(rc))
}

// MHCMix enqueues ced_mhc_mix.
func (s *Stream) MHCMix(a *MHCMixArgs) error {
	at := s.begin()
	rc := C.ced_mhc_mix(s.c, (*C.ced_mhc_mix_args)(unsafe.Pointer(a)), &s.err)
	return s.end("mhc_mix", at, int(rc))
}

// MHCCollapse enqueues ced_mhc_collapse.
func (s *Stream) MHCCollapse(a *MHCCollapseArgs) error {
	at := s.begin()
	rc := C.ced_mhc_collapse(s.c, (*C.ced_mhc_collapse_args)(unsafe.Pointer(a)), &s.err)
	return s.end("mhc_collapse", at, int(rc))
}

// MHCExpand enqueues ced_mhc_expand.
func (s *Stream) MHCExpand(a *MHCExpandArgs) error {
	at := s.begin()
	rc := C.ced_mhc_expand(s.c, (*C.ced_mhc_expand_args)(unsafe.Pointer(a)), &s.err)
	return s.end("mhc_expand", at, int(rc))
}

// MHCBorder enqueues ced_mhc_border.
func (s *Stream) MHCBorder(a *MHCBorderArgs) error {
	at := s.begin()
	rc := C.ced_mhc_border(s.c, (*C.ced_mhc_border_args)(unsafe.Pointer(a)), &s.err)
	return s.end("mhc_border", at, int(rc))
}

// EngramGather enqueues ced_engram_gather.
func (s *Stream) EngramGather(a *EngramGatherArgs) error {
	at := s.begin()
	rc := C.ced_engram_gather(s.c, (*C.ced_engram_gather_args)(unsafe.Pointer(a)), &s.err)
	return s.end("engram_gather", at, int(rc))
}

// EngramGate enqueues ced_engram_gate.
func (s *Stream) EngramGate(a *EngramGateArgs) error {
	at := s.begin()
	rc := C.ced_engram_gate(s.c, (*C.ced_engram_gate_args)(unsafe.Pointer(a)), &s.err)
	return s.end("engram_gate", at, int(rc))
}

// WindowPack enqueues ced_window_pack.
func (s *Stream) WindowPack(a *WindowPackArgs) error {
	at := s.begin()
	rc := C.ced_window_pack(s.c, (*C.ced_window_pack_args)(unsafe.Pointer(a)), &s.err)
	return s.end("window_pack", at, int(rc))
}

// WindowCommit enqueues ced_window_commit.
func (s *Stream) WindowCommit(a *WindowCommitArgs) error {
	at := s.begin()
	rc := C.ced_window_commit(s.c, (*C.ced_window_commit_args)(unsafe.Pointer(a)), &s.err)
	return s.end("window_commit", at, int(rc))
}

// CSA2Compress enqueues ced_csa2_compress.
func (s *Stream) CSA2Compress(a *CSA2CompressArgs) error {
	at := s.begin()
	rc := C.ced_csa2_compress(s.c, (*C.ced_csa2_compress_args)(unsafe.Pointer(a)), &s.err)
	return s.end("csa2_compress", at, int(rc))
}

// KVAppend enqueues ced_kv_append.
func (s *Stream) KVAppend(a *KVAppendArgs) error {
	at := s.begin()
	rc := C.ced_kv_append(s.c, (*C.ced_kv_append_args)(unsafe.Pointer(a)), &s.err)
	return s.end("kv_append", at, int(rc))
}

// CSA2Index enqueues ced_csa2_index.
func (s *Stream) CSA2Index(a *CSA2IndexArgs) error {
	at := s.begin()
	rc := C.ced_csa2_index(s.c, (*C.ced_csa2_index_args)(unsafe.Pointer(a)), &s.err)
	return s.end("csa2_index", at, int(rc))
}

// CSA2Attend enqueues ced_csa2_attend.
func (s *Stream) CSA2Attend(a *CSA2AttendArgs) error {
	at := s.begin()
	rc := C.ced_csa2_attend(s.c, (*C.ced_csa2_attend_args)(unsafe.Pointer(a)), &s.err)
	return s.end("csa2_attend", at, int(rc))
}

// Route enqueues ced_route.
func (s *Stream) Route(a *RouteArgs) error {
	at := s.begin()
	rc := C.ced_route(s.c, (*C.ced_route_args)(unsafe.Pointer(a)), &s.err)
	return s.end("route", at, int(rc))
}

// ExpertGEMM enqueues ced_expert_gemm.
func (s *Stream) ExpertGEMM(a *ExpertGEMMArgs) error {
	at := s.begin()
	rc := C.ced_expert_gemm(s.c, (*C.ced_expert_gemm_args)(unsafe.Pointer(a)), &s.err)
	return s.end("expert_gemm", at, int(rc))
}

// Greedy enqueues ced_greedy.
func (s *Stream) Greedy(a *GreedyArgs) error {
	at := s.begin()
	rc := C.ced_greedy(s.c, (*C.ced_greedy_args)(unsafe.Pointer(a)), &s.err)
	return s.end("greedy", at, int(rc))
}

// CSA2IndexWorkspace is the scratch that CSA2Index needs, in bytes.
func (s *Stream) CSA2IndexWorkspace(a *CSA2IndexArgs) int {
	return int(C.ced_csa2_index_workspace(s.c, (*C.ced_csa2_index_args)(unsafe.Pointer(a))))
}

// CSA2AttendWorkspace is the scratch that CSA2Attend needs, in bytes.
func (s *Stream) CSA2AttendWorkspace(a *CSA2AttendArgs) int {
	return int(C.ced_csa2_attend_workspace(s.c, (*C.ced_csa2_attend_args)(unsafe.Pointer(a))))
}

// ExpertGEMMWorkspace is the scratch that ExpertGEMM needs, in bytes.
func (s *Stream) ExpertGEMMWorkspace(a *ExpertGEMMArgs) int {
	return int(C.ced_expert_gemm_workspace(s.c, (*C.ced_expert_gemm_args)(unsafe.Pointer(a))))
}
