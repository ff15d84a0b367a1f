package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrNoTensor is wrapped by errors about a name that the checkpoint does not contain.
var ErrNoTensor = errors.New("no such tensor")

// Tensors lists the stored tensors, shard by shard, in file order. The caller must not change it.
func (c *Checkpoint) Tensors() []Tensor { return c.tensors }

// Shards lists the shard file names.
func (c *Checkpoint) Shards() []string {
	names := make([]string, len(c.shards))
	for i := range c.shards {
		names[i] = c.shards[i].name
	}
	return names
}

// TotalSize is the number of bytes of all tensors together.
func (c *Checkpoint) TotalSize() int64 {
	total := int64(0)
	for i := range c.tensors {
		total += c.tensors[i].Size
	}
	return total
}

// Tensor returns the description of a tensor by its released name.
func (c *Checkpoint) Tensor(name string) (Tensor, bool) {
	i, ok := c.byName[name]
	if !ok {
		return Tensor{}, false
	}
	return c.tensors[i], true
}

// Mapped reports whether the shards are mapped files that Bytes returns in place.
func (c *Checkpoint) Mapped() bool { return len(c.shards) > 0 && c.shards[0].mapped }

// InPlace reports whether Bytes returns whole tensors without reading them: of mapped and of embedded shards.
func (c *Checkpoint) InPlace() bool { return len(c.shards) > 0 && c.shards[0].data != nil }

// Observable reports whether the system tells which pages of mapped shards are in memory: of files that this process
// owns or may write.
func (c *Checkpoint) Observable() bool {
	for i := range c.shards {
		s := &c.shards[i]
		if !s.mapped {
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(s.file.Fd()), &st); err != nil {
			return false
		}
		if euid := os.Geteuid(); euid != 0 && int(st.Uid) != euid && unix.Access(s.file.Name(), unix.W_OK) != nil {
			return false
		}
	}
	return true
}

// MapRefused is the reason why shards that should be mapped are not, or nil.
func (c *Checkpoint) MapRefused() error { return c.mapErr }

// Close releases the mappings, the memory and the files. Slices from Bytes become invalid.
func (c *Checkpoint) Close() error {
	errs := []error{c.unmapShards(), c.memory.release()}
	for i := range c.shards {
		if f := c.shards[i].file; f != nil {
			errs = append(errs, f.Close())
		}
	}
	c.shards, c.tensors, c.byName, c.cache = nil, nil, nil, nil
	return errors.Join(errs...)
}

func (c *Checkpoint) lookup(name string) (int32, *Tensor, error) {
	i, ok := c.byName[name]
	if !ok {
		return 0, nil, fmt.Errorf("checkpoint %s: %w: %s", c.dir, ErrNoTensor, name)
	}
	return i, &c.tensors[i], nil
}

// Bytes returns all bytes of a tensor at an address that is a multiple of the element size: in place
// where the shard is mapped, else read at the first call. The slice is read-only and valid until Close.
func (c *Checkpoint) Bytes(name string) ([]byte, error) {
	i, t, err := c.lookup(name)
	if err != nil {
		return nil, err
	}
	s := &c.shards[t.Shard]
	if s.data != nil {
		b := s.data[t.Offset : t.Offset+t.Size : t.Offset+t.Size]
		if aligned(b, t.DType) {
			return b, nil
		}
	}
	c.mu.Lock()
	r := c.cache[i]
	if r == nil {
		r = &resident{}
		c.cache[i] = r
	}
	c.mu.Unlock()
	r.once.Do(func() {
		if r.data, r.err = c.memory.alloc(t.Size); r.err == nil {
			r.err = s.readAt(r.data, t.Offset)
		}
	})
	if r.err != nil {
		return nil, fmt.Errorf("read %s: %w", name, r.err)
	}
	return r.data, nil
}

func aligned(b []byte, d DType) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%uintptr(d.Size()) == 0
}

// readAt fills b from the shard at offset.
func (s *shard) readAt(b []byte, offset int64) error {
	if s.data != nil {
		copy(b, s.data[offset:])
		return nil
	}
	n, err := s.file.ReadAt(b, offset)
	if n == len(b) {
		return nil // a read that ends with the file may report EOF
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s became shorter: %d bytes missing at %d", s.name, len(b)-n, offset+int64(n))
	}
	return fmt.Errorf("%s: %w", s.name, err)
}

// ReadRows copies rows of rowBytes bytes each to dst, in the order given, reading nothing else. It is the
// way to read tables that must not become resident.
func (c *Checkpoint) ReadRows(name string, rowBytes int, rows []int64, dst []byte) error {
	_, t, err := c.lookup(name)
	if err != nil {
		return err
	}
	if rowBytes <= 0 || t.Size%int64(rowBytes) != 0 {
		return fmt.Errorf("read rows of %s: %d bytes are not a whole number of rows of %d", name, t.Size, rowBytes)
	}
	if len(rows) > math.MaxInt/rowBytes || len(dst) != len(rows)*rowBytes {
		return fmt.Errorf("read rows of %s: destination has %d bytes for %d rows of %d", name, len(dst), len(rows), rowBytes)
	}
	s, count := &c.shards[t.Shard], t.Size/int64(rowBytes)
	for i, row := range rows {
		if row < 0 || row >= count {
			return fmt.Errorf("read rows of %s: row %d is outside 0..%d", name, row, count-1)
		}
		if err := s.readAt(dst[i*rowBytes:(i+1)*rowBytes], t.Offset+row*int64(rowBytes)); err != nil {
			return fmt.Errorf("read rows of %s: %w", name, err)
		}
	}
	return nil
}

// Floats returns the values of a BF16 or F32 tensor in a new slice.
func (c *Checkpoint) Floats(name string) ([]float32, error) {
	_, t, err := c.lookup(name)
	if err != nil {
		return nil, err
	}
	if t.DType != BF16 && t.DType != F32 {
		return nil, fmt.Errorf("tensor %s is %s, not BF16 or F32", name, t.DType)
	}
	b, err := c.Bytes(name)
	if err != nil {
		return nil, err
	}
	out := make([]float32, t.Elements())
	for i := range out {
		if t.DType == BF16 {
			out[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*i:])) << 16)
		} else {
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
	}
	return out, nil
}

// Ints returns the values of an I8, U8, I32 or I64 tensor in a new slice.
func (c *Checkpoint) Ints(name string) ([]int64, error) {
	_, t, err := c.lookup(name)
	if err != nil {
		return nil, err
	}
	var at func(b []byte, i int) int64
	switch t.DType {
	case I8:
		at = func(b []byte, i int) int64 { return int64(int8(b[i])) }
	case U8:
		at = func(b []byte, i int) int64 { return int64(b[i]) }
	case I32:
		at = func(b []byte, i int) int64 { return int64(int32(binary.LittleEndian.Uint32(b[4*i:]))) }
	case I64:
		at = func(b []byte, i int) int64 { return int64(binary.LittleEndian.Uint64(b[8*i:])) }
	default:
		return nil, fmt.Errorf("tensor %s is %s, not an integer type", name, t.DType)
	}
	b, err := c.Bytes(name)
	if err != nil {
		return nil, err
	}
	out := make([]int64, t.Elements())
	for i := range out {
		out[i] = at(b, i)
	}
	return out, nil
}
