package main

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"cedrun/runtime/checkpoint"
	"cedrun/runtime/config"
)

func release(t *testing.T) *config.Config {
	t.Helper()
	cfg, err := config.Load("../../testdata/release/config.json")
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestShardsHaveTheReleasedSizes(t *testing.T) {
	shards, err := plan(release(t))
	if err != nil {
		t.Fatal(err)
	}
	// Spec model.md section 2.1.
	want := map[int]int64{
		1: 970533624, 2: 1323858272, 43: 1323837624, 44: 2652728736, 45: 2573998176, 46: 2706402896,
		47: 101535150936, 48: 101537926640,
		5: 7405953784, 11: 7405953784, 17: 7405956128, 23: 7400713088,
		27: 7395337384, 31: 7395337384, 35: 7395337384, 39: 7395337384,
	}
	for layer := range 40 {
		if _, source := want[layer+3]; !source {
			want[layer+3] = 7389761368
			if layer < 10 {
				want[layer+3] = 7389759032
			}
		}
	}
	if len(shards) != 48 {
		t.Fatalf("%d shards, want 48", len(shards))
	}
	total := int64(0)
	for i, s := range shards {
		if s.size != want[i+1] {
			t.Errorf("%s: %d bytes, want %d", s.file, s.size, want[i+1])
		}
		total += s.size
	}
	if total != 510296708312 {
		t.Errorf("%d bytes in all, want 510296708312", total)
	}
}

func TestGeneratorKnownAnswers(t *testing.T) {
	// Conformance data, section 3: seed 2026, name "op/gate/x".
	s := stream(2026, "op/gate/x")
	if s != 0x7e7fe090a169981f {
		t.Errorf("stream = %x", s)
	}
	for i, want := range []float32{-0.049072265625, 0.387115478515625, -0.366424560546875} {
		if got := gauss(s, int64(i)); got != want {
			t.Errorf("gauss %d = %v, want %v", i, got, want)
		}
	}
}

func TestSparseMiniOpensAndHasValues(t *testing.T) {
	// The same writer at the size of a mini checkpoint.
	cfg, err := config.Load("../../testdata/mini/vl/config.json")
	if err != nil {
		t.Fatal(err)
	}
	shards, err := plan(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := writer{dir: t.TempDir(), seed: 1, embedRows: 2}
	for _, s := range shards {
		if err := w.shard(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.index(shards); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(w.dir, "model.safetensors.index.json"))
	if err != nil || !json.Valid(data) {
		t.Fatal(err)
	}
	ck, err := checkpoint.Open(w.dir, checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	if _, err := ck.Check(cfg); err != nil {
		t.Error(err)
	}
	for name, mean := range map[string]float64{
		"norm.weight": 1, "layers.2.attn_norm.weight": 0.025, "layers.5.attn.compressor.norm.weight": 0.6,
		"layers.1.attn.indexer.k_norm.weight": 0.5, "layers.0.attn.q_norm.weight": 0.97,
	} {
		v, err := ck.Floats(name)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for _, x := range v {
			sum += float64(x)
		}
		if got := sum / float64(len(v)); math.Abs(got-mean) > 0.1*mean {
			t.Errorf("mean of %s = %g, want about %g", name, got, mean)
		}
	}
	embed, err := ck.Bytes("embed.weight")
	if err != nil {
		t.Fatal(err)
	}
	row := 2 * cfg.HiddenSize
	if binary.LittleEndian.Uint64(embed[row:]) == 0 || binary.LittleEndian.Uint64(embed[2*row:]) != 0 {
		t.Error("embed.weight should have exactly two rows with values")
	}
}
