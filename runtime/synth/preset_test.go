package synth

import (
	"slices"
	"strings"
	"testing"

	"cedrun/runtime/checkpoint"
	"cedrun/runtime/config"
	"cedrun/runtime/tokenizer"
)

func TestPresetsHaveTheirSizes(t *testing.T) {
	for name, limits := range map[string][2]float64{
		"bench-s": {0.25, 0.35}, "bench-m": {1.8, 2.5}, "layer": {3, 4.5}, "tiny": {0, 0.01},
	} {
		p, err := find(name)
		if err != nil {
			t.Fatal(err)
		}
		cfg, _, data, err := p.files()
		if err != nil {
			t.Fatal(err)
		}
		files, err := checkpoint.Layout(cfg)
		if err != nil {
			t.Fatal(err)
		}
		size := int64(0)
		for _, f := range files {
			size += f.Size
		}
		if gb := float64(size) / 1e9; gb < limits[0] || gb > limits[1] {
			t.Errorf("%s takes %.2f GB", name, gb)
		}
		tok, err := tokenizer.Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		if tok.VocabSize() != p.Tokens || tok.VocabSize() > cfg.VocabSize {
			t.Errorf("%s: %d tokens of %d ids", name, tok.VocabSize(), cfg.VocabSize)
		}
		modes := map[config.Mode]bool{}
		for _, l := range cfg.Schedule() {
			modes[l.Mode] = true
		}
		if len(modes) != 4 || cfg.CandidateSource < 0 || len(cfg.Engram.Layers) == 0 {
			t.Errorf("%s: modes %v, candidate source %d, Engram layers %v", name, modes, cfg.CandidateSource, cfg.Engram.Layers)
		}
	}
	if n := len(Presets()); n != 3 {
		t.Errorf("%d presets are listed", n)
	}
}

// Every matrix of preset layer has the released shape; only the number of experts and of table rows is less.
func TestPresetLayerHasTheReleasedShapes(t *testing.T) {
	released, err := config.Load("../../testdata/release/config.json")
	if err != nil {
		t.Fatal(err)
	}
	p, err := find("layer")
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, _, err := p.files()
	if err != nil {
		t.Fatal(err)
	}
	shapes := map[string][]int64{}
	for _, s := range checkpoint.Expected(released) {
		shapes[s.Name] = s.Shape
	}
	like := map[string]string{"0": "1", "1": "2", "2": "3", "3": "20", "4": "24"} // of the same mode
	for _, s := range checkpoint.Expected(cfg) {
		part := strings.Split(s.Name, ".")
		if part[0] == "layers" {
			part[1] = like[part[1]]
		}
		want := slices.Clone(shapes[strings.Join(part, ".")])
		if strings.Contains(s.Name, "ffn.gate.") || strings.Contains(s.Name, "engram.embed.") {
			want[0] = s.Shape[0]
		}
		if !slices.Equal(s.Shape, want) {
			t.Errorf("%s is %v, released %v", s.Name, s.Shape, want)
		}
	}
}

func TestATruncatedTokenizerReadsAsTheReleasedOne(t *testing.T) {
	released, err := tokenizer.Load("../../testdata/tokenizer/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	const n = 32768
	data, err := truncated(n)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	base := n - (len(tok.Added()) - controls)
	for id := range base {
		if tok.Spelling(id) != released.Spelling(id) {
			t.Fatalf("token %d is %q, released %q", id, tok.Spelling(id), released.Spelling(id))
		}
	}
	for _, a := range tok.Added() {
		if _, ok := released.ID(a.Content); !ok || a.ID >= controls && a.ID < base {
			t.Errorf("added token %q with id %d", a.Content, a.ID)
		}
	}
	for _, text := range []string{"The quick brown fox", "def f(x):\n    return x + 1\n", "你好"} {
		got, want := tok.Encode(text, tokenizer.Options{}), released.Encode(text, tokenizer.Options{})
		if slices.Max(want) < int32(base) && !slices.Equal(got, want) {
			t.Errorf("%q: %v, released %v", text, got, want)
		}
		if tok.Decode(got) != text {
			t.Errorf("%q comes back as %q", text, tok.Decode(got))
		}
	}
	for _, n := range []int{0, 315, 1 << 17} {
		if _, err := truncated(n); err == nil {
			t.Errorf("a tokenizer of %d tokens was made", n)
		}
	}
}
