package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"cedrun/runtime/checkpoint"
)

// writer writes the files of a sparse checkpoint.
type writer struct {
	dir       string
	seed      uint64
	embedRows int64
	apparent  int64 // bytes of the shards so far, holes included
}

func (w *writer) shard(s shard) (err error) {
	f, err := os.Create(filepath.Join(w.dir, s.file))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Truncate(s.size); err != nil {
		return err
	}
	if _, err := f.WriteAt(s.header, 0); err != nil {
		return err
	}
	offset := int64(len(s.header))
	for i := range s.tensors {
		if b := w.values(&s.tensors[i]); b != nil {
			if _, err := f.WriteAt(b, offset); err != nil {
				return err
			}
		}
		offset += s.tensors[i].Size()
	}
	w.apparent += s.size
	return nil
}

// index writes model.safetensors.index.json.
func (w *writer) index(shards []shard) error {
	total, weights := int64(0), map[string]string{}
	for _, s := range shards {
		for _, t := range s.tensors {
			total += t.Size()
			weights[t.Name] = s.file
		}
	}
	data, err := json.MarshalIndent(map[string]any{
		"metadata":   map[string]int64{"total_size": total},
		"weight_map": weights,
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the index: %w", err)
	}
	return os.WriteFile(filepath.Join(w.dir, "model.safetensors.index.json"), data, 0o644)
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
	mean, deviation := magnitude(s)
	return fill(stream(w.seed, s.Name), s.Stored, n, mean, deviation)
}
