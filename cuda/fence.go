package ced

// #include "ced.h"
import "C"

import (
	"fmt"
	"time"
)

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

// NewTimedFence makes one that Since knows the time of, which costs the device more. Host streams refuse it.
func (s *Stream) NewTimedFence() (*Fence, error) {
	e := &Fence{}
	if rc := C.ced_event_open_timed(s.c, &e.c, &s.err); rc != 0 {
		return nil, fmt.Errorf("timed event: %w", failure(&s.err))
	}
	return e, nil
}

// Since is the time from the device's reaching timed fence from to its reaching e, to about a microsecond. Both are
// recorded, on streams of one device, and complete.
func (e *Fence) Since(from *Fence) (time.Duration, error) {
	var f C.ced_err
	var seconds C.double
	if rc := C.ced_event_elapsed(from.c, e.c, &seconds, &f); rc != 0 {
		return 0, fmt.Errorf("time between events: %w", failure(&f))
	}
	return time.Duration(float64(seconds) * float64(time.Second)), nil
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

// Wait lets what is enqueued from here on wait for e as recorded last; the caller does not. A trace has it as a call "wait",
// on a device as long as that stood still.
func (s *Stream) Wait(e *Fence) error {
	at := s.begin()
	rc := C.ced_event_wait(s.c, e.c, &s.err)
	if err := s.end("wait", at, int(rc)); err != nil {
		return fmt.Errorf("wait for event: %w", err)
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
