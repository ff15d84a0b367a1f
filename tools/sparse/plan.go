package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cedrun/runtime/checkpoint"
	"cedrun/runtime/config"
)

// shard is one file to write.
type shard struct {
	file    string
	tensors []checkpoint.Spec // in file order
	header  []byte
	size    int64 // of the file
}

// plan distributes the tensors over files as the release does (spec model.md section 2.1, with the image
// tokens beside the embedding, where the byte counts put them): vision and aligner | embed | each
// layer without Engram | norm and head | each draft block | each Engram layer.
func plan(cfg *config.Config) ([]shard, error) {
	engram := 3 + cfg.Layers + cfg.Draft.Layers
	shards := make([]shard, engram+len(cfg.Engram.Layers))
	for _, s := range checkpoint.Expected(cfg) {
		part := strings.Split(s.Name, ".")
		n := 0
		switch {
		case part[0] == "embed" || strings.HasPrefix(part[0], "image_"):
			n = 1
		case part[0] == "norm" || part[0] == "head":
			n = 2 + cfg.Layers
		case part[0] == "layers" || part[0] == "mtp":
			id, err := strconv.Atoi(part[1])
			if err != nil {
				return nil, fmt.Errorf("tensor %s: %w", s.Name, err)
			}
			switch {
			case part[0] == "mtp":
				n = 3 + cfg.Layers + id
			case s.Role == checkpoint.Engram:
				n = engram + slices.Index(cfg.Engram.Layers, id)
			default:
				n = 2 + id
			}
		}
		shards[n].tensors = append(shards[n].tensors, s)
	}
	shards = slices.DeleteFunc(shards, func(s shard) bool { return len(s.tensors) == 0 })
	for i := range shards {
		s := &shards[i]
		s.file = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(shards))
		// The safetensors library orders by descending dtype and name; the Engram shards were written
		// in the order of their module. Only so do the headers have the released lengths.
		if s.tensors[0].Role != checkpoint.Engram {
			slices.SortFunc(s.tensors, func(a, b checkpoint.Spec) int {
				return cmp.Or(cmp.Compare(b.Stored, a.Stored), cmp.Compare(a.Name, b.Name))
			})
		}
		var outs []checkpoint.Out
		for _, t := range s.tensors {
			outs = append(outs, checkpoint.Out{Name: t.Name, DType: t.Stored, Shape: t.Shape})
			s.size += t.Size()
		}
		var err error
		if s.header, err = checkpoint.Header(outs); err != nil {
			return nil, err
		}
		s.size += int64(len(s.header))
	}
	return shards, nil
}
