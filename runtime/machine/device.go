package machine

import (
	"fmt"
	"time"

	ced "cedrun/cuda"
	"cedrun/runtime/plan"
)

// deviceCalls of a multiplying kernel take some milliseconds. On a simulated device nothing that is measured means anything.
const deviceCalls = 16

// watch times what a device does by its own events.
type watch struct{ from, to *ced.Fence }

func newWatch(s *ced.Stream) (*watch, error) {
	from, err := s.NewTimedFence()
	if err != nil {
		return nil, err
	}
	to, err := s.NewTimedFence()
	if err != nil {
		from.Close()
		return nil, err
	}
	return &watch{from, to}, nil
}

func (w *watch) close() {
	w.from.Close()
	w.to.Close()
}

// time is how long the device takes for what f enqueues.
func (w *watch) time(s *ced.Stream, f func() error) (time.Duration, error) {
	if err := s.Record(w.from); err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	if err := s.Record(w.to); err != nil {
		return 0, err
	}
	if err := w.to.Sync(); err != nil {
		return 0, err
	}
	took, err := w.to.Since(w.from)
	return max(took, time.Nanosecond), err
}

// newDeviceProber takes size bytes of a device, or a quarter as often as it has no room for them, and measures once
// without counting it: kernels are loaded when they first run.
func newDeviceProber(s *ced.Stream, size int) (*Prober, error) {
	least := leastProbe
	if ced.Simulated {
		size, least = 1<<20, 1<<20
	}
	at, err := s.Alloc(size)
	for err != nil && size/4 >= least {
		size /= 4
		at, err = s.Alloc(size)
	}
	if err != nil {
		return nil, fmt.Errorf("measure the device: no buffer of %s can be had (%w): leave it some memory, with --expert-memory or a smaller cache", plan.GB(int64(size)), err)
	}
	p := &Prober{s: s, at: at, size: size}
	if p.watch, err = newWatch(s); err != nil {
		s.Free(at)
		return nil, err
	}
	if err = s.Fill(at, 1, size); err == nil {
		_, err = p.measure()
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}
