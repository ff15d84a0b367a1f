package disk

import (
	"fmt"
	"io"
	"time"
)

// Lock is a directory that a process has taken.
type Lock interface {
	io.Closer
	// Holds reports whether dir still is what was taken: it may have been deleted or renamed, and another made in its place.
	Holds(dir string) bool
}

// lookEvery is how often the writer looks whether its files are still there.
const lookEvery = time.Second

// look notices that somebody deleted the directory, or files in it, under the running store: pages that went with them are
// forgotten, and the directory is made and taken anew. The lock is held; it is let go meanwhile.
func (s *Store) look() error {
	if s.now().Before(s.looked) {
		return nil
	}
	s.looked = s.now().Add(lookEvery)
	segments := s.segments // only the writer changes them
	gone := make([]bool, len(segments))
	var again Lock
	look := func() (err error) {
		s.mu.Unlock()
		defer s.mu.Lock()
		if !s.lock.Holds(s.opt.Dir) {
			if again, err = s.fs.Lock(s.opt.Dir); err != nil {
				return fmt.Errorf("the directory was deleted or renamed, and is not to be had again: %w", err)
			}
		}
		for i, seg := range segments {
			gone[i] = again != nil || seg.file.Removed()
		}
		return nil
	}
	if err := look(); err != nil {
		return err
	}
	if again != nil {
		_ = s.lock.Close()
		s.lock = again
	}
	s.forget(gone)
	return nil
}

// forget drops segments whose files are gone.
func (s *Store) forget(gone []bool) {
	lost := map[*segment]bool{}
	kept := make([]*segment, 0, len(s.segments))
	for i, seg := range s.segments {
		if !gone[i] {
			kept = append(kept, seg)
			continue
		}
		lost[seg] = true
		s.bytes -= seg.bytes()
	}
	if len(lost) == 0 {
		return
	}
	s.segments = kept
	pages := 0
	for _, e := range s.index.entries {
		if lost[e.seg] {
			pages++
			s.drop(e)
		}
	}
	for seg := range lost {
		seg.dirty = false
		s.deleted = append(s.deleted, seg) // who reads it now may go on
	}
	s.warn("KV pages on disk are gone: somebody deleted or moved files of %s under the running server (%d files, %d pages); new pages are written there", s.opt.Dir, len(lost), pages)
}
