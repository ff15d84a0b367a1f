package disk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// job is what the writer does next: write a page, note a use, or say that it came this far.
type job struct {
	Page
	payload *[]byte
	used    *entry
	tick    uint64
	reached chan struct{}
}

// Write queues a copy of a page's bytes, of Options.PageBytes, and returns at once. False means that the page will not be
// written: the queue is full, writing is paused, the store is closed, the page before it is not there. A page that is there
// already is fine. Pages are written in the order in which they were given.
func (s *Store) Write(p Page, payload []byte) bool {
	if s == nil || len(payload) != s.pageBytes {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.has(p.Hash, p.Exact) {
		return true
	}
	if s.now().Before(s.writer.until) || p.At > 0 && !s.has(p.Parent, false) ||
		len(s.queue) == cap(s.queue) || s.pending[p.Hash] != nil { // the other kind is queued: later
		s.stats.Dropped++
		return false
	}
	b := s.buffers.Get().(*[]byte)
	copy(*b, payload)
	j := &job{Page: p, payload: b}
	s.pending[p.Hash] = j
	s.offer(j)
	return true
}

// offer queues a job if there is room. The lock is held, so the queue is not closed meanwhile.
func (s *Store) offer(j *job) bool {
	if s.closed {
		return false
	}
	select {
	case s.queue <- j:
		return true
	default:
		return false
	}
}

// Flush waits until what was queued before is written, or lost.
func (s *Store) Flush(ctx context.Context) error {
	if s == nil {
		return nil
	}
	j := &job{reached: make(chan struct{})}
	for {
		s.mu.Lock()
		ok, closed := s.offer(j), s.closed
		s.mu.Unlock()
		if closed {
			return ErrClosed
		}
		if ok {
			break
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	select {
	case <-j.reached:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// write is the writer.
func (s *Store) write() {
	defer close(s.done)
	head := make([]byte, recordHeader)
	for j := range s.queue {
		switch {
		case j.reached != nil:
			close(j.reached)
		case j.used != nil:
			s.writeUse(j)
		default:
			s.writePage(j, head)
		}
	}
}

// writeUse notes in a header when its page was used; a failure costs only the order of eviction.
func (s *Store) writeUse(j *job) {
	e := j.used
	s.mu.Lock()
	if err := s.look(); err != nil {
		s.failed(err)
	}
	ok := !e.gone && !s.now().Before(s.writer.until)
	if ok {
		s.index.read(e, 1)
	}
	s.mu.Unlock()
	if !ok {
		return
	}
	_ = writeAt(e.seg.file, binary.LittleEndian.AppendUint64(nil, j.tick), e.seg.header(e.slot)+recordSummed)
	s.mu.Lock()
	s.readDone(e)
	s.mu.Unlock()
}

func (s *Store) writePage(j *job, head []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() {
		delete(s.pending, j.Hash)
		s.buffers.Put(j.payload)
	}()
	if err := s.look(); err != nil {
		s.lost(err)
		return
	}
	parent := s.index.entries[j.Parent]                              // must not make room for what follows it
	if s.now().Before(s.writer.until) || j.At > 0 && parent == nil { // trouble since it was queued
		s.stats.Dropped++
		return
	}
	if parent != nil {
		s.index.read(parent, 1)
		defer s.readDone(parent)
	}
	at, err := s.take()
	if full(err) {
		s.full(err)
		at, err = s.take()
	}
	if err != nil {
		s.lost(err)
		return
	}
	r := record{Page: j.Page, seq: s.tick, used: s.tick}
	s.tick++
	write := func() error {
		s.mu.Unlock()
		defer s.mu.Lock()
		r.payload = checksum(*j.payload)
		r.encode(head)
		return at.write(head, *j.payload)
	}
	if err = write(); full(err) && at.grown { // again, in the place of another page
		s.giveBack(at)
		s.full(err)
		if at, err = s.take(); err == nil {
			err = write()
		}
	}
	if err != nil {
		if at.seg != nil {
			s.giveBack(at)
		}
		s.lost(err)
		return
	}
	e := &entry{hash: j.Hash, parent: j.Parent, seg: at.seg, slot: at.slot, exact: j.Exact, used: r.used}
	if old := s.index.entries[j.Hash]; old != nil {
		e.hits = old.hits
		s.drop(old)
	}
	s.index.add(e)
	s.stats.Written++
	s.stats.WrittenBytes += int64(s.pageBytes)
	s.recovered(at.grown)
}

// trouble is why writing is paused.
type trouble struct {
	err   error
	until time.Time
	pause time.Duration // the next one
}

const (
	firstPause = 5 * time.Second
	lastPause  = 5 * time.Minute
	fullPause  = time.Minute // before growth is tried again
)

// full stops growth for a while.
func (s *Store) full(err error) {
	if s.growAfter.IsZero() {
		s.warn("the disk of %s is full (%v): the KV store stays at %.1f MB and replaces pages", s.opt.Dir, err, float64(s.bytes)/1e6)
	}
	s.stats.WriteErrors++
	s.growAfter = s.now().Add(fullPause)
}

// lost counts a page that could not be written, and pauses writing if that is the disk's fault.
func (s *Store) lost(err error) {
	s.stats.Dropped++
	if !errors.Is(err, errNoRoom) {
		s.failed(err)
	}
}

// failed pauses writing, for longer each time.
func (s *Store) failed(err error) {
	s.stats.WriteErrors++
	w := &s.writer
	if w.err == nil {
		s.warn("no KV pages are written to %s for now, those there are still read: %v", s.opt.Dir, err)
		w.pause = firstPause
	}
	w.err = err
	w.until = s.now().Add(w.pause)
	w.pause = min(2*w.pause, lastPause)
}

// recovered ends a pause, and the time of a full disk once a file grew.
func (s *Store) recovered(grown bool) {
	if s.writer.err != nil {
		s.writer = trouble{}
		s.warn("KV pages are written to %s again", s.opt.Dir)
	}
	if grown {
		s.growAfter = time.Time{}
	}
}

// State says what a store does at present.
type State string

// The states.
const (
	StateOff    State = "off"    // there is none
	StateOn     State = "on"     // reads and writes
	StateFull   State = "full"   // the disk is full: writes in the place of pages that it has
	StatePaused State = "paused" // reads only, because a write failed; tried again
)

// Stats are counters since Open, and gauges.
type Stats struct {
	State           State
	Trouble         string // why it is not on
	Pages           int
	Bytes, MaxBytes int64 // of all segments
	Queued          int

	Written, WrittenBytes int64
	Dropped               int64 // pages that were to be written and were not
	Reads, ReadBytes      int64
	Missed                int64 // reads of pages that were not there any more
	Evicted               int64
	Corrupt               int64 // records that failed a check
	ReadErrors            int64
	WriteErrors           int64
	ForeignFiles          int
	ForeignBytes          int64
}

// Stats takes them.
func (s *Store) Stats() Stats {
	if s == nil {
		return Stats{State: StateOff}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Pages, st.Bytes, st.MaxBytes, st.Queued = len(s.index.entries), s.bytes, s.opt.MaxBytes, len(s.pending)
	switch {
	case s.closed:
		st.State = StateOff
	case s.writer.err != nil:
		st.State, st.Trouble = StatePaused, fmt.Sprint(s.writer.err)
	case !s.growAfter.IsZero():
		st.State, st.Trouble = StateFull, "the disk is full"
	default:
		st.State = StateOn
	}
	return st
}
