package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
)

// sampled bounds what Digest reads of a tensor.
const sampled = 64

// Digest tells checkpoints apart without reading them whole: by the size and time of each shard, the place, type and shape
// of each tensor, and the first bytes of those that are not routed experts. Weights that differ in the experts alone, in
// files of one size and time, have the same.
func (c *Checkpoint) Digest() (string, error) {
	h := sha256.New()
	for i := range c.shards {
		s := &c.shards[i]
		fmt.Fprintf(h, "%q %d", s.name, s.size)
		if s.file != nil {
			st, err := s.file.Stat()
			if err != nil {
				return "", fmt.Errorf("digest of %s: %w", s.name, err)
			}
			fmt.Fprintf(h, " %d", st.ModTime().UnixNano())
		}
	}
	b := make([]byte, sampled)
	for i := range c.tensors {
		t := &c.tensors[i]
		fmt.Fprintf(h, "%q %v %v %d %d %d", t.Name, t.DType, t.Shape, t.Shard, t.Offset, t.Size)
		if strings.Contains(t.Name, ".experts.") {
			continue
		}
		part := b[:min(t.Size, sampled)]
		if _, err := c.shards[t.Shard].reader().ReadAt(part, t.Offset); err != nil && err != io.EOF {
			return "", fmt.Errorf("digest of tensor %s in %s: %w", t.Name, c.shards[t.Shard].name, err)
		}
		h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}
