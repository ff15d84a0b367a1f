package ced

/*
#include "ced.h"
*/
import "C"

// ProbeRead reads n bytes at a once: on all threads of a host stream, at once; on a device, enqueued.
func (s *Stream) ProbeRead(a Addr, n int) error {
	var sum C.uint64_t
	out := &sum
	if !s.Host() {
		out = nil // it would wait
	}
	at := s.begin()
	rc := C.ced_probe_read(s.c, C.uint64_t(a), C.uint64_t(n), out, &s.err)
	return s.end("probe_read", at, int(rc))
}

// ProbeMultiply runs calls pieces of multiply-adds in registers on all threads of a host stream, of BF16 pairs where the
// machine can and bf16 asks for it, and returns the number of multiplications and additions. On a device it enqueues them,
// for bf16 on its matrix units.
func (s *Stream) ProbeMultiply(bf16 bool, calls int) (flops float64, err error) {
	var n C.double
	form := C.int(0)
	if bf16 {
		form = 1
	}
	at := s.begin()
	rc := C.ced_probe_multiply(s.c, form, C.uint32_t(calls), &n, &s.err)
	return float64(n), s.end("probe_multiply", at, int(rc))
}
