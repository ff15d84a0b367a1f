package checkpoint

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

const (
	indexName  = "model.safetensors.index.json"
	singleName = "model.safetensors"
)

// index is the decoded model.safetensors.index.json.
type index struct {
	shards    []string         // file names, ascending
	names     []string         // canonical tensor names
	shardOf   []int32          // names[i] is in shards[shardOf[i]]
	id        map[string]int32 // position in names
	totalSize int64            // -1 if not stated
}

// parseIndex decodes an index.
func parseIndex(data []byte) (*index, error) {
	if kind := sniff(data[:min(len(data), 512)]); kind != "" && !strings.HasPrefix(kind, "a JSON") {
		return nil, fmt.Errorf("is not an index but %s%s", kind, redownload)
	}
	x := &index{id: map[string]int32{}, totalSize: -1}
	shards := map[string]int32{}
	s := &scanner{b: data}
	found := false
	err := s.object(func(key []byte) error {
		switch string(key) {
		case "metadata":
			return x.metadata(s)
		case "weight_map":
			if found {
				return errors.New("weight_map occurs twice")
			}
			found = true
			return s.object(func(key []byte) error {
				name := Canonical(string(key))
				file, err := s.str()
				if err != nil {
					return fmt.Errorf("weight_map of %s: %w", name, err)
				}
				shard, ok := shards[string(file)]
				if !ok {
					f := string(file)
					if !filepath.IsLocal(f) || strings.ContainsAny(f, `/\`) {
						return fmt.Errorf("weight_map of %s: %q is not a plain file name", name, f)
					}
					shard = int32(len(x.shards))
					shards[f] = shard
					x.shards = append(x.shards, f)
				}
				if _, dup := x.id[name]; dup {
					return fmt.Errorf("tensor %s occurs twice in weight_map", name)
				}
				x.id[name] = int32(len(x.names))
				x.names = append(x.names, name)
				x.shardOf = append(x.shardOf, shard)
				return nil
			})
		}
		return s.skip(8)
	})
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return nil, fmt.Errorf("is malformed: %w", err)
	}
	if !found {
		return nil, fmt.Errorf("has no weight_map%s%s", quote(data), redownload)
	}
	x.sortShards()
	return x, nil
}

func (x *index) metadata(s *scanner) error {
	if s.next() != '{' {
		return s.skip(8)
	}
	return s.object(func(key []byte) error {
		if string(key) != "total_size" {
			return s.skip(8)
		}
		n, err := s.size()
		if err != nil {
			return fmt.Errorf("metadata.total_size: %w", err)
		}
		x.totalSize = n
		return nil
	})
}

// sortShards puts the shard list in ascending order, whatever the order of weight_map.
func (x *index) sortShards() {
	sorted := slices.Sorted(slices.Values(x.shards))
	to := make([]int32, len(sorted))
	for i, f := range x.shards {
		j, _ := slices.BinarySearch(sorted, f)
		to[i] = int32(j)
	}
	for i, id := range x.shardOf {
		x.shardOf[i] = to[id]
	}
	x.shards = sorted
}

// Canonical returns the released spelling of a stored tensor name: repacks add a leading "model." and
// the names that the reference's convert.py accepts (spec model.md section 2.4).
func Canonical(name string) string {
	name = strings.TrimPrefix(name, "model.")
	if !strings.HasPrefix(name, "vision.") {
		name = strings.ReplaceAll(name, ".self_attn.", ".attn.")
		name = strings.ReplaceAll(name, ".mlp.", ".ffn.")
	}
	if stem, ok := strings.CutSuffix(name, ".weight_scale_inv"); ok {
		return stem + ".scale"
	}
	if stem, ok := strings.CutSuffix(name, ".e_score_correction_bias"); ok {
		return stem + ".bias"
	}
	return name
}

// intern returns the string of a name as it stands in a header; names of the index are shared.
func (x *index) intern(name []byte) string {
	if i, ok := x.id[string(name)]; ok {
		return x.names[i]
	}
	return Canonical(string(name))
}
