package model

import (
	"fmt"

	ced "cedrun/cuda"
)

// arenaBytes is what a device gives at a time for weights: one allocation for thousands of tensors.
const arenaBytes = 256 << 20

// arena places tensors in a device's memory, each at a multiple of 256 bytes, where kernels load widest.
type arena struct {
	m    *Model
	at   ced.Addr // of the piece that is filled
	left int
}

func (a *arena) put(b []byte) (ced.Addr, error) {
	n := (len(b) + 255) &^ 255
	if n > a.left {
		size := max(n, arenaBytes)
		at, err := a.m.alloc(size)
		if err != nil {
			return 0, fmt.Errorf("device memory for weights: %w", err)
		}
		a.at, a.left = at, size
	}
	at := a.at
	a.at, a.left = a.at+ced.Addr(n), a.left-n
	return at, a.m.s.Upload(at, b)
}
