package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// FS is what a Store asks of a file system; tests put faults into it.
type FS interface {
	// Lock makes dir, if it is not there, and takes it for this process; ErrLocked if another one has it.
	Lock(dir string) (Lock, error)
	// List gives the names and sizes of a directory's files.
	List(dir string) ([]FileInfo, error)
	// Open opens a file for reading and, if that is allowed, writing. Create makes a new one.
	Open(name string) (File, error)
	Create(name string) (File, error)
	Rename(from, to string) error
	Remove(name string) error
}

// FileInfo is an entry of a directory.
type FileInfo struct {
	Name string
	Size int64
}

// File is an open file. ReadAt and WriteAt may be called at the same time for different places.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
	// Removed reports whether the file has no name any more.
	Removed() bool
}

// OS is the FS of the operating system.
type OS struct{}

// Lock locks the directory itself: no file is left over, and a read-only directory can be locked too.
func (OS) Lock(dir string) (Lock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrLocked
		} else {
			err = fmt.Errorf("lock %s: %w", dir, err)
		}
		return nil, errors.Join(err, f.Close())
	}
	return directory{f}, nil
}

// directory is one that is locked.
type directory struct{ *os.File }

// Holds compares what the name means now with what was opened.
func (d directory) Holds(dir string) bool {
	now, err := os.Stat(dir)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist) // else it cannot be told
	}
	then, err := d.Stat()
	return err != nil || os.SameFile(now, then)
}

// file is one of the system's.
type file struct{ *os.File }

// Removed asks how many names the file has.
func (f file) Removed() bool {
	info, err := f.Stat()
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Nlink == 0
}

// List lists regular files.
func (OS) List(dir string) ([]FileInfo, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			files = append(files, FileInfo{Name: filepath.Join(dir, e.Name()), Size: info.Size()})
		}
	}
	return files, nil
}

// Open falls back to reading only.
func (OS) Open(name string) (File, error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EROFS) {
		f, err = os.Open(name)
	}
	if err != nil {
		return nil, err
	}
	return file{f}, nil
}

// Create makes a file that only its owner may read: it holds what people wrote.
func (OS) Create(name string) (File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return file{f}, nil
}

// Rename replaces no file that a Store made: numbers are not used twice.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove frees the file's space.
func (OS) Remove(name string) error { return os.Remove(name) }

// mostFiles leaves most of the process's files to those who ask it.
func mostFiles() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 256
	}
	return int(max(1, min(l.Cur/4, 1<<16)))
}

// full says whether err means that there is no room left.
func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }
