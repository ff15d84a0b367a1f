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
	shards, err := checkpoint.Layout(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := writer{dir: t.TempDir(), seed: 1, embedRows: 2}
	for _, s := range shards {
		if err := w.shard(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := checkpoint.WriteIndex(w.dir, shards); err != nil {
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
