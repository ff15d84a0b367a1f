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
		{"half of the experts", need + w.Experts/2, []string{"leaves room for 144 GB of 289 GB of experts (50 %)", "about 2.3 GB from disk, 0.75 s at 3 GB/s"}},
		{"no experts", need, []string{"room for 0 kB of 289 GB", "about 4.5 GB from disk, 1.5 s"}},
		{"less than every token reads", need - 2e9, []string{"but buffers and what every token reads take", "about 6.5 GB from disk, 2.2 s"}},
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
