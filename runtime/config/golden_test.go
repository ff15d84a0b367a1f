package config_test

import (
	"slices"
	"testing"

	"cedrun/runtime/checkpoint"
	"cedrun/runtime/config"
)

func TestRopeFrequenciesEqualTheOperatorGolden(t *testing.T) {
	c, err := config.Load("../../testdata/release/config.json")
	if err != nil {
		t.Fatal(err)
	}
	golden, err := checkpoint.OpenFile("../../testdata/ops/ops.safetensors", checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer golden.Close()
	for name, compressed := range map[string]bool{"rope.plain_freqs": false, "rope.compressed_freqs": true} {
		want, err := golden.Floats(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.RopeFreqs(compressed); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
