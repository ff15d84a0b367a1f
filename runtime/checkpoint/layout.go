package checkpoint

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"cedrun/runtime/config"
)

// File is one shard of a checkpoint that is yet to be written.
type File struct {
	Name    string
	Tensors []Spec // in file order
	Header  []byte
	Size    int64
}

// Layout distributes the tensors of a geometry over shards as the release does (spec model.md section 2.1, with the
// image tokens beside the embedding, where the byte counts put them): vision and aligner | embed | each layer without
// Engram | norm and head | each draft block | each Engram layer.
func Layout(cfg *config.Config) ([]File, error) {
	engram := 3 + cfg.Layers + cfg.Draft.Layers
	files := make([]File, engram+len(cfg.Engram.Layers))
	for _, s := range Expected(cfg) {
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
			case s.Role == Engram:
				n = engram + slices.Index(cfg.Engram.Layers, id)
			default:
				n = 2 + id
			}
		}
		files[n].Tensors = append(files[n].Tensors, s)
	}
	files = slices.DeleteFunc(files, func(f File) bool { return len(f.Tensors) == 0 })
	for i := range files {
		f := &files[i]
		f.Name = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(files))
		// The safetensors library orders by descending dtype and name; the Engram shards were written
		// in the order of their module. Only so do the headers have the released lengths.
		if f.Tensors[0].Role != Engram {
			slices.SortFunc(f.Tensors, func(a, b Spec) int {
				return cmp.Or(cmp.Compare(b.Stored, a.Stored), cmp.Compare(a.Name, b.Name))
			})
		}
		var outs []Out
		for _, t := range f.Tensors {
			outs = append(outs, Out{Name: t.Name, DType: t.Stored, Shape: t.Shape})
			f.Size += t.Size()
		}
		var err error
		if f.Header, err = Header(outs); err != nil {
			return nil, err
		}
		f.Size += int64(len(f.Header))
	}
	return files, nil
}

// WriteIndex writes the index of files into a directory, whole or not at all.
func WriteIndex(dir string, files []File) error {
	total, weights := int64(0), map[string]string{}
	for _, f := range files {
		for _, t := range f.Tensors {
			total += t.Size()
			weights[t.Name] = f.Name
		}
	}
	data, err := json.MarshalIndent(map[string]any{
		"metadata":   map[string]int64{"total_size": total},
		"weight_map": weights,
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the index: %w", err)
	}
	return replace(filepath.Join(dir, indexName), func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}
