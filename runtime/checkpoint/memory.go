package checkpoint

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"cedrun/runtime/residency"
)

const (
	alignment = 64       // cache line, and the widest vector register
	slabSize  = 32 << 20 // tensors share slabs, so that huge pages fit them
)

// memory hands out anonymous memory outside the Go heap: tensors are large, live until Close and are
// read by native code.
type memory struct {
	huge     bool // ask for huge pages
	mu       sync.Mutex
	mappings [][]byte
	slab     []byte // rest of the current slab
}

// alloc returns n zero bytes at a multiple of alignment, valid until release.
func (m *memory) alloc(n int64) ([]byte, error) {
	if n < 0 || n > math.MaxInt-alignment {
		return nil, fmt.Errorf("cannot allocate %d bytes", n)
	}
	if n == 0 {
		return []byte{}, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if n > slabSize/4 {
		b, err := m.mapAnonymous(n)
		if err != nil {
			return nil, err
		}
		return b[:n:n], nil
	}
	padded := (n + alignment - 1) &^ (alignment - 1)
	if padded > int64(len(m.slab)) {
		slab, err := m.mapAnonymous(slabSize)
		if err != nil {
			return nil, err
		}
		m.slab = slab
	}
	b := m.slab[:n:padded]
	m.slab = m.slab[padded:]
	return b, nil
}

// mapAnonymous maps n bytes or more. With huge pages the address is a multiple of theirs, so that they back the whole.
func (m *memory) mapAnonymous(n int64) ([]byte, error) {
	room := n
	if m.huge {
		room = (n+residency.HugePage-1)/residency.HugePage*residency.HugePage + residency.HugePage
	}
	b, err := unix.Mmap(-1, 0, int(room), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("allocate %d bytes: %w", n, err)
	}
	m.mappings = append(m.mappings, b)
	if m.huge {
		at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
		_ = residency.HugePages(at, len(b)) // advice: small pages do as well
		b = b[-at%residency.HugePage:]
	}
	return b, nil
}

func (m *memory) release() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, b := range m.mappings {
		if err := unix.Munmap(b); err != nil {
			errs = append(errs, fmt.Errorf("release memory: %w", err))
		}
	}
	m.mappings, m.slab = nil, nil
	return errors.Join(errs...)
}
