package ced

/*
#include "ced.h"
*/
import "C"

import (
	"runtime"
	"sync"
	"unsafe"
)

// ExpertsPacked is ExpertGEMMArgs.Layout where routed experts are as PackExpert makes them; 0: as in a checkpoint.
const ExpertsPacked = C.CED_EXPERTS_PACKED

// PackedExpertBytes is what a packed expert of this geometry takes, and where in it its W2 begins, after W1.
func PackedExpertBytes(dim, inter int) (bytes, w2 int) {
	var at C.uint64_t
	n := C.ced_expert_pack_bytes(C.uint32_t(dim), C.uint32_t(inter), &at)
	return int(n), int(at)
}

// PackExpert writes a packed expert to dst, host memory at a multiple of 32 bytes, on all processors. from has the host
// addresses of its six tensors.
func PackExpert(dst Addr, from Expert, dim, inter int) error {
	parts := min(runtime.GOMAXPROCS(0), 16)
	failed := make([]error, parts)
	var all sync.WaitGroup
	for i := range parts {
		all.Go(func() {
			e := new(C.ced_err)
			if C.ced_expert_pack((*C.ced_expert)(unsafe.Pointer(&from)), C.uint32_t(dim), C.uint32_t(inter), C.uint32_t(i), C.uint32_t(parts), C.uint64_t(dst), e) != 0 {
				failed[i] = failure(e)
			}
		})
	}
	all.Wait()
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}
