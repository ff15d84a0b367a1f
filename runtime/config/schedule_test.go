package config

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// span describes layers first..last that differ only in their number.
type span struct {
	first, last  int
	ratio        int
	mode         Mode
	kv, index    int // sources; self for the layer itself
	key          int
	flags        string // K owns KV, I owns index, C candidate source, R restricted, D decoder, T tail
	engramBefore int    // entry of Engram.Layers, -1
	ropeIsYarn   bool
}

const self = -2

func TestScheduleOfRelease(t *testing.T) {
	// Spec model.md section 1.2, row by row.
	testSchedule(t, releasePath, release())
}

func release() []span {
	spans := []span{
		{first: 0, last: 0, mode: SWA, kv: -1, index: -1, key: -1, engramBefore: -1},
		{first: 1, last: 1, mode: SWA, kv: -1, index: -1, key: -1, engramBefore: 0},
	}
	for i, s := range []int{2, 8, 14} {
		e := -1
		if i == 2 {
			e = 1
		}
		spans = append(spans,
			span{first: s, last: s, ratio: 2, mode: Full, kv: self, index: self, key: self, flags: "KI", engramBefore: e, ropeIsYarn: true},
			span{first: s + 1, last: s + 5, ratio: 2, mode: Reuse, kv: s, index: s, key: -1, engramBefore: -1, ropeIsYarn: true})
	}
	spans = append(spans,
		span{first: 20, last: 20, ratio: 1, mode: Full, kv: self, index: self, key: self, flags: "KICD", engramBefore: -1, ropeIsYarn: true},
		span{first: 21, last: 23, ratio: 1, mode: Reuse, kv: 20, index: 20, key: -1, flags: "DT", engramBefore: -1, ropeIsYarn: true})
	for _, s := range []int{24, 28, 32, 36} {
		spans = append(spans,
			span{first: s, last: s, ratio: 1, mode: Reindex, kv: 20, index: self, key: 20, flags: "IRDT", engramBefore: -1, ropeIsYarn: true},
			span{first: s + 1, last: s + 3, ratio: 1, mode: Reuse, kv: 20, index: s, key: -1, flags: "DT", engramBefore: -1, ropeIsYarn: true})
	}
	return spans
}

func TestScheduleOfMinis(t *testing.T) {
	small := []span{
		{first: 0, last: 0, mode: SWA, kv: -1, index: -1, key: -1, engramBefore: 0},
		{first: 1, last: 1, ratio: 2, mode: Full, kv: self, index: self, key: self, flags: "KI", engramBefore: -1, ropeIsYarn: true},
		{first: 2, last: 2, ratio: 2, mode: Reuse, kv: 1, index: 1, key: -1, engramBefore: -1, ropeIsYarn: true},
		{first: 3, last: 3, ratio: 2, mode: Full, kv: self, index: self, key: self, flags: "KI", engramBefore: 1, ropeIsYarn: true},
		{first: 4, last: 4, ratio: 2, mode: Reuse, kv: 3, index: 3, key: -1, engramBefore: -1, ropeIsYarn: true},
		{first: 5, last: 5, ratio: 1, mode: Full, kv: self, index: self, key: self, flags: "KICD", engramBefore: -1, ropeIsYarn: true},
		{first: 6, last: 6, ratio: 1, mode: Reuse, kv: 5, index: 5, key: -1, flags: "DT", engramBefore: -1, ropeIsYarn: true},
		{first: 7, last: 7, ratio: 1, mode: Reindex, kv: 5, index: self, key: 5, flags: "IRDT", engramBefore: -1, ropeIsYarn: true},
		{first: 8, last: 8, ratio: 1, mode: Reuse, kv: 5, index: 7, key: -1, flags: "DT", engramBefore: -1, ropeIsYarn: true},
	}
	for _, name := range []string{"base", "calm", "vl", "wide"} {
		t.Run(name, func(t *testing.T) { testSchedule(t, mini(name), small) })
	}
	t.Run("sched40", func(t *testing.T) { testSchedule(t, mini("sched40"), release()) })
}

func testSchedule(t *testing.T, path string, spans []span) {
	t.Helper()
	var want []Layer
	for _, s := range spans {
		for i := s.first; i <= s.last; i++ {
			l := Layer{Index: i, Ratio: s.ratio, Mode: s.mode, KVSource: s.kv, IndexSource: s.index, KeySource: s.key, Engram: s.engramBefore}
			for _, p := range []*int{&l.KVSource, &l.IndexSource, &l.KeySource} {
				if *p == self {
					*p = i
				}
			}
			for _, f := range s.flags {
				*map[rune]*bool{
					'K': &l.OwnsKV, 'I': &l.OwnsIndex, 'C': &l.CandidateSource, 'R': &l.Restricted, 'D': &l.Decoder, 'T': &l.Tail,
				}[f] = true
			}
			if l.CompressedRope() != s.ropeIsYarn {
				t.Errorf("layer %d: CompressedRope = %v", i, l.CompressedRope())
			}
			want = append(want, l)
		}
	}
	if diff := cmp.Diff(want, load(t, path).Schedule()); diff != "" {
		t.Error(diff)
	}
}

func TestRopeFrequenciesOfRelease(t *testing.T) {
	c := load(t, releasePath)
	for _, tt := range []struct {
		compressed bool
		i          int
		want       float64
	}{
		{true, 0, 1}, {true, 1, 0.687656045}, {true, 8, 0.0500000007}, {true, 15, 0.00363553851},
		{true, 16, 0.00226562493}, {true, 20, 2.96977785e-4}, {true, 24, 1.95312532e-5},
		{true, 25, 5.37231244e-6}, {true, 31, 5.68052940e-7},
		{false, 0, 1}, {false, 1, 0.7498942}, {false, 31, 1.3335215e-4},
	} {
		got := c.RopeFreqs(tt.compressed)[tt.i]
		// The known answers carry 7 to 9 digits.
		if math.Abs(float64(got)-tt.want) > 1e-7*tt.want/2 {
			t.Errorf("compressed %v, i %d: %.9g, want %.9g", tt.compressed, tt.i, got, tt.want)
		}
	}
}
