package disk

import (
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// memFS is a file system in memory whose disk can be full, fail, write less than it was asked to, or die with its process
// in the middle of a write.
type memFS struct {
	mu     sync.Mutex
	files  map[string]*memData
	locked bool
	life   int // processes so far; files and locks of earlier ones are of no use

	room     int64 // bytes that files may grow in all; < 0: no limit
	alive    int64 // bytes that are written before the process is killed; < 0: no limit
	writeErr error
	readErr  error
	listErr  error
	short    bool // each write is a byte short, and says so without an error
	written  int64
}

type memData struct{ b []byte }

func newMemFS() *memFS { return &memFS{files: map[string]*memData{}, room: -1, alive: -1} }

var errKilled = errors.New("the process was killed")

// restart is the next process.
func (m *memFS) restart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.life++
	m.locked, m.alive = false, -1
}

// size is what segments take.
func (m *memFS) size() (n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, d := range m.files {
		if strings.HasSuffix(name, suffix) {
			n += int64(len(d.b))
		}
	}
	return n
}

func (m *memFS) names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.files))
}

func (m *memFS) Lock(string) (Lock, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locked {
		return nil, ErrLocked
	}
	m.locked = true
	return &memLock{m, m.life}, nil
}

type memLock struct {
	m    *memFS
	life int
}

func (l *memLock) Holds(string) bool { return true }

func (l *memLock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if l.life == l.m.life {
		l.m.locked = false
	}
	return nil
}

func (m *memFS) List(string) ([]FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.listErr != nil {
		return nil, m.listErr
	}
	var files []FileInfo
	for _, name := range slices.Sorted(maps.Keys(m.files)) {
		files = append(files, FileInfo{name, int64(len(m.files[name].b))})
	}
	return files, nil
}

func (m *memFS) Open(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.files[name]
	if d == nil {
		return nil, os.ErrNotExist
	}
	return &memFile{m, d, m.life}, nil
}

func (m *memFS) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.may(); err != nil {
		return nil, err
	}
	if m.files[name] != nil {
		return nil, os.ErrExist
	}
	d := &memData{}
	m.files[name] = d
	return &memFile{m, d, m.life}, nil
}

// may says whether the disk takes changes.
func (m *memFS) may() error {
	if m.alive == 0 {
		return errKilled
	}
	return m.writeErr
}

func (m *memFS) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.may(); err != nil {
		return err
	}
	m.files[to] = m.files[from]
	delete(m.files, from)
	return nil
}

func (m *memFS) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.may(); err != nil {
		return err
	}
	if d := m.files[name]; d != nil && m.room >= 0 {
		m.room += int64(len(d.b))
	}
	delete(m.files, name)
	return nil
}

type memFile struct {
	m    *memFS
	d    *memData
	life int
}

func (f *memFile) ReadAt(b []byte, at int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	switch {
	case f.m.readErr != nil:
		return 0, f.m.readErr
	case at >= int64(len(f.d.b)):
		return 0, io.EOF
	}
	n := copy(b, f.d.b[at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(b []byte, at int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	m := f.m
	if f.life != m.life {
		return 0, errKilled
	}
	if m.writeErr != nil {
		return 0, m.writeErr
	}
	var err error
	if m.short {
		b = b[:len(b)-1]
	}
	if m.room >= 0 {
		if grow := at + int64(len(b)) - int64(len(f.d.b)); grow > m.room {
			b, err = b[:max(int64(len(b))-(grow-m.room), 0)], syscall.ENOSPC
		}
	}
	if m.alive >= 0 && int64(len(b)) >= m.alive {
		b, err = b[:m.alive], errKilled
	}
	if len(b) == 0 {
		return 0, err
	}
	if end := at + int64(len(b)); end > int64(len(f.d.b)) {
		if m.room >= 0 {
			m.room -= end - int64(len(f.d.b))
		}
		f.d.b = append(f.d.b, make([]byte, end-int64(len(f.d.b)))...)
	}
	copy(f.d.b[at:], b)
	if m.alive >= 0 {
		m.alive -= int64(len(b))
	}
	m.written += int64(len(b))
	return len(b), err
}

func (f *memFile) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.m.may(); err != nil || f.life != f.m.life {
		return errors.Join(err, errKilled)
	}
	if n := int64(len(f.d.b)); size < n {
		if f.m.room >= 0 {
			f.m.room += n - size
		}
		f.d.b = f.d.b[:size]
	} else {
		f.d.b = append(f.d.b, make([]byte, size-n)...)
	}
	return nil
}

func (f *memFile) Sync() error  { return nil }
func (f *memFile) Close() error { return nil }

func (f *memFile) Removed() bool {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	for _, d := range f.m.files {
		if d == f.d {
			return false
		}
	}
	return true
}
