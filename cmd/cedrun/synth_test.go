package main

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"testing"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
	"cedrun/runtime/engine"
	"cedrun/runtime/model"
)

// tiny writes the smallest preset.
func tiny(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tiny")
	succeed(t, "", "synth", "--preset", "tiny", "--out", dir)
	return dir
}

func TestSynthWritesACheckpointThatEveryCommandTakes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "tiny")
	r := succeed(t, "", "synth", "--preset", "tiny", "--seed", "5", "--out", dir, "--json")
	var s struct {
		Preset     string
		Seed       uint64
		Shards     int
		ShardsKept int `json:"shards_kept"`
		Bytes      int64
		Seconds    float64
		Tensors    int
	}
	if err := json.Unmarshal([]byte(r.out), &s); err != nil || s.Preset != "tiny" || s.Seed != 5 || s.Shards != 11 || s.Tensors == 0 || s.Bytes == 0 || s.ShardsKept != 0 {
		t.Errorf("%v: %s", err, r.out)
	}
	if r.err != "" {
		t.Errorf("stderr %q", r.err)
	}
	again := succeed(t, "", "synth", "--preset", "tiny", "--seed", "5", "--out", dir, "--json")
	if !strings.Contains(again.out, `"shards_kept":11`) {
		t.Errorf("a second run wrote again: %s", again.out)
	}
	for _, args := range [][]string{
		{"inspect"}, {"verify"}, {"verify", "--deep"}, {"plan", "--context", "2048"}, {"tokenize", "--prompt", "Hello"},
		{"generate", "--prompt", "Hello", "--max-tokens", "4", "--temperature", "0"},
		{"logits", "--ids", "0,1000", "--out", filepath.Join(t.TempDir(), "l.safetensors")},
	} {
		if r := succeed(t, "", append(args, "--model", dir)...); r.out == "" {
			t.Errorf("%v wrote nothing; stderr %q", args, r.err)
		}
	}
}

func TestSynthSaysWhatIsMissing(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--preset", "tiny"}, "synth needs --preset NAME and --out DIR"},
		{[]string{"--preset", "tiny", "--out", t.TempDir(), "--threads", "9999"}, "--threads 9999: use 1 to 1024"},
		{[]string{"--out", t.TempDir()}, "synth needs --preset NAME and --out DIR"},
		{[]string{"--preset", "huge", "--out", t.TempDir()}, `preset "huge": use bench-s, bench-m, layer`},
		{[]string{"--preset", "tiny", "--out", testdata + "mini/base"}, "has files that are not of this program"},
	} {
		r := cedrun(t, "", append([]string{"synth"}, c.args...)...)
		if r.status != exitError || !strings.Contains(r.err, c.want) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%v: status %d, stderr %q", c.args, r.status, r.err)
		}
	}
}

// magnitudes gathers the root mean square of the streams after each layer, and how often each expert is chosen.
type magnitudes struct {
	stream  *ced.Stream
	streams map[string]float64
	chosen  map[string]map[uint32]int
}

func (p *magnitudes) KV(int) error { return nil }

func (p *magnitudes) Sub(name string, t model.Tensor) error {
	isStream, isChoice := strings.HasSuffix(name, "h_out"), strings.HasSuffix(name, "route_idx")
	if !isStream && !isChoice {
		return nil
	}
	b := make([]byte, t.Bytes())
	if err := p.stream.Download(b, t.Addr); err != nil {
		return err
	}
	if isChoice {
		p.chosen[name] = map[uint32]int{}
		for ; len(b) > 0; b = b[4:] {
			p.chosen[name][binary.LittleEndian.Uint32(b)]++
		}
		return nil
	}
	squares := 0.
	for i := 0; i < len(b); i += 2 {
		x := float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[i:])) << 16))
		squares += x * x
	}
	p.streams[name] = math.Sqrt(squares / float64(len(b)/2))
	return nil
}

// The values are random, but of the size that real ones have: nothing saturates, and the router knows no favourites.
func TestSynthModelsHaveSaneMagnitudesAndUseAllExperts(t *testing.T) {
	f, err := engine.OpenFiles(engine.Source{Dir: tiny(t)}, checkpoint.Options{}, "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := ced.Open(ced.CPU, 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const n = 256
	m, err := model.New(s, f.Checkpoint, f.Config, f.Rows(), model.Options{Slots: 1, Context: n, StepRows: n, Outputs: n})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	q, err := m.NewSequence(model.Exact, n)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Reserve(q, n); err != nil {
		t.Fatal(err)
	}
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(i * 389 % f.Config.VocabSize)
	}
	p := &magnitudes{s, map[string]float64{}, map[string]map[uint32]int{}}
	if _, _, err := m.Forward([]model.Span{{Seq: q, Tokens: ids}}, p); err != nil {
		t.Fatal(err)
	}
	if len(p.streams) != f.Config.Layers || len(p.chosen) != f.Config.Layers {
		t.Fatalf("%d and %d layers were seen", len(p.streams), len(p.chosen))
	}
	for name, rms := range p.streams {
		if !(rms > 0.05 && rms < 2) {
			t.Errorf("%s has a root mean square of %g", name, rms)
		}
	}
	for name, chosen := range p.chosen {
		all := n * f.Config.ExpertsPerToken
		for expert, times := range chosen { // at most 1/6 by construction, 1/64 if all were alike
			if 10*times > all {
				t.Errorf("%s: expert %d takes %d of %d choices", name, expert, times, all)
			}
		}
		if len(chosen) < f.Config.Experts*9/10 {
			t.Errorf("%s: only %d of %d experts are used", name, len(chosen), f.Config.Experts)
		}
	}
}
