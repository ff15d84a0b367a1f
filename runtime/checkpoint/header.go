package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Tensor describes one stored tensor.
type Tensor struct {
	Name   string
	DType  DType
	Shape  []int64 // row-major; empty for a scalar
	Shard  int     // index into Checkpoint.Shards
	Offset int64   // of the first byte, from the start of the shard
	Size   int64   // bytes
}

// Elements is the number of elements.
func (t *Tensor) Elements() int64 { return t.Size / t.DType.Size() }

const (
	maxHeader = 100 << 20 // the limit of the safetensors format
	maxDims   = 8
)

// errNotSafetensors starts the description of a file whose first bytes cannot be a safetensors header.
var errNotSafetensors = errors.New("is not a safetensors file")

const redownload = "; download the file again (git lfs pull, or hf download)"

// readHeader reads the header of a shard of the given size and returns its tensors ordered by offset.
// The data must start right after the header and fill the file exactly, without holes or overlaps.
func readHeader(r io.ReaderAt, size int64, intern func([]byte) string) ([]Tensor, error) {
	if size == 0 {
		return nil, errors.New("is empty" + redownload)
	}
	if size < 8 {
		return nil, fmt.Errorf("%w: only %d bytes%s", errNotSafetensors, size, redownload)
	}
	var first [8]byte
	if _, err := r.ReadAt(first[:], 0); err != nil {
		return nil, fmt.Errorf("read the header length: %w", err)
	}
	n := binary.LittleEndian.Uint64(first[:])
	if n > maxHeader || n < 2 {
		return nil, notSafetensors(r, size, n)
	}
	if n > uint64(size-8) {
		return nil, fmt.Errorf("is truncated inside its header: %d of %d header bytes missing%s", 8+int64(n)-size, n, redownload)
	}
	header := make([]byte, n)
	if _, err := r.ReadAt(header, 8); err != nil {
		return nil, fmt.Errorf("read the header: %w", err)
	}
	tensors, err := parseHeader(header, intern)
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	start := 8 + int64(n)
	end := start
	for i := range tensors {
		t := &tensors[i]
		if t.Size > math.MaxInt64-end {
			return nil, fmt.Errorf("header: tensor %s ends beyond any file", t.Name)
		}
		t.Offset += start
		end = t.Offset + t.Size
	}
	switch {
	case size < end:
		return nil, fmt.Errorf("is truncated: %d of %d bytes are missing%s", end-size, end, redownload)
	case size > end:
		return nil, fmt.Errorf("has %d bytes after its last tensor (%d expected in all)%s", size-end, end, redownload)
	}
	return tensors, nil
}

// notSafetensors says what a file with an impossible header length looks like.
func notSafetensors(r io.ReaderAt, size int64, n uint64) error {
	head := make([]byte, min(size, 512))
	if _, err := r.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read: %w", err)
	}
	if kind := sniff(head); kind != "" {
		return fmt.Errorf("%w but %s%s", errNotSafetensors, kind, redownload)
	}
	return fmt.Errorf("%w: header length %d is outside 2..%d%s", errNotSafetensors, n, maxHeader, redownload)
}

// sniff recognises what downloads leave behind in place of a file; "" if nothing is recognised.
func sniff(head []byte) string {
	text := bytes.ToLower(bytes.TrimLeft(head, "\ufeff \t\r\n"))
	switch {
	case bytes.HasPrefix(text, []byte("version https://git-lfs")):
		return "a git-lfs pointer to it"
	case bytes.HasPrefix(text, []byte("<")):
		return "an HTML or XML page"
	case bytes.HasPrefix(text, []byte("{")), bytes.HasPrefix(text, []byte("[")):
		return "a JSON document" + quote(head)
	}
	return ""
}

// quote shows the beginning of a short text reply.
func quote(head []byte) string {
	line := strings.Join(strings.Fields(strings.ToValidUTF8(string(head[:min(len(head), 80)]), "")), " ")
	return fmt.Sprintf(" (%q)", line)
}

// parseHeader decodes a safetensors JSON header. Offsets of the result count from the start of the data.
// intern returns the string to keep for a name.
func parseHeader(header []byte, intern func([]byte) string) ([]Tensor, error) {
	s := &scanner{b: header}
	if header[0] != '{' {
		return nil, s.fail("%q instead of '{'", header[0])
	}
	var tensors []Tensor
	var dims []int64
	metadata := false
	err := s.object(func(key []byte) error {
		if string(key) == "__metadata__" {
			if metadata {
				return errors.New("__metadata__ occurs twice")
			}
			metadata = true
			return s.skip(3)
		}
		t := Tensor{Name: intern(key)}
		var err error
		if dims, err = parseTensor(s, &t, dims); err != nil {
			return fmt.Errorf("tensor %s: %w", t.Name, err)
		}
		tensors = append(tensors, t)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := s.end(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Size, b.Size))
	})
	end := int64(0)
	for i := range tensors {
		t := &tensors[i]
		if t.Offset < end {
			return nil, fmt.Errorf("tensor %s overlaps the one before it", t.Name)
		}
		if t.Offset > end {
			return nil, fmt.Errorf("%d bytes before tensor %s belong to no tensor", t.Offset-end, t.Name)
		}
		end += t.Size
	}
	return tensors, nil
}

// parseTensor reads {"dtype","shape","data_offsets"} into t. Shapes are cut out of dims, which is
// returned extended: one allocation serves many tensors.
func parseTensor(s *scanner, t *Tensor, dims []int64) ([]int64, error) {
	var begin, end int64
	var have [3]bool
	once := func(i int, what string) error {
		if have[i] {
			return fmt.Errorf("%s occurs twice", what)
		}
		have[i] = true
		return nil
	}
	err := s.object(func(key []byte) error {
		switch string(key) {
		case "dtype":
			name, err := s.str()
			if err != nil {
				return err
			}
			var ok bool
			if t.DType, ok = parseDType(name); !ok {
				return fmt.Errorf("dtype %q is not supported (this version reads %s)", name, DTypes(1<<numDTypes-1))
			}
			return once(0, "dtype")
		case "shape":
			first := len(dims)
			err := s.array(func() error {
				n, err := s.size()
				if err != nil {
					return err
				}
				if len(dims)-first == maxDims {
					return fmt.Errorf("more than %d dimensions", maxDims)
				}
				dims = append(dims, n)
				return nil
			})
			t.Shape = dims[first:len(dims):len(dims)]
			return errors.Join(err, once(1, "shape"))
		case "data_offsets":
			i := 0
			err := s.array(func() error {
				n, err := s.size()
				if err != nil {
					return err
				}
				if i == 2 {
					return errors.New("more than two data_offsets")
				}
				*[]*int64{&begin, &end}[i] = n
				i++
				return nil
			})
			if err == nil && i != 2 {
				err = errors.New("fewer than two data_offsets")
			}
			return errors.Join(err, once(2, "data_offsets"))
		}
		return fmt.Errorf("unknown key %q", key)
	})
	if err != nil {
		return dims, err
	}
	for i, what := range []string{"dtype", "shape", "data_offsets"} {
		if !have[i] {
			return dims, fmt.Errorf("%s is missing", what)
		}
	}
	size, ok := byteSize(t.DType, t.Shape)
	if !ok {
		return dims, fmt.Errorf("shape %v of %s overflows", t.Shape, t.DType)
	}
	if begin > end || end-begin != size {
		return dims, fmt.Errorf("data_offsets [%d,%d] do not fit %s %v, which takes %d bytes", begin, end, t.DType, t.Shape, size)
	}
	t.Offset, t.Size = begin, size
	return dims, nil
}

// byteSize returns the size of a tensor; ok is false if it does not fit an int64.
func byteSize(d DType, shape []int64) (size int64, ok bool) {
	size = d.Size()
	for _, n := range shape {
		if n < 0 || n > 0 && size > math.MaxInt64/n {
			return 0, false
		}
		size *= n
	}
	return size, true
}
