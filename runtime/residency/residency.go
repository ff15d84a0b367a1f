package residency

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

var pageSize = os.Getpagesize()

// HugePage is the size of a huge page, bytes.
const HugePage = 2 << 20

// pages is b with whole pages at both ends. b must be mapped memory, never of the Go heap.
func pages(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	start := unsafe.Pointer(unsafe.SliceData(b))
	off := int(uintptr(start) % uintptr(pageSize))
	n := (off + len(b) + pageSize - 1) / pageSize * pageSize
	return unsafe.Slice((*byte)(unsafe.Add(start, -off)), n)
}

// Merge joins slices whose pages touch or overlap, in ascending order of address; it reorders parts.
func Merge(parts [][]byte) [][]byte {
	address := func(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
	slices.SortFunc(parts, func(a, b []byte) int {
		switch x, y := address(a), address(b); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	var out [][]byte
	for _, b := range parts {
		b = pages(b)
		if len(b) == 0 {
			continue
		}
		if n := len(out); n > 0 {
			last := out[n-1]
			end := address(last) + uintptr(len(last))
			if address(b) <= end {
				if more := int(address(b)+uintptr(len(b))) - int(end); more > 0 {
					out[n-1] = unsafe.Slice(unsafe.SliceData(last), len(last)+more)
				}
				continue
			}
		}
		out = append(out, b)
	}
	return out
}

// samples is how many pages of a slice Held looks at.
const samples = 8

// Held reports whether sampled pages of b, spread evenly, first and last among them, are in memory.
func Held(b []byte) bool {
	p := pages(b)
	n := len(p) / pageSize
	var state [1]byte
	for i := range min(n, samples) {
		at := i
		if n > samples {
			at = i * (n - 1) / (samples - 1)
		}
		if !inCore(p[at*pageSize:(at+1)*pageSize], state[:]) {
			return false
		}
	}
	return true
}

// HeldWhole reports whether all pages of b are in memory.
func HeldWhole(b []byte) bool {
	p := pages(b)
	state := make([]byte, min(len(p)/pageSize, 1<<16))
	for len(p) > 0 {
		n := min(len(p)/pageSize, len(state))
		if !inCore(p[:n*pageSize], state) {
			return false
		}
		p = p[n*pageSize:]
	}
	return true
}

// WillNeed asks the system to start reading the pages of b. It does not wait for them.
func WillNeed(b []byte) {
	if p := pages(b); len(p) > 0 {
		willNeed(p)
	}
}

const (
	piece   = 8 << 20 // bytes read by a call; cancelling waits for one
	readers = 4       // pieces at a time, so that the disk has a queue
)

// Populate reads the pages of parts, by faults, since only those read in huge pages (ReadHuge), which must be readable mapped memory, and enters them in the page tables. report is
// told of the bytes done, one call at a time. It ends early with the context's error.
func Populate(ctx context.Context, parts [][]byte, report func(done int64)) error {
	var pieces [][]byte
	for _, b := range parts {
		pieces = append(pieces, slices.Collect(slices.Chunk(pages(b), piece))...)
	}
	var (
		all   sync.WaitGroup
		next  atomic.Int64
		mu    sync.Mutex
		done  int64
		fault error
	)
	for range readers {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(pieces) || ctx.Err() != nil {
					return
				}
				err := populate(pieces[i])
				mu.Lock()
				if done += int64(len(pieces[i])); err != nil {
					fault = errors.Join(fault, err)
					next.Store(int64(len(pieces)))
				} else if report != nil {
					report(done)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if fault != nil {
		return fault
	}
	return ctx.Err()
}

// touch reads a byte of every page; not inlined, so that the reads stay.
//
//go:noinline
func touch(b []byte) (sum byte) {
	for i := 0; i < len(b); i += pageSize {
		sum += b[i]
	}
	return sum
}
