package ced

/*
#include <stdlib.h>
#include "ced.h"
*/
import "C"

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
)

//go:embed ced.h
var header []byte

// Kind selects the body that a stream's kernels run.
type Kind int

const (
	Ref  Kind = C.CED_REF  // scalar, canonical arithmetic
	CPU  Kind = C.CED_CPU  // threaded, vectorised
	CUDA Kind = C.CED_CUDA // the device
)

// String is the name used by flags, logs and reports.
func (k Kind) String() string {
	switch k {
	case Ref:
		return "ref"
	case CPU:
		return "cpu"
	case CUDA:
		return "cuda"
	}
	return fmt.Sprintf("kind(%d)", int(k))
}

// Status codes of ced.h.
const (
	EINVAL  = C.CED_EINVAL
	ENOMEM  = C.CED_ENOMEM
	ENODEV  = C.CED_ENODEV
	EDEVICE = C.CED_EDEVICE
)

// Error is what the native side reported.
type Error struct {
	Code, CUDA int
	What       string
}

func (e *Error) Error() string {
	if e.CUDA != 0 {
		return fmt.Sprintf("%s (CUDA error %d)", e.What, e.CUDA)
	}
	return e.What
}

func failure(e *C.ced_err) error {
	return &Error{Code: int(e.code), CUDA: int(e.cuda), What: C.GoString(&e.what[0])}
}

// Devices counts the devices of kind k; none is not an error.
func Devices(k Kind) int { return int(C.ced_device_count(C.ced_kind(k))) }

// ISA names the instruction set of the CPU bodies: plain, avx2, avx512, avx512bf16 or neon. The environment variable
// CEDRUN_ISA forces one; all give the same bits.
func ISA() string { return C.GoString(C.ced_isa()) }

// ABI is the digest of the header that the linked archive was built from.
func ABI() string { return C.GoString(C.ced_abi()) }

// checkABI refuses an archive that was built from another header than this binding.
func checkABI() error {
	sum := sha256.Sum256(header)
	if got, want := ABI(), hex.EncodeToString(sum[:]); got != want {
		return fmt.Errorf("the native library was built from another ced.h (%.12s, want %.12s): run make", got, want)
	}
	return nil
}

// Archive is the digest of the linked archive; using it ties Go's build cache to the archive's contents.
func Archive() string { return libDigest }
