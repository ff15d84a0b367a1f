package checkpoint

import (
	"testing"

	"cedrun/runtime/config"
)

func TestShardsHaveTheReleasedSizes(t *testing.T) {
	cfg, err := config.Load("../../testdata/release/config.json")
	if err != nil {
		t.Fatal(err)
	}
	shards, err := Layout(cfg)
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
		if s.Size != want[i+1] {
			t.Errorf("%s: %d bytes, want %d", s.Name, s.Size, want[i+1])
		}
		total += s.Size
	}
	if total != 510296708312 {
		t.Errorf("%d bytes in all, want 510296708312", total)
	}
}
