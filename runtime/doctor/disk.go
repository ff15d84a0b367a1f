package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Disk is how fast a directory's files are read.
type Disk struct {
	Speeds  []Speed `json:"speeds"`            // none: see Note
	Latency float64 `json:"seconds_per_4_kib"` // one at a time
	Note    string  `json:"note,omitempty"`    // how it was measured, or why not
}

// Speed is a bandwidth at a queue depth: so many reads under way at a time.
type Speed struct {
	Depth     int     `json:"depth"`
	Bandwidth float64 `json:"bytes_per_second"`
}

const (
	readBytes  = 1 << 20 // about a quarter of an expert's matrix
	rowBytes   = 4 << 10
	smallShard = 64 << 20 // holds no read that no cache has seen before
)

var depths = []int{1, 8, 32}

// MeasureDisk times reads of the largest shard of a directory, spread over the file, past the page cache where the file
// system allows that. It takes about span and changes nothing.
func MeasureDisk(ctx context.Context, dir string, span time.Duration) (*Disk, error) {
	return measure(ctx, dir, span, smallShard)
}

func measure(ctx context.Context, dir string, span time.Duration, least int64) (*Disk, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if err != nil {
		return nil, fmt.Errorf("measure the disk: %w", err)
	}
	var name string
	size := int64(0)
	for _, n := range names {
		if st, err := os.Stat(n); err == nil && st.Mode().IsRegular() && st.Size() > size {
			name, size = n, st.Size()
		}
	}
	if size < max(least, 2*readBytes) {
		return &Disk{Note: "not measured: no shard is large enough"}, nil
	}
	p := &reader{size: size}
	d := &Disk{Note: "O_DIRECT"}
	if p.f, err = os.OpenFile(name, os.O_RDONLY|unix.O_DIRECT, 0); err == nil {
		if err = p.try(); errors.Is(err, unix.EINVAL) {
			_ = p.f.Close()
		}
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) { // tmpfs and some network file systems
		d.Note, p.buffered = "through the page cache, which was asked to drop the file: this file system has no O_DIRECT", true
		p.f, err = os.Open(name)
	}
	if err != nil {
		return nil, fmt.Errorf("measure the disk: %w", err)
	}
	defer p.f.Close()
	var st unix.Stat_t
	if unix.Fstat(int(p.f.Fd()), &st) == nil && st.Blocks*512 < size/2 {
		d.Note += "; the file is sparse, so this is not the speed of a disk"
	}
	each := span / time.Duration(len(depths)+1)
	for _, depth := range depths {
		bytes, took, err := p.run(ctx, depth, readBytes, each)
		if err != nil {
			return nil, err
		}
		d.Speeds = append(d.Speeds, Speed{depth, float64(bytes) / took.Seconds()})
	}
	bytes, took, err := p.run(ctx, 1, rowBytes, each)
	if err != nil {
		return nil, err
	}
	d.Latency = took.Seconds() / float64(bytes/rowBytes)
	return d, nil
}

// reader reads pieces of a file.
type reader struct {
	f        *os.File
	size     int64
	buffered bool
	next     atomic.Int64
}

// aligned is memory for n bytes at a page boundary, as direct reads need it.
func aligned(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
}

// try reads a piece.
func (r *reader) try() error {
	b, err := aligned(rowBytes)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(b) }()
	_, err = r.f.ReadAt(b, 0)
	return err
}

// run keeps depth reads of n bytes under way for a time.
func (r *reader) run(ctx context.Context, depth, n int, span time.Duration) (bytes int64, took time.Duration, err error) {
	var read atomic.Int64
	var wait sync.WaitGroup
	errs := make([]error, depth)
	pieces := r.size / int64(n)
	began := time.Now()
	for i := range depth {
		wait.Go(func() {
			b, err := aligned(n)
			if err != nil {
				errs[i] = err
				return
			}
			defer func() { _ = unix.Munmap(b) }()
			for first := true; (first || time.Since(began) < span) && ctx.Err() == nil; first = false {
				at := r.next.Add(1) * 1_000_003 % pieces * int64(n) // spread over the file
				if r.buffered {
					_ = unix.Fadvise(int(r.f.Fd()), at, int64(n), unix.FADV_DONTNEED)
				}
				if _, err := r.f.ReadAt(b, at); err != nil && !errors.Is(err, io.EOF) {
					var of *fs.PathError
					if errors.As(err, &of) {
						err = of.Err
					}
					errs[i] = fmt.Errorf("%s cannot be read at byte %d: %w", r.f.Name(), at, err)
					return
				}
				read.Add(int64(n))
			}
		})
	}
	wait.Wait()
	if i := slices.IndexFunc(errs, func(e error) bool { return e != nil }); i >= 0 {
		return 0, 0, errs[i]
	}
	return read.Load(), time.Since(began), ctx.Err()
}
