package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
)

// segment is an open file of slots.
type segment struct {
	geometry
	name   string
	number int
	file   File
	end    int   // slots below have a place in the file
	free   []int // slots below end that hold no entry, the next to use last
	dirty  bool  // written since it was opened
}

func (g *segment) bytes() int64 { return g.payload(g.end) }

func segmentName(dir string, identity Hash, number int) string {
	return filepath.Join(dir, fmt.Sprintf("%x-%06d%s", identity[:8], number, suffix))
}

const (
	suffix  = ".kv"
	newborn = ".new" // a file that is not a segment yet
	probe   = "probe" + newborn
)

// segmentNumber reads a name; -1 if it is not one of segmentName's.
func segmentNumber(name string) int {
	base := strings.TrimSuffix(filepath.Base(name), suffix)
	_, number, ok := strings.Cut(base, "-")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 0 || n > 1<<40 {
		return -1
	}
	return n
}

// found is a record that a scan met.
type found struct {
	record
	slot int
}

// scan reads a segment's headers; each record that cannot be right goes to torn with its offset.
func (g *segment) scan(size int64, torn func(offset int64, err error)) ([]found, error) {
	head := make([]byte, segmentHeader)
	if _, err := g.file.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := g.decode(head); err != nil {
		return nil, err
	}
	there := min(max(size-segmentHeader, 0), int64(g.slots)*recordHeader)
	table := make([]byte, (there+recordHeader-1)/recordHeader*recordHeader)
	if _, err := g.file.ReadAt(table[:there], segmentHeader); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if over := size - g.payload(0); over > 0 {
		g.end = int(min((over+g.stride()-1)/g.stride(), int64(g.slots)))
	}
	var records []found
	used := make([]bool, g.slots)
	for slot := range len(table) / recordHeader {
		r := found{slot: slot}
		err := r.decode(table[slot*recordHeader : (slot+1)*recordHeader])
		if err == nil && g.payload(slot)+int64(g.pageBytes) > size {
			err = fmt.Errorf("file ends before byte %d, where its page does", g.payload(slot)+int64(g.pageBytes))
		}
		switch {
		case err == nil:
			records = append(records, r)
			used[slot] = true
		case !errors.Is(err, errEmpty):
			torn(g.header(slot), err)
		}
	}
	for slot := g.end - 1; slot >= 0; slot-- {
		if !used[slot] {
			g.free = append(g.free, slot)
		}
	}
	return records, nil
}

// load opens the segments of the store's identity and fills the index; all else is counted as foreign.
func (s *Store) load(ctx context.Context) error {
	files, err := s.fs.List(s.opt.Dir)
	if err != nil {
		return fmt.Errorf("list the KV directory %s: %w", s.opt.Dir, err)
	}
	foreign, left := 0, 0
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if strings.HasSuffix(f.Name, newborn) { // a process was killed while it made this
			_ = s.fs.Remove(f.Name)
		}
		if !strings.HasSuffix(f.Name, suffix) {
			continue
		}
		s.number = max(s.number, segmentNumber(f.Name)+1)
		if len(s.segments) == s.opt.MaxFiles {
			left++
			continue
		}
		if err := s.loadSegment(f); err != nil {
			s.stats.ForeignFiles++
			s.stats.ForeignBytes += f.Size
			if errors.Is(err, errForeign) {
				foreign++
			} else {
				s.warnRecord("ignore %s: %v", f.Name, err)
			}
		}
	}
	if left > 0 {
		s.warn("%d files in %s are not read and not in the byte budget: of those that this process may open, %d are for KV pages; raise ulimit -n, or delete the files", left, s.opt.Dir, s.opt.MaxFiles)
	}
	if foreign > 0 {
		s.warn("in %s there are KV pages %v (files: %d, %d MB in all); they are left alone and are not in the byte budget: delete them if nobody needs them",
			s.opt.Dir, errForeign, foreign, s.stats.ForeignBytes/1e6)
	}
	return nil
}

func (s *Store) loadSegment(f FileInfo) error {
	file, err := s.fs.Open(f.Name)
	if err != nil {
		return err
	}
	seg := &segment{geometry: s.geometry, name: f.Name, number: segmentNumber(f.Name), file: file}
	records, err := seg.scan(f.Size, func(offset int64, err error) {
		s.stats.Corrupt++
		s.warnRecord("ignore the KV page at %s offset %d: %v", f.Name, offset, err)
	})
	if err != nil {
		return errors.Join(err, file.Close())
	}
	s.segments = append(s.segments, seg)
	s.bytes += seg.bytes()
	for _, r := range records {
		s.tick = max(s.tick, r.used+1)
		if old := s.index.entries[r.Hash]; old != nil {
			if old.used >= r.used { // the other was replaced
				seg.free = append(seg.free, r.slot)
				continue
			}
			s.index.remove(old)
			old.seg.free = append(old.seg.free, old.slot)
		}
		s.index.add(&entry{hash: r.Hash, parent: r.Parent, seg: seg, slot: r.slot, exact: r.Exact, used: r.used})
	}
	return nil
}

// place is where a page may be written.
type place struct {
	seg   *segment
	slot  int
	grown bool
	used  bool // may have a record in it
}

var errNoRoom = errors.New("every page on disk is in use")

// take finds a slot for a page: a free one, a new one within the budget, else that of the page unused for longest. The
// lock is held; it is let go while a file is made.
func (s *Store) take() (place, error) {
	for _, seg := range s.segments {
		if n := len(seg.free); n > 0 {
			p := place{seg: seg, slot: seg.free[n-1], used: true}
			seg.free = seg.free[:n-1]
			return p, nil
		}
	}
	limit := s.opt.MaxBytes
	if s.now().Before(s.growAfter) {
		limit = s.bytes
	}
	if n := len(s.segments); n > 0 && s.segments[n-1].end < s.segments[n-1].slots && s.bytes+s.stride() <= limit {
		seg := s.segments[n-1]
		seg.end++
		s.bytes += s.stride()
		return place{seg: seg, slot: seg.end - 1, grown: true}, nil
	} else if (n == 0 || s.segments[n-1].end == s.segments[n-1].slots) && n < s.opt.MaxFiles && s.bytes+s.payload(1) <= limit {
		seg, err := s.create()
		if err != nil {
			return place{}, err
		}
		seg.end = 1
		s.segments = append(s.segments, seg)
		s.bytes += seg.bytes()
		return place{seg: seg, grown: true}, nil
	}
	e := s.index.oldest()
	if e == nil {
		return place{}, errNoRoom
	}
	s.index.remove(e)
	s.stats.Evicted++
	return place{seg: e.seg, slot: e.slot, used: true}, nil
}

// create makes an empty segment, which appears under its name at once.
func (s *Store) create() (*segment, error) {
	seg := &segment{geometry: s.geometry, number: s.number, name: segmentName(s.opt.Dir, s.identity, s.number), dirty: true}
	s.number++
	s.mu.Unlock()
	defer s.mu.Lock()
	made := seg.name + newborn
	f, err := s.fs.Create(made)
	if err != nil {
		return nil, err
	}
	err = writeAt(f, seg.encode(), 0)
	if err == nil {
		err = s.fs.Rename(made, seg.name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), s.fs.Remove(made))
	}
	seg.file = f
	return seg, nil
}

// giveBack returns a slot that was not filled.
func (s *Store) giveBack(p place) {
	if p.grown && p.slot == p.seg.end-1 {
		if p.seg.file.Truncate(p.seg.payload(p.slot)) == nil {
			p.seg.end--
			s.bytes -= s.stride()
			return
		}
	}
	p.seg.free = append(p.seg.free, p.slot)
}

// shrink brings files of an earlier, larger budget below the limit: the last pages move into free slots, or the pages
// unused for longest go, until the last segments can be cut.
func (s *Store) shrink(ctx context.Context) error {
	buf := make([]byte, s.pageBytes)
	for s.bytes > s.opt.MaxBytes && len(s.segments) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		seg := s.segments[len(s.segments)-1]
		if err := s.cut(seg, buf); err != nil {
			return fmt.Errorf("cut %s to the byte budget: %w", seg.name, err)
		}
	}
	return nil
}

// cut takes the last slots off a segment, or removes it once it has none.
func (s *Store) cut(seg *segment, buf []byte) error {
	before, end := seg.bytes(), seg.end
	in := make(map[int]*entry, seg.end)
	for _, e := range s.index.entries {
		if e.seg == seg {
			in[e.slot] = e
		}
	}
	for seg.end > 0 && s.bytes-(before-seg.bytes()) > s.opt.MaxBytes {
		last := seg.end - 1
		for e := in[last]; e != nil && !e.gone; {
			if p, ok := s.hole(seg, last); ok {
				if err := s.move(e, p, buf); err != nil {
					return err
				}
				if p.seg == seg {
					in[p.slot] = e
				}
				break
			}
			old := s.index.oldest()
			s.index.remove(old)
			s.stats.Evicted++
			old.seg.free = append(old.seg.free, old.slot)
		}
		seg.end--
	}
	kept := seg.free[:0]
	for _, slot := range seg.free {
		if slot < seg.end {
			kept = append(kept, slot)
		}
	}
	seg.free = kept
	if seg.end > 0 {
		s.bytes -= before - seg.bytes()
		if err := writeAt(seg.file, make([]byte, (end-seg.end)*recordHeader), seg.header(seg.end)); err != nil {
			return err
		}
		return seg.file.Truncate(seg.bytes())
	}
	s.bytes -= before
	s.segments = s.segments[:len(s.segments)-1]
	return errors.Join(seg.file.Close(), s.fs.Remove(seg.name))
}

// hole takes a free slot before one of the last segment.
func (s *Store) hole(last *segment, before int) (place, bool) {
	for _, seg := range s.segments {
		for i, slot := range seg.free {
			if seg != last || slot < before {
				seg.free = append(seg.free[:i], seg.free[i+1:]...)
				return place{seg: seg, slot: slot, used: true}, true
			}
		}
	}
	return place{}, false
}

// move copies a page's record as it is; a checksum that is wrong stays wrong.
func (s *Store) move(e *entry, to place, buf []byte) error {
	head := make([]byte, recordHeader)
	if _, err := e.seg.file.ReadAt(head, e.seg.header(e.slot)); err != nil {
		return err
	}
	if _, err := e.seg.file.ReadAt(buf, e.seg.payload(e.slot)); err != nil {
		return err
	}
	if err := to.write(head, buf); err != nil {
		return err
	}
	e.seg, e.slot = to.seg, to.slot
	return nil
}

// write puts a record into a slot: blank, page, header, so that a header is never above another page's bytes.
func (p place) write(head, page []byte) error {
	f := p.seg.file
	p.seg.dirty = true
	if p.used {
		if err := writeAt(f, make([]byte, recordHeader), p.seg.header(p.slot)); err != nil {
			return err
		}
	}
	if err := writeAt(f, page, p.seg.payload(p.slot)); err != nil {
		return err
	}
	return writeAt(f, head, p.seg.header(p.slot))
}

// writeAt is WriteAt that takes a short write for what it is.
func writeAt(f File, b []byte, at int64) error {
	n, err := f.WriteAt(b, at)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return err
}
