package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"cedrun/runtime/checkpoint"
)

// rowFile is a safetensors file of logits that is written row by row, under another name until it is complete.
type rowFile struct {
	path string
	f    *os.File // nil once committed or abandoned
	w    *bufio.Writer
	next int // position of the next row
	end  int
	buf  []byte
}

// createRows begins a file of rows of width logits, for positions from `from` on.
func createRows(path string, from, rows, width int) (*rowFile, error) {
	head, err := checkpoint.Header([]checkpoint.Out{
		{Name: "positions", DType: checkpoint.I32, Shape: []int64{int64(rows)}},
		{Name: "logits", DType: checkpoint.F32, Shape: []int64{int64(rows), int64(width)}},
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.part")
	if err != nil {
		return nil, fmt.Errorf("--out %s: %w", path, err)
	}
	r := &rowFile{path: path, f: f, w: bufio.NewWriterSize(f, 1<<16), next: from, end: from + rows}
	for p := from; p < r.end; p++ {
		head = binary.LittleEndian.AppendUint32(head, uint32(p))
	}
	if _, err := r.w.Write(head); err != nil {
		r.abandon()
		return nil, fmt.Errorf("--out %s: %w", path, err)
	}
	return r, nil
}

// row writes the logits of a position; positions must come in order.
func (r *rowFile) row(pos int, logits []float32) error {
	if pos != r.next || pos >= r.end {
		return fmt.Errorf("%s: logits of position %d where %d was due", r.path, pos, r.next)
	}
	r.next++
	r.buf = r.buf[:0]
	for _, v := range logits {
		r.buf = binary.LittleEndian.AppendUint32(r.buf, math.Float32bits(v))
	}
	if _, err := r.w.Write(r.buf); err != nil {
		return fmt.Errorf("--out %s: %w", r.path, err)
	}
	return nil
}

// commit gives the complete file its name.
func (r *rowFile) commit() error {
	defer r.abandon()
	if r.next != r.end {
		return fmt.Errorf("%s: %d rows of logits are missing", r.path, r.end-r.next)
	}
	if err := r.w.Flush(); err != nil {
		return fmt.Errorf("--out %s: %w", r.path, err)
	}
	if err := r.f.Chmod(0o644); err != nil {
		return fmt.Errorf("--out %s: %w", r.path, err)
	}
	name := r.f.Name()
	err := r.f.Close()
	r.f = nil
	if err == nil {
		err = os.Rename(name, r.path)
	}
	if err != nil {
		_ = os.Remove(name)
		return fmt.Errorf("--out %s: %w", r.path, err)
	}
	return nil
}

// abandon removes an incomplete file.
func (r *rowFile) abandon() {
	if r.f != nil {
		_ = r.f.Close()
		_ = os.Remove(r.f.Name())
		r.f = nil
	}
}
