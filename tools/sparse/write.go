package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"cedrun/runtime/checkpoint"
	"cedrun/runtime/synth"
)

// writer writes the files of a sparse checkpoint.
type writer struct {
	dir       string
	seed      uint64
	embedRows int64
	apparent  int64 // bytes of the shards so far, holes included
}

func (w *writer) shard(s checkpoint.File) (err error) {
	f, err := os.Create(filepath.Join(w.dir, s.Name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Truncate(s.Size); err != nil {
		return err
	}
	if _, err := f.WriteAt(s.Header, 0); err != nil {
		return err
	}
	offset := int64(len(s.Header))
	for i := range s.Tensors {
		if b := w.values(&s.Tensors[i]); b != nil {
			if _, err := f.WriteAt(b, offset); err != nil {
				return err
			}
		}
		offset += s.Tensors[i].Size()
	}
	w.apparent += s.Size
	return nil
}

// diskUse sums the blocks that the files of a directory occupy.
func diskUse(dir string) (int64, error) {
	total := int64(0)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		var st syscall.Stat_t
		if err := syscall.Stat(path, &st); err != nil {
			return fmt.Errorf("stat %s: %w", path, err)
		}
		total += st.Blocks * 512
		return nil
	})
	return total, err
}

const (
	realLimit  = 8 << 20   // backbone tensors up to this size get values
	otherLimit = 256 << 10 // draft and vision tensors, which are not run
)

// values returns the bytes of a tensor, or of its first rows, or nil for a hole.
func (w *writer) values(s *checkpoint.Spec) []byte {
	if s.Stored != checkpoint.BF16 && s.Stored != checkpoint.F32 {
		return nil
	}
	n := s.Size() / s.Stored.Size()
	limit := int64(realLimit)
	if s.Role == checkpoint.Draft || s.Role == checkpoint.Vision {
		limit = otherLimit
	}
	if s.Name == "embed.weight" {
		n = min(w.embedRows, s.Shape[0]) * s.Shape[1]
	} else if s.Size() > limit {
		return nil
	}
	mean, deviation := synth.Magnitude(s)
	return fill(stream(w.seed, s.Name), s.Stored, n, float32(mean), float32(deviation))
}
