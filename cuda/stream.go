package ced

/*
#cgo noescape ced_upload
#cgo nocallback ced_upload
#cgo noescape ced_download
#cgo nocallback ced_download
#include "ced.h"

static void *host_pointer(uint64_t addr) { return (void *)(uintptr_t)addr; }
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// Addr is an address in a stream's memory; Go never dereferences it. 0 means absent.
type Addr uint64

// Stream is an ordered queue of kernels on one device. One goroutine at a time may use it.
type Stream struct {
	c    *C.ced_stream
	kind Kind
	dev  int
	err  C.ced_err // here, so that a failing call does not allocate one

	trace *Trace // nil: nothing is recorded
	fault func(call string) error
}

// Flag changes how a stream runs, never its results.
type Flag uint32

// Pin binds every CPU worker thread to a processor; the calling thread's is left free for it.
const Pin Flag = C.CED_PIN

// MaxThreads is the most CPU worker threads that a stream takes.
const MaxThreads = 1024

// Open makes a stream of kind k on a device. threads counts CPU worker threads, 0 = one per usable core: those of the
// affinity mask, at most the control group's quota rounded up.
func Open(k Kind, device, threads int, flags ...Flag) (*Stream, error) {
	if err := checkABI(); err != nil {
		return nil, err
	}
	var all Flag
	for _, f := range flags {
		all |= f
	}
	s, e := &Stream{kind: k, dev: device}, new(C.ced_err)
	if rc := C.ced_stream_open(C.ced_kind(k), C.int(device), C.int(threads), C.uint32_t(all), &s.c, e); rc != 0 {
		return nil, fmt.Errorf("open %s stream: %w", k, failure(e))
	}
	return s, nil
}

// Beside makes another stream on the same device, for copies while the first one computes.
func (s *Stream) Beside() (*Stream, error) { return Open(s.kind, s.dev, 1) }

// Close ends the stream's threads. Memory allocated on it must have been freed.
func (s *Stream) Close() {
	s.SetTrace(nil)
	C.ced_stream_close(s.c)
}

// Kind is the body family of the stream.
func (s *Stream) Kind() Kind { return s.kind }

// Host reports whether the stream's memory is this process's memory, so that mapped weights are read in place.
func (s *Stream) Host() bool { return s.kind != CUDA }

// Threads is the number of workers, the caller included.
func (s *Stream) Threads() int { return int(C.ced_stream_threads(s.c)) }

// Sync waits for everything enqueued.
func (s *Stream) Sync() error {
	at := s.begin()
	rc := C.ced_stream_sync(s.c, &s.err)
	return s.end("sync", at, int(rc))
}

// Alloc reserves n bytes, 64-byte aligned, contents undefined.
func (s *Stream) Alloc(n int) (Addr, error) {
	var a C.uint64_t
	if rc := C.ced_alloc(s.c, C.uint64_t(n), &a, &s.err); rc != 0 {
		return 0, fmt.Errorf("allocate %d bytes: %w", n, failure(&s.err))
	}
	return Addr(a), nil
}

// Free releases memory of Alloc; 0 is ignored.
func (s *Stream) Free(a Addr) {
	if a != 0 {
		C.ced_free(s.c, C.uint64_t(a))
	}
}

// HostAlloc reserves n bytes of page-locked host memory, which kernels of any device read where it is; on a host stream it
// is like Alloc.
func (s *Stream) HostAlloc(n int) (Addr, error) {
	var a C.uint64_t
	if rc := C.ced_host_alloc(s.c, C.uint64_t(n), &a, &s.err); rc != 0 {
		return 0, fmt.Errorf("allocate %d bytes of page-locked memory: %w", n, failure(&s.err))
	}
	return Addr(a), nil
}

// HostFree releases memory of HostAlloc; 0 is ignored.
func (s *Stream) HostFree(a Addr) {
	if a != 0 {
		C.ced_host_free(s.c, C.uint64_t(a))
	}
}

// HostBytes are n bytes at a, memory of HostAlloc.
func HostBytes(a Addr, n int) []byte { return unsafe.Slice((*byte)(C.host_pointer(C.uint64_t(a))), n) }

// Fill sets n bytes at dst to b.
func (s *Stream) Fill(dst Addr, b byte, n int) error {
	at := s.begin()
	rc := C.ced_fill(s.c, C.uint64_t(dst), C.int(b), C.uint64_t(n), &s.err)
	return s.end("fill", at, int(rc))
}

// Upload copies src into stream memory; src may be reused at once.
func (s *Stream) Upload(dst Addr, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	at := s.begin()
	rc := C.ced_upload(s.c, C.uint64_t(dst), unsafe.Pointer(&src[0]), C.uint64_t(len(src)), &s.err)
	return s.end("upload", at, int(rc))
}

// Download copies from stream memory once everything enqueued before is done.
func (s *Stream) Download(dst []byte, src Addr) error {
	if len(dst) == 0 {
		return nil
	}
	at := s.begin()
	rc := C.ced_download(s.c, unsafe.Pointer(&dst[0]), C.uint64_t(src), C.uint64_t(len(dst)), &s.err)
	return s.end("download", at, int(rc))
}

// Copy moves n bytes within stream memory.
func (s *Stream) Copy(dst, src Addr, n int) error {
	at := s.begin()
	rc := C.ced_copy(s.c, C.uint64_t(dst), C.uint64_t(src), C.uint64_t(n), &s.err)
	return s.end("copy", at, int(rc))
}

// HostAddr is the address of b in a host stream's memory. The caller keeps b alive and unmoved (mapped or native
// memory, never a Go heap object).
func HostAddr(b []byte) Addr {
	if len(b) == 0 {
		return 0
	}
	return Addr(uintptr(unsafe.Pointer(&b[0])))
}
