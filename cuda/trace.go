package ced

import (
	"sync/atomic"
	"time"
)

// Trace records what a stream ran and when: kernel calls and copies, and the sections that the caller marks around them.
// It never grows: what does not fit is counted in Dropped. Like its stream it belongs to one goroutine at a time, but for
// Pause.
type Trace struct {
	paused  atomic.Bool
	events  []Event
	dropped int
	epoch   time.Time
	section Event
	open    bool
	device  *deviceClock // nil: a call is done when it returns
}

// Event is a call (Kernel set) or a section (Kernel empty), which holds the calls that began in it. Sections follow each
// other without a gap, so what calls leave of one is time of the host. Start counts from the trace's beginning.
//
// On a device a call's time is the device's, and a section lasts from when the host marked it and the device was through with
// what came before: what calls leave of it is time in which the device had nothing to do.
type Event struct {
	Kernel, Part string
	Layer        int // -1 outside layers
	Start, Took  time.Duration
}

// NewTrace makes room for events.
func NewTrace(events int) *Trace {
	return &Trace{events: make([]Event, 0, events), epoch: time.Now()}
}

// Events are those recorded since the last Reset, each when it ended; valid until the next. On a device it waits for them.
func (t *Trace) Events() []Event {
	if t.device != nil {
		t.device.settle(t)
	}
	return t.events
}

// Dropped counts events for which there was no room.
func (t *Trace) Dropped() int { return t.dropped }

// Pause stops or resumes recording, from any goroutine; a trace begins resumed. What runs at that moment is lost or
// recorded in part: whoever resumes leaves out what began before.
func (t *Trace) Pause(on bool) { t.paused.Store(on) }

// At is the Start of an event at time t.
func (t *Trace) At(at time.Time) time.Duration { return at.Sub(t.epoch) }

// Reset forgets all events. The open section goes on, counted from now.
func (t *Trace) Reset() {
	t.events, t.dropped = t.events[:0], 0
	if t.device != nil {
		t.device.reset(t)
	}
	if t.open {
		t.section.Start = time.Since(t.epoch)
	}
}

func (t *Trace) end() {
	if t.open {
		if t.device != nil {
			t.device.wait()
		}
		t.section.Took = time.Since(t.epoch) - t.section.Start
		t.add(t.section)
		t.open = false
	}
}

func (t *Trace) mark(part string, layer int) {
	if t.paused.Load() {
		t.end()
		if t.device != nil {
			t.device.at = 0 // until it goes on the clocks drift apart
		}
		return
	}
	now := time.Since(t.epoch)
	if t.open {
		t.section.Took = now - t.section.Start
		t.add(t.section)
	}
	t.section, t.open = Event{Part: part, Layer: layer, Start: now}, true
}

func (t *Trace) call(kernel string, start time.Duration) bool {
	return t.add(Event{Kernel: kernel, Part: t.section.Part, Layer: t.section.Layer, Start: start, Took: time.Since(t.epoch) - start})
}

// add reports whether there was room.
func (t *Trace) add(e Event) bool {
	if len(t.events) == cap(t.events) {
		t.dropped++
		return false
	}
	t.events = append(t.events, e)
	return true
}

// SetTrace starts recording into t; nil stops it. Without a trace a call pays for one branch before and one after, with a
// paused one for a load more.
//
// A device puts an event before and behind each call of a trace that is not paused, so that launches cost more.
func (s *Stream) SetTrace(t *Trace) {
	if s.trace != nil && s.trace.device != nil {
		s.trace.device.close()
		s.trace.device = nil
	}
	if s.trace = t; t != nil && !s.Host() {
		t.device = &deviceClock{s: s}
	}
}

// Tracing reports whether calls are recorded.
func (s *Stream) Tracing() bool { return s.trace != nil && !s.trace.paused.Load() }

// Mark begins a section: what the stream runs and the host does from now on counts for a part of the model, or of the
// host's own work, and a layer (-1: none).
func (s *Stream) Mark(part string, layer int) {
	if s.trace != nil {
		s.trace.mark(part, layer)
	}
}

// EndSection ends the section without beginning another. On a device it waits for what is traced, so that whoever times a
// step by the host's clock has all of it.
func (s *Stream) EndSection() {
	if s.trace != nil {
		s.trace.end()
	}
}

// begin and end enclose a call; start is negative when it is not recorded.
func (s *Stream) begin() time.Duration {
	if s.trace == nil || s.trace.paused.Load() {
		return -1
	}
	start := time.Since(s.trace.epoch)
	if d := s.trace.device; d != nil && !d.before(s.trace) {
		return -1
	}
	return start
}

func (s *Stream) end(kernel string, start time.Duration, rc int) error {
	if s.trace != nil && start >= 0 {
		if added, d := s.trace.call(kernel, start), s.trace.device; added && d != nil && rc == 0 {
			d.behind(s.trace, kernel)
		}
	}
	if rc != 0 {
		return failure(&s.err)
	}
	if s.fault != nil {
		return s.fault(kernel)
	}
	return nil
}
