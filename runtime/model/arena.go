package model

import (
	"fmt"

	ced "cedrun/cuda"
)

// Weights are allocated in pieces for many tensors each, of which every one is twice as large as the one before.
const firstPiece, lastPiece = 4 << 20, 256 << 20

// arena places tensors that a device reads, each at a multiple of 256 bytes, where kernels load widest: in its own memory, or
// in page-locked memory of the host, which it reads over the bus.
type arena struct {
	m    *Model
	host bool
	at   ced.Addr // of the piece that is filled
	left int
	next int // size of the next one
}

func (a *arena) put(b []byte) (ced.Addr, error) {
	at, err := a.reserve(len(b))
	if err != nil {
		return 0, err
	}
	return at, a.m.s.Upload(at, b)
}

// reserve is room for n bytes.
func (a *arena) reserve(n int) (ced.Addr, error) {
	n = (n + 255) &^ 255
	if n > a.left {
		a.next = min(max(2*a.next, firstPiece), lastPiece)
		size := max(n, a.next)
		at, err := a.piece(size)
		if err != nil {
			return 0, err
		}
		a.at, a.left = at, size
	}
	at := a.at
	a.at, a.left = a.at+ced.Addr(n), a.left-n
	return at, nil
}

func (a *arena) piece(size int) (ced.Addr, error) {
	if a.host {
		at, err := a.m.s.HostAlloc(size)
		if err != nil {
			return 0, fmt.Errorf("page-locked memory for experts: %w", err)
		}
		a.m.pinned = append(a.m.pinned, at)
		return at, nil
	}
	at, err := a.m.alloc(size)
	if err != nil {
		return 0, fmt.Errorf("device memory for weights: %w", err)
	}
	return at, nil
}
