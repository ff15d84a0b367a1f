package ced

import "time"

// deviceClock tells when a device ran the calls of a trace: timed events lie before and behind each, and a first one, at a
// time of the host's that is known, ties the device's clock to the host's.
//
// What it says of a call is never after the truth: the first event is reached after the time that it stands for. A call starts
// when the one before it has ended and the host has asked for it, at the earliest, and ends, if the host waits for it, when
// the host goes on, at the latest. So calls lie within the steps and sections in which they were made.
type deviceClock struct {
	s     *Stream
	first *Fence
	at    time.Duration // of the host, before first was recorded; 0: there is none since the last Reset
	spare []*Fence
	from  *Fence        // before the call that is being made
	calls []deviceCall  // that are not settled
	seen  int           // events that are settled
	ended time.Duration // of the last call of those
}

type deviceCall struct {
	event    int
	from, to *Fence
	waited   bool // the host goes on when the device is through
}

func (d *deviceClock) close() {
	d.recycle()
	for _, f := range append(d.spare, d.first, d.from) {
		f.Close()
	}
}

func (d *deviceClock) fence() *Fence {
	if n := len(d.spare); n > 0 {
		f := d.spare[n-1]
		d.spare = d.spare[:n-1]
		return f
	}
	f, err := d.s.NewTimedFence()
	if err != nil {
		return nil
	}
	return f
}

// before puts the event before a call. False: the call cannot be recorded.
func (d *deviceClock) before(t *Trace) bool {
	if d.at == 0 && !d.begin(t) {
		return false
	}
	if d.from == nil {
		d.from = d.fence()
	}
	return d.from != nil && d.s.Record(d.from) == nil
}

// begin ties the clocks together. What is not settled keeps the host's times.
func (d *deviceClock) begin(t *Trace) bool {
	d.recycle()
	if d.first == nil {
		d.first = d.fence()
	}
	for range 2 { // the first time waits for the device, and wakes it
		d.at = time.Since(t.epoch)
		if d.first == nil || d.s.Record(d.first) != nil || d.first.Sync() != nil {
			d.at = 0
			return false
		}
	}
	d.seen, d.ended = len(t.events), d.at
	return true
}

// behind puts the event behind the call whose event was added last.
func (d *deviceClock) behind(t *Trace, kernel string) {
	to := d.fence()
	if to == nil {
		return
	}
	if d.s.Record(to) != nil {
		d.spare = append(d.spare, to)
		return
	}
	d.calls = append(d.calls, deviceCall{len(t.events) - 1, d.from, to, kernel == "download" || kernel == "sync"})
	d.from = nil
}

// reset forgets all calls, and ties the clocks together anew.
func (d *deviceClock) reset(t *Trace) {
	d.recycle()
	if d.at = 0; !t.paused.Load() {
		d.begin(t)
	}
}

func (d *deviceClock) recycle() {
	for _, c := range d.calls {
		d.spare = append(d.spare, c.from, c.to)
	}
	d.calls = d.calls[:0]
}

// wait returns when the device is through with all calls, and reports whether it was.
func (d *deviceClock) wait() bool {
	n := len(d.calls)
	return n > 0 && d.calls[n-1].to.Sync() == nil
}

// settle gives the events that are not settled their times on the device, where it knows them.
func (d *deviceClock) settle(t *Trace) {
	if d.wait() {
		d.place(t)
	}
	d.recycle()
	before := d.ended // the section
	for ; d.seen < len(t.events); d.seen++ {
		e := &t.events[d.seen]
		end := e.Start + e.Took
		if e.Kernel != "" {
			d.ended = max(d.ended, end)
			continue
		}
		e.Start = max(e.Start, before)
		e.Took = max(end, d.ended) - e.Start
		before = d.ended
	}
}

// place moves calls from when they were made to when the device ran them.
func (d *deviceClock) place(t *Trace) {
	ended := d.ended
	for i, c := range d.calls {
		e := &t.events[c.event]
		from, ferr := c.from.Since(d.first)
		took, terr := c.to.Since(c.from)
		if ferr != nil || terr != nil {
			continue
		}
		back := e.Start + e.Took
		e.Start, e.Took = max(d.at+from, e.Start, ended), took
		ended = e.Start + e.Took
		if c.waited && ended > back { // the clocks do not run alike
			d.clip(t, i, back)
			ended = back
		}
	}
}

// clip ends calls up to the i-th at a time at the latest.
func (d *deviceClock) clip(t *Trace, i int, at time.Duration) {
	for ; i >= 0; i-- {
		e := &t.events[d.calls[i].event]
		if e.Start+e.Took <= at {
			return
		}
		e.Start = min(e.Start, at)
		e.Took = at - e.Start
	}
}
