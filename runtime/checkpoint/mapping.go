package checkpoint

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// mapShards maps every shard. If one is refused, none stays mapped: under an address-space limit, what
// the shards would use up is what the program needs.
func (c *Checkpoint) mapShards() error {
	for i := range c.shards {
		s := &c.shards[i]
		if s.size > math.MaxInt {
			c.unmapShards()
			return fmt.Errorf("map %s: %d bytes exceed the address space", s.name, s.size)
		}
		data, err := unix.Mmap(int(s.file.Fd()), 0, int(s.size), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			c.unmapShards()
			return fmt.Errorf("map %s: %w", s.name, err)
		}
		s.data, s.mapped = data, true
	}
	for i := range c.tensors {
		if t := &c.tensors[i]; isTable(t.Name) {
			c.adviseRandom(t)
		}
	}
	return nil
}

// isTable reports whether a tensor is an Engram table, read by scattered rows.
func isTable(name string) bool {
	return strings.HasSuffix(name, ".engram.embed.weight") || strings.HasSuffix(name, ".engram.embed.scale")
}

// adviseRandom stops the kernel from reading ahead of the rows of a table: a gather of 256-byte rows
// would otherwise read 128 KiB for each. Advice only, so a refusal does not matter.
func (c *Checkpoint) adviseRandom(t *Tensor) {
	page := int64(os.Getpagesize())
	begin := t.Offset &^ (page - 1)
	_ = unix.Madvise(c.shards[t.Shard].data[begin:t.Offset+t.Size], unix.MADV_RANDOM)
}

func (c *Checkpoint) unmapShards() error {
	var errs []error
	for i := range c.shards {
		s := &c.shards[i]
		if !s.mapped {
			continue
		}
		if err := unix.Munmap(s.data); err != nil {
			errs = append(errs, fmt.Errorf("unmap %s: %w", s.name, err))
		}
		s.data, s.mapped = nil, false
	}
	return errors.Join(errs...)
}
