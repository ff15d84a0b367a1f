package checkpoint

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"cedrun/runtime/residency"
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
		data, err := residency.Map(s.file, int(s.size), c.opts.HugePages)
		if err != nil {
			c.unmapShards()
			return fmt.Errorf("map %s: %w", s.name, err)
		}
		s.data, s.mapped = data, true
	}
	for i := range c.tensors {
		if t := &c.tensors[i]; isTable(t.Name) {
			residency.ReadRows(c.shards[t.Shard].data[t.Offset : t.Offset+t.Size])
		}
	}
	return nil
}

// isTable reports whether a tensor is read by scattered rows.
func isTable(name string) bool {
	return name == "embed.weight" || strings.HasSuffix(name, ".engram.embed.weight") || strings.HasSuffix(name, ".engram.embed.scale")
}

func (c *Checkpoint) unmapShards() error {
	var errs []error
	for i := range c.shards {
		s := &c.shards[i]
		if !s.mapped {
			continue
		}
		if err := residency.Unmap(s.data); err != nil {
			errs = append(errs, fmt.Errorf("unmap %s: %w", s.name, err))
		}
		s.data, s.mapped = nil, false
	}
	return errors.Join(errs...)
}
