package conform

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
)

// Whatever shape and values a golden has: a report or an error, never a panic.
func TestMalformedGoldensAreReported(t *testing.T) {
	faults := map[string]func(v []float32, shape []int64) ([]float32, []int64){
		"flat":    func(v []float32, _ []int64) ([]float32, []int64) { return v, []int64{int64(len(v))} },
		"one row": func(v []float32, _ []int64) ([]float32, []int64) { return v, []int64{1, int64(len(v))} },
		"short":   func(v []float32, _ []int64) ([]float32, []int64) { return v[:1], []int64{1} },
		"long": func(v []float32, s []int64) ([]float32, []int64) {
			return slices.Repeat(v, 3), append([]int64{3 * s[0]}, s[1:]...)
		},
		"negative": func(v []float32, s []int64) ([]float32, []int64) { return slices.Repeat([]float32{-7}, len(v)), s },
		"huge":     func(v []float32, s []int64) ([]float32, []int64) { return slices.Repeat([]float32{1 << 23}, len(v)), s },
		"missing":  func([]float32, []int64) ([]float32, []int64) { return nil, nil },
		"not numbers": func(v []float32, s []int64) ([]float32, []int64) {
			return slices.Repeat([]float32{float32(math.NaN())}, len(v)), s
		},
	}
	s, files := subject(t, "edge", ced.CPU, 1, false)
	good := mustLoad(t, files...)
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(good.vals)) {
		kind := suffix(name)
		if !strings.HasPrefix(name, "L") {
			kind = strings.TrimRight(strings.Split(name, ".")[0], "0123456789") + "." + kind
		}
		if seen[kind] {
			continue // of each kind one layer's
		}
		seen[kind] = true
		for fault, of := range faults {
			t.Run(fmt.Sprintf("%s %s", fault, name), func(t *testing.T) {
				g := &golden{vals: maps.Clone(good.vals), shape: maps.Clone(good.shape), read: map[string]bool{}}
				g.vals[name], g.shape[name] = of(good.vals[name], good.shape[name])
				if len(g.vals[name]) == 0 {
					delete(g.vals, name)
					delete(g.shape, name)
				}
				switch r, err := newRun(t.Context(), s, g); {
				case err != nil:
				case strings.HasPrefix(name, "L"):
					_ = r.subLayers() // no other section reads it
				default:
					_, _ = judge(t.Context(), s, g)
				}
			})
		}
	}
}

func TestGoldensWithoutRowsAreRefused(t *testing.T) {
	for _, shape := range [][]int64{{}, {0}, {3, 0}, {0, 4}} {
		path := filepath.Join(t.TempDir(), "golden.safetensors")
		n := int64(1)
		for _, d := range shape {
			n *= d
		}
		if err := checkpoint.WriteFile(path, []checkpoint.Out{{Name: "L0.sel", DType: checkpoint.I32, Shape: shape, Data: make([]byte, 4*n)}}); err != nil {
			t.Fatal(err)
		}
		f, err := checkpoint.OpenFile(path, checkpoint.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := load([]*checkpoint.Checkpoint{f}); err == nil || !strings.Contains(err.Error(), "not in the conformance format") {
			t.Errorf("shape %v: %v", shape, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
