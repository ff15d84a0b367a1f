package ced

// #include "ced.h"
import "C"

import "fmt"

// Fence marks a place in a stream that other streams and the host can wait for. On host streams it is complete at once.
type Fence struct{ c *C.ced_event }

// NewFence makes a fence of the stream's device; until it is recorded it is complete.
func (s *Stream) NewFence() (*Fence, error) {
	e := &Fence{}
	if rc := C.ced_event_open(s.c, &e.c, &s.err); rc != 0 {
		return nil, fmt.Errorf("event: %w", failure(&s.err))
	}
	return e, nil
}

// Close ends the fence; nil is ignored.
func (e *Fence) Close() {
	if e != nil {
		C.ced_event_close(e.c)
	}
}

// Record makes e complete when everything that was enqueued so far is.
func (s *Stream) Record(e *Fence) error {
	if rc := C.ced_event_record(s.c, e.c, &s.err); rc != 0 {
		return fmt.Errorf("record event: %w", failure(&s.err))
	}
	return nil
}

// Wait lets what is enqueued from here on wait for e as recorded last; the caller does not.
func (s *Stream) Wait(e *Fence) error {
	if rc := C.ced_event_wait(s.c, e.c, &s.err); rc != 0 {
		return fmt.Errorf("wait for event: %w", failure(&s.err))
	}
	return nil
}

// Sync waits until e is complete.
func (e *Fence) Sync() error {
	var f C.ced_err
	if rc := C.ced_event_sync(e.c, &f); rc != 0 {
		return fmt.Errorf("wait for event: %w", failure(&f))
	}
	return nil
}

// Done reports whether e is complete.
func (e *Fence) Done() (bool, error) {
	var f C.ced_err
	rc := C.ced_event_done(e.c, &f)
	if rc < 0 {
		return false, fmt.Errorf("event: %w", failure(&f))
	}
	return rc != 0, nil
}
