package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"cedrun/runtime/checkpoint"
)

// rowFile is a safetensors file of logits that is written row by row, under another name until it is complete. What is
// no file (a pipe, a device) is written to as it is.
type rowFile struct {
	path string
	part string   // name until the end; "" = path
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
	r := &rowFile{path: path, next: from, end: from + rows}
	if err := r.open(); err != nil {
		return nil, fmt.Errorf("--out %s: %w", path, err)
	}
	for p := from; p < r.end; p++ {
		head = binary.LittleEndian.AppendUint32(head, uint32(p))
	}
	if _, err := r.w.Write(head); err != nil {
		r.abandon()
		return nil, fmt.Errorf("--out %s: %w", path, err)
	}
	return r, nil
}

func (r *rowFile) open() (err error) {
	if real, err := filepath.EvalSymlinks(r.path); err == nil {
		r.path = real // a link stays, what it names is replaced
	}
	switch st, serr := os.Stat(r.path); {
	case serr == nil && st.IsDir():
		return errors.New("is a directory")
	case serr == nil && !st.Mode().IsRegular():
		r.f, err = os.OpenFile(r.path, os.O_WRONLY, 0)
	default:
		if r.f, err = os.CreateTemp(filepath.Dir(r.path), filepath.Base(r.path)+".*.part"); err == nil {
			r.part = r.f.Name()
		}
	}
	r.w = bufio.NewWriterSize(r.f, 1<<16)
	return err
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
	var err error
	if r.part != "" {
		err = r.f.Chmod(0o644)
	}
	if cerr := r.f.Close(); err == nil {
		err = cerr
	}
	r.f = nil
	if err == nil && r.part != "" {
		err = os.Rename(r.part, r.path)
	}
	if err != nil {
		r.remove()
		return fmt.Errorf("--out %s: %w", r.path, err)
	}
	return nil
}

// abandon removes an incomplete file.
func (r *rowFile) abandon() {
	if r.f != nil {
		_ = r.f.Close()
		r.f = nil
		r.remove()
	}
}

func (r *rowFile) remove() {
	if r.part != "" {
		_ = os.Remove(r.part)
	}
}
