package ced

/*
#include "ced.h"
*/
import "C"

import "runtime"

// Graph is what a device stream replays at once: kernels and copies within its memory, with the bytes of their arguments.
// What those point at is read anew at every launch.
type Graph struct{ c *C.ced_graph }

// Capture records what f enqueues on a device stream instead of running it. f must neither upload, download, allocate nor
// wait; a capture in which it does fails, as one of a host stream. Its errors are Capture's.
func (s *Stream) Capture(f func() error) (*Graph, error) {
	// A driver knows a capture by the thread that began it, and Go moves goroutines between threads.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	at := s.begin()
	if rc := C.ced_capture_begin(s.c, &s.err); rc != 0 {
		return nil, failure(&s.err)
	}
	trace := s.trace
	s.trace = nil // what f enqueues does not run
	err := f()
	s.trace = trace
	g := &Graph{}
	rc := C.ced_capture_end(s.c, &g.c, &s.err) // whatever f said: the stream is to run again
	if end := s.end("capture", at, int(rc)); err == nil {
		err = end
	}
	if err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// Launch enqueues a graph that was captured on this stream.
func (s *Stream) Launch(g *Graph) error {
	at := s.begin()
	rc := C.ced_graph_launch(s.c, g.c, &s.err)
	return s.end("graph", at, int(rc))
}

// Close frees a graph whose launches are done. It may be nil.
func (g *Graph) Close() {
	if g != nil {
		C.ced_graph_close(g.c)
		g.c = nil
	}
}
