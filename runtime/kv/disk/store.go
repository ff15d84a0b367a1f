package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// Options describe a store.
type Options struct {
	Dir       string
	MaxBytes  int64 // of all segments together
	PageBytes int   // kv.Layout.PageBytes
	Identity  Identity
	MaxFiles  int              // that may be open at a time; 0 = a quarter of what the process may open
	Queue     int              // pages that may wait to be written; 0 = DefaultQueue
	Warn      func(string)     // gets a sentence when something is wrong that an operator should know; may be nil
	FS        FS               // nil = OS
	now       func() time.Time // tests move it
}

// DefaultQueue is 14 MB of the release's pages: some hundred milliseconds of a slow disk.
const DefaultQueue = 256

// Errors that callers tell apart.
var (
	// ErrLocked: another process has the directory.
	ErrLocked = errors.New("another process uses it; each needs its own")
	// ErrMissing: the page is not on disk, or not any more.
	ErrMissing = errors.New("KV page is not on disk")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("the KV store is closed")
)

// Store keeps pages on disk. All methods may be called at the same time, and on a nil *Store, which keeps nothing.
type Store struct {
	opt Options
	fs  FS
	geometry
	lock Lock
	now  func() time.Time

	mu        sync.Mutex
	segments  []*segment
	number    int // of the next segment
	bytes     int64
	index     index
	tick      uint64
	pending   map[Hash]*job
	stats     Stats     // counters; the rest is filled in by Stats
	said      int       // warnings about single records and files
	growAfter time.Time // the disk was full
	writer    trouble
	looked    time.Time  // when the writer next looks whether the files are there
	deleted   []*segment // whose files are gone
	closed    bool

	queue   chan *job
	done    chan struct{} // the writer has ended
	readers sync.WaitGroup
	buffers sync.Pool
}

// Open opens the store in a directory, which it makes if need be, and finds the pages there. An error means that there
// can be no store: the caller goes on without. A directory that cannot be written gives a store for reading.
func Open(ctx context.Context, opt Options) (*Store, error) {
	s := &Store{opt: opt, fs: opt.FS, now: opt.now, index: newIndex(), pending: map[Hash]*job{}, done: make(chan struct{})}
	if s.fs == nil {
		s.fs = OS{}
	}
	if s.now == nil {
		s.now = time.Now
	}
	if opt.PageBytes <= 0 || opt.PageBytes > maxPageBytes {
		return nil, fmt.Errorf("KV pages of %d bytes cannot be kept on disk", opt.PageBytes)
	}
	s.geometry = geometry{identity: opt.Identity.sum(opt.PageBytes), pageBytes: opt.PageBytes}
	s.slots = segmentSlots(opt.MaxBytes, s.stride())
	if least := s.payload(1); opt.MaxBytes < least {
		return nil, fmt.Errorf("a KV disk budget of %d bytes holds no page: give it %d or more", opt.MaxBytes, least)
	}
	if s.opt.MaxFiles <= 0 {
		s.opt.MaxFiles = mostFiles()
	}
	if opt.Queue <= 0 {
		opt.Queue = DefaultQueue
	}
	s.queue = make(chan *job, opt.Queue)
	s.buffers.New = func() any { b := make([]byte, opt.PageBytes); return &b }
	var err error
	if s.lock, err = s.fs.Lock(opt.Dir); err != nil {
		return nil, fmt.Errorf("use the KV directory %s: %w", opt.Dir, err)
	}
	if err := s.load(ctx); err != nil {
		return nil, errors.Join(err, s.closeFiles())
	}
	slices.SortFunc(s.segments, func(a, b *segment) int { return a.number - b.number })
	if err = s.probe(); full(err) {
		s.full(err)
		err = nil
	}
	if err == nil {
		err = s.shrink(ctx)
	}
	if ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), s.closeFiles())
	}
	if err != nil {
		s.failed(err)
	}
	go s.write()
	return s, nil
}

// segmentSlots keeps the number of files small at any budget.
func segmentSlots(budget, stride int64) int {
	return int(min(max(budget/(stride+recordHeader)/64, minSlots), maxSlots))
}

// probe tries to write before anybody counts on it.
func (s *Store) probe() error {
	name := s.opt.Dir + "/" + probe
	f, err := s.fs.Create(name)
	if err != nil {
		return err
	}
	err = writeAt(f, make([]byte, segmentHeader), 0)
	return errors.Join(err, f.Close(), s.fs.Remove(name))
}

// Has says whether a page is on disk or about to be; exact asks for one with the bits of a cold run.
func (s *Store) Has(name Hash, exact bool) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.has(name, exact)
}

func (s *Store) has(name Hash, exact bool) bool {
	if e := s.index.entries[name]; e != nil && (e.exact || !exact) {
		return true
	}
	j := s.pending[name]
	return j != nil && (j.Exact || !exact)
}

// Hit is the beginning of a sequence that is on disk. Its pages stay there until Release.
type Hit struct {
	s    *Store
	n    int
	held []*entry
}

// Find says how many of a sequence's pages are on disk, from the first on, and marks them as used. With exact, a replayed
// page ends the hit; one that still waits to be written always does.
func (s *Store) Find(pages []Page, exact bool) *Hit {
	h := &Hit{s: s}
	if s == nil {
		return h
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range pages {
		e := s.index.entries[pages[i].Hash]
		if s.closed || e == nil || exact && !e.exact {
			break
		}
		s.index.use(e, s.tick)
		s.index.hit(e, 1)
		h.held = append(h.held, e)
	}
	if h.n = len(h.held); h.n > 0 {
		s.offer(&job{used: h.held[h.n-1], tick: s.tick})
	}
	s.tick++
	return h
}

// Len is the number of pages.
func (h *Hit) Len() int { return h.n }

// Release lets the pages go; once is enough, more does no harm.
func (h *Hit) Release() {
	if h.s == nil {
		return
	}
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	for _, e := range h.held {
		h.s.index.hit(e, -1)
	}
	h.held = nil
}

// readDone lets an entry's slot go, for good if the entry was removed meanwhile.
func (s *Store) readDone(e *entry) {
	s.index.read(e, -1)
	if e.gone && e.reads == 0 {
		e.seg.free = append(e.seg.free, e.slot)
	}
}

// drop removes an entry whose page is of no use.
func (s *Store) drop(e *entry) {
	if e.gone {
		return
	}
	s.index.remove(e)
	if e.reads == 0 {
		e.seg.free = append(e.seg.free, e.slot)
	}
}

// Read reads a page into dst, of Options.PageBytes bytes, and says whether its rows have the bits of a cold run. Any error
// means that the page has to be computed; ErrMissing is the ordinary one. dst may be overwritten all the same.
func (s *Store) Read(ctx context.Context, p Page, dst []byte) (exact bool, err error) {
	if s == nil {
		return false, ErrMissing
	}
	if len(dst) != s.pageBytes {
		return false, fmt.Errorf("read a KV page of %d bytes into %d", s.pageBytes, len(dst))
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	s.mu.Lock()
	if j := s.pending[p.Hash]; j != nil && (j.Exact || !p.Exact) && j.same(&p) {
		copy(dst, *j.payload)
		s.stats.Reads++
		s.mu.Unlock()
		return j.Exact, nil
	}
	e := s.index.entries[p.Hash]
	if s.closed || e == nil || p.Exact && !e.exact {
		s.stats.Missed++
		s.mu.Unlock()
		return false, ErrMissing
	}
	s.index.read(e, 1)
	s.index.use(e, s.tick)
	s.tick++
	s.readers.Add(1)
	s.mu.Unlock()
	defer s.readers.Done()

	err = s.readEntry(e, &p, dst)

	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.readDone(e)
	if err == nil {
		s.stats.Reads++
		s.stats.ReadBytes += int64(len(dst))
		return e.exact, nil
	}
	s.drop(e)
	var torn *tornError
	if errors.As(err, &torn) {
		s.stats.Corrupt++
		s.warnRecord("ignore the KV page at %s offset %d: %v", e.seg.name, torn.offset, torn.err)
		return false, ErrMissing
	}
	s.stats.ReadErrors++
	s.warnRecord("read a KV page of %s: %v", e.seg.name, err)
	return false, fmt.Errorf("read a KV page of %s: %w", e.seg.name, err)
}

// tornError says that what is on disk is not the page that was written there.
type tornError struct {
	offset int64
	err    error
}

func (e *tornError) Error() string { return e.err.Error() }

// readEntry reads and compares everything: checksums, ids, provenance.
func (s *Store) readEntry(e *entry, want *Page, dst []byte) error {
	head := make([]byte, recordHeader)
	at := e.seg.header(e.slot)
	if _, err := e.seg.file.ReadAt(head, at); err != nil {
		return cutOff(err, at)
	}
	var r record
	if err := r.decode(head); err != nil {
		return &tornError{at, err}
	}
	if !r.same(want) || r.Exact != e.exact {
		return &tornError{at, errors.New("record is of another page")}
	}
	at = e.seg.payload(e.slot)
	if _, err := e.seg.file.ReadAt(dst, at); err != nil {
		return cutOff(err, at)
	}
	if checksum(dst) != r.payload {
		return &tornError{at, errors.New("page fails its checksum")}
	}
	return nil
}

// cutOff tells the end of a file from a disk that cannot be read.
func cutOff(err error, at int64) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &tornError{at, errors.New("file is cut off")}
	}
	return err
}

// Close writes what is queued, syncs and lets the directory go.
func (s *Store) Close() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.queue)
	s.mu.Unlock()
	<-s.done
	s.readers.Wait()
	return s.closeFiles()
}

func (s *Store) closeFiles() error {
	var errs []error
	for _, seg := range slices.Concat(s.segments, s.deleted) {
		if seg.dirty {
			if err := seg.file.Sync(); err != nil {
				errs = append(errs, fmt.Errorf("sync %s: %w", seg.name, err))
			}
		}
		errs = append(errs, seg.file.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

func (s *Store) warn(format string, args ...any) {
	if s.opt.Warn != nil {
		s.opt.Warn(fmt.Sprintf(format, args...))
	}
}

// maxRecordWarnings bounds what is said about single records and files; all are counted.
const maxRecordWarnings = 20

func (s *Store) warnRecord(format string, args ...any) {
	if s.said++; s.said <= maxRecordWarnings {
		s.warn(format, args...)
	}
	if s.said == maxRecordWarnings {
		s.warn("more KV pages of %s have faults; from here on they are only counted", s.opt.Dir)
	}
}
