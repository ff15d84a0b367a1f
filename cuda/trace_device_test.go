//go:build sim || cuda

package ced

import (
	"testing"
	"time"
)

// openDevice skips a test where there is no device.
func openDevice(t *testing.T) (*Stream, Addr) {
	t.Helper()
	s, err := Open(CUDA, 0, 0)
	if err != nil {
		t.Skip(err)
	}
	a, err := s.Alloc(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.SetTrace(nil)
		s.Free(a)
		s.Close()
	})
	return s, a
}

// A device's calls have its times, and lie within sections that follow each other, and within what the host waited for.
func TestATraceOfADeviceTilesTimeWithSections(t *testing.T) {
	s, a := openDevice(t)
	trace := NewTrace(64)
	s.SetTrace(trace)
	host := make([]byte, 1<<16)
	for step := range 3 {
		began := time.Now()
		for layer := range 3 {
			s.Mark("experts", layer)
			for range 4 {
				if err := s.Fill(a, byte(step), len(host)); err != nil {
					t.Fatal(err)
				}
			}
		}
		s.Mark("sampling", -1)
		if err := s.Download(host, a); err != nil {
			t.Fatal(err)
		}
		s.EndSection()
		ended := trace.At(time.Now())
		events := trace.Events()
		if n := len(trace.Events()); n != 3*4+1+4 || trace.Dropped() != 0 {
			t.Fatalf("%d events, %d dropped", n, trace.Dropped())
		}
		at, calls, longest := time.Duration(0), trace.At(began), time.Duration(0)
		left := time.Duration(0)
		for _, e := range events {
			if e.Took < 0 {
				t.Errorf("%+v took less than nothing", e)
			}
			if e.Kernel != "" {
				if e.Start < calls {
					t.Errorf("%+v begins before %v, when the one before ends", e, calls)
				}
				calls, longest, left = e.Start+e.Took, max(longest, e.Took), left+e.Took
				continue
			}
			if at != 0 && e.Start != at {
				t.Errorf("%+v begins at %v, where the section before ends", e, at)
			}
			if at = e.Start + e.Took; calls > at || left > e.Took {
				t.Errorf("%+v: its calls take %v and end at %v", e, left, calls)
			}
			left = 0
		}
		if at > ended || longest == 0 {
			t.Errorf("sections end at %v of %v, the longest call took %v", at, ended, longest)
		}
		trace.Reset()
	}
}

func TestATraceOfADeviceUsesItsEventsAgain(t *testing.T) {
	s, a := openDevice(t)
	trace := NewTrace(3)
	s.SetTrace(trace)
	for range 4 {
		s.Mark("head", -1)
		for range 5 {
			if err := s.Fill(a, 0, 64); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(trace.Events()); n != 3 || trace.Dropped() != 2 {
			t.Fatalf("%d events, %d dropped", n, trace.Dropped())
		}
		s.EndSection()
		trace.Reset()
	}
	if n := len(trace.device.spare); n > 7 {
		t.Errorf("%d events of the device for 3 calls at a time", n)
	}
	trace.Pause(true)
	s.Mark("head", -1)
	trace.Pause(false)
	s.Mark("head", -1)
	if err := s.Fill(a, 0, 64); err != nil {
		t.Fatal(err)
	}
	s.EndSection()
	for _, e := range trace.Events() {
		if e.Start < 0 || e.Took < 0 {
			t.Errorf("%+v after a pause", e)
		}
	}
}

func TestACallThatADeviceRefusesIsNoTrouble(t *testing.T) {
	s, a := openDevice(t)
	trace := NewTrace(8)
	s.SetTrace(trace)
	s.Mark("head", -1)
	if err := s.NormQuant(&NormQuantArgs{}); err == nil {
		t.Fatal("a call without operands")
	}
	if err := s.Fill(a, 0, 64); err != nil {
		t.Fatal(err)
	}
	s.EndSection()
	if e := trace.Events(); len(e) != 3 || e[1].Kernel != "fill" || e[1].Took <= 0 {
		t.Errorf("%+v", e)
	}
}
