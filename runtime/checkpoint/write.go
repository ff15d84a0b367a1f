package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Out is a tensor to write.
type Out struct {
	Name  string
	DType DType
	Shape []int64
	Data  []byte // little-endian, row-major
}

// Header encodes the start of a safetensors file: the header length and the JSON header, padded with
// spaces to a multiple of 8. Tensors follow each other in the given order; Data is not looked at.
func Header(tensors []Out) ([]byte, error) {
	b := append(make([]byte, 8), '{')
	seen := map[string]bool{}
	offset := int64(0)
	for i, t := range tensors {
		if seen[t.Name] || t.Name == "__metadata__" {
			return nil, fmt.Errorf("tensor name %q is taken", t.Name)
		}
		seen[t.Name] = true
		name, err := json.Marshal(t.Name)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if len(t.Shape) > maxDims || t.DType >= numDTypes {
			return nil, fmt.Errorf("tensor %s: %s with %d dimensions cannot be written", t.Name, t.DType, len(t.Shape))
		}
		size, ok := byteSize(t.DType, t.Shape)
		if !ok || offset+size < offset {
			return nil, fmt.Errorf("tensor %s: shape %v overflows", t.Name, t.Shape)
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, name...)
		b = append(b, `:{"dtype":"`...)
		b = append(b, t.DType.String()...)
		b = append(b, `","shape":[`...)
		for j, n := range t.Shape {
			if j > 0 {
				b = append(b, ',')
			}
			b = fmt.Append(b, n)
		}
		b = fmt.Appendf(b, `],"data_offsets":[%d,%d]}`, offset, offset+size)
		offset += size
	}
	b = append(b, '}')
	for len(b)%8 != 0 {
		b = append(b, ' ')
	}
	if len(b)-8 > maxHeader {
		return nil, fmt.Errorf("header of %d bytes exceeds the limit of %d", len(b)-8, maxHeader)
	}
	binary.LittleEndian.PutUint64(b, uint64(len(b)-8))
	return b, nil
}

// Write writes a safetensors file.
func Write(w io.Writer, tensors []Out) error {
	header, err := Header(tensors)
	if err != nil {
		return err
	}
	for _, t := range tensors {
		if size, _ := byteSize(t.DType, t.Shape); size != int64(len(t.Data)) {
			return fmt.Errorf("tensor %s: %d bytes of data for %s %v, which takes %d", t.Name, len(t.Data), t.DType, t.Shape, size)
		}
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	for _, t := range tensors {
		if _, err := w.Write(t.Data); err != nil {
			return fmt.Errorf("tensor %s: %w", t.Name, err)
		}
	}
	return nil
}

// WriteFile writes a safetensors file at path, whole or not at all.
func WriteFile(path string, tensors []Out) error {
	return replace(path, func(w io.Writer) error { return Write(w, tensors) })
}

// replace writes a file beside path and puts it in its place when it is whole.
func replace(path string, write func(w io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	err = errors.Join(write(f), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// Copy writes all tensors to one safetensors file at path, as change returns them; it may alter their data, drop and add
// some. All of the checkpoint is in memory meanwhile.
func (c *Checkpoint) Copy(path string, change func(tensors []Out) []Out) error {
	var tensors []Out
	for _, t := range c.Tensors() {
		b, err := c.Bytes(t.Name)
		if err != nil {
			return fmt.Errorf("copy checkpoint %s: %w", c.dir, err)
		}
		tensors = append(tensors, Out{Name: t.Name, DType: t.DType, Shape: t.Shape, Data: slices.Clone(b)})
	}
	return WriteFile(path, change(tensors))
}
