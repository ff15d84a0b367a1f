package machine

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"cedrun/runtime/plan"
)

const (
	runBytes  = 4 << 20 // about an expert's matrix
	readTime  = 150 * time.Millisecond
	readBytes = 96 << 20 // at most, so that a fast disk does not fill the memory
	rowReads  = 32
	smallFile = 64 << 20
)

// Disk times reads of the largest shard of a directory as the model would do them: through a mapping, from as many
// threads as compute, after the page cache was asked to drop the pages. It changes no file.
func Disk(dir string, threads int) (plan.Disk, error) {
	name, size, err := largest(dir)
	if err != nil {
		return plan.Disk{}, err
	}
	if size == 0 {
		return plan.Disk{Note: "not measured: there are no shards"}, nil
	}
	if size < smallFile {
		return plan.Disk{Note: "not measured: the shards are small"}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return plan.Disk{}, fmt.Errorf("measure the disk: %w", err)
	}
	defer f.Close()
	data, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return byReading(f, size)
	}
	defer func() { _ = unix.Munmap(data) }()
	d := plan.Disk{Note: fmt.Sprintf("pages of %s by mapping, dropped from the cache before (posix_fadvise)", filepath.Base(name))}
	if sparse(f, size) {
		d.Note += "; the file is sparse, so this is not the speed of a disk"
	}
	drop := func(at int64, n int) { _ = unix.Fadvise(int(f.Fd()), at, int64(n), unix.FADV_DONTNEED) }
	var read, next atomic.Int64
	var wait sync.WaitGroup
	runs := size / runBytes
	began := time.Now()
	for range threads {
		wait.Go(func() {
			for time.Since(began) < readTime && read.Load() < readBytes {
				i := next.Add(1)
				if i >= runs {
					return
				}
				at := i * 7919 % runs * runBytes // spread over the file
				drop(at, runBytes)
				touch(data[at : at+runBytes])
				_ = unix.Madvise(data[at:at+runBytes], unix.MADV_DONTNEED)
				read.Add(runBytes)
			}
		})
	}
	wait.Wait()
	d.Bandwidth = float64(read.Load()) / time.Since(began).Seconds()
	d.Latency = rowLatency(data, drop)
	return d, nil
}

// touch reads a byte of every page.
func touch(b []byte) (sum byte) {
	for i := 0; i < len(b); i += os.Getpagesize() {
		sum += b[i]
	}
	return sum
}

// rowLatency times single pages, read ahead of nothing.
func rowLatency(data []byte, drop func(at int64, n int)) float64 {
	page := os.Getpagesize()
	_ = unix.Madvise(data, unix.MADV_RANDOM)
	pages := len(data) / page
	began := time.Now()
	for i := range rowReads {
		at := (i*1_000_003 + 1) % pages * page
		drop(int64(at), page)
		touch(data[at : at+page])
	}
	return time.Since(began).Seconds() / rowReads
}

// byReading measures where mapping is refused.
func byReading(f *os.File, size int64) (plan.Disk, error) {
	d := plan.Disk{Note: fmt.Sprintf("pread of %s, dropped from the cache before (posix_fadvise)", filepath.Base(f.Name()))}
	buf := make([]byte, runBytes)
	began, n := time.Now(), 0
	for at := int64(0); at+runBytes <= size && time.Since(began) < readTime; at += runBytes {
		_ = unix.Fadvise(int(f.Fd()), at, runBytes, unix.FADV_DONTNEED)
		if _, err := f.ReadAt(buf, at); err != nil && err != io.EOF {
			return d, fmt.Errorf("measure the disk: %w", err)
		}
		n += runBytes
	}
	d.Bandwidth = float64(n) / time.Since(began).Seconds()
	return d, nil
}

func largest(dir string) (name string, size int64, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if err != nil {
		return "", 0, fmt.Errorf("measure the disk: %w", err)
	}
	for _, n := range names {
		if st, err := os.Stat(n); err == nil && st.Size() > size {
			name, size = n, st.Size()
		}
	}
	return name, size, nil
}

// sparse reports whether most of a file is holes.
func sparse(f *os.File, size int64) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Blocks*512 < size/2
}
