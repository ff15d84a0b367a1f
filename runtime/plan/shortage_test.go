package plan

import (
	"strings"
	"testing"
)

func TestShortageCountsWhatATokenReadsFromDisk(t *testing.T) {
	c := released(t)
	w := CountWeights(c)
	s := filled(t, c, Setup{Context: 8192})
	need := Place(c, w, s, 2, 0).Need()
	for _, tc := range []struct {
		name string
		have int64
		want []string // nil: nothing to say
	}{
		{"unknown", 0, nil},
		{"all fits", need + w.Experts, nil},
		// A token uses 6 of 384 experts in each of 40 layers: 4.5 GB.
		{"half of the experts", need + w.Experts/2, []string{"leaves room for 144 GB of 289 GB of experts (50 %)", "about 2.3 GB of weights from disk, 0.75 s at 3 GB/s"}},
		{"no experts", need, []string{"room for 0 kB of 289 GB", "about 4.5 GB of weights from disk, 1.5 s"}},
		{"less than every token reads", need - 2e9, []string{"but buffers and what every token reads take", "about 6.5 GB of weights from disk, 2.2 s"}},
	} {
		got := Place(c, w, s, 2, tc.have).Shortage(c)
		if (got == "") != (tc.want == nil) {
			t.Errorf("%s: %q", tc.name, got)
		}
		for _, part := range tc.want {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %q lacks %q", tc.name, got, part)
			}
		}
	}
}

func TestPromptsOfAModelOnDiskComeInLargeChunks(t *testing.T) {
	c := released(t)
	w := CountWeights(c)
	need := Place(c, w, filled(t, c, Setup{}), 2, 0).Need()
	for _, tc := range []struct {
		name  string
		setup Setup
		have  int64
		want  int
	}{
		{"unknown", Setup{}, 0, 256},
		{"all fits", Setup{}, need + w.Experts, 256},
		{"experts do not fit", Setup{}, need + w.Experts/2, DiskChunk},
		{"short context", Setup{Context: 500}, need + w.Experts/2, 500},
		{"no room for the buffers", Setup{}, need + 1e8, 256},
		{"as asked", Setup{Chunk: 64}, need + w.Experts/2, 64},
	} {
		s, err := tc.setup.FillFor(c, w, 2, tc.have)
		if err != nil || s.Chunk != tc.want {
			t.Errorf("%s: chunks of %d, want %d; error %v", tc.name, s.Chunk, tc.want, err)
		}
	}
}
