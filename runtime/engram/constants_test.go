package engram

import (
	"slices"
	"strings"
	"testing"
)

// releaseParams are the values of the released configuration.
var releaseParams = Params{Layers: []int{1, 14}, MaxNgram: 4, Bucket: 16_000_000, Heads: 8, Classes: 99092, PadToken: 2}

func TestReleaseConstants(t *testing.T) {
	layers, err := Derive(releaseParams)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		id          int
		multipliers []int64
		primes      string // minus 16,000,000
		rows        int64
	}{
		{1, []int64{76632096046245, 4839876093313, 35959672319349, 73987337458391},
			"57 79 81 97 121 129 133 183 189 207 211 253 277 289 307 321 339 381 393 399 403 409 447 463", 384_006_168},
		{14, []int64{67716810739261, 51510806800915, 30921347202721, 82619226485591},
			"477 487 499 507 511 573 609 627 667 669 693 697 711 729 759 769 781 799 813 819 841 877 879 889", 384_016_682},
	} {
		l := layers[i]
		if l.ID != want.id || !slices.Equal(l.Multipliers, want.multipliers) || l.Rows != want.rows {
			t.Errorf("layer %d: multipliers %v, %d rows; want %v, %d", l.ID, l.Multipliers, l.Rows, want.multipliers, want.rows)
		}
		offset := int64(0)
		for c, tail := range strings.Fields(want.primes) {
			prime := int64(16_000_000)
			for _, digit := range []byte(tail) {
				prime += int64(digit-'0') * map[int]int64{3: 100, 2: 10, 1: 1}[len(tail)]
				tail = tail[1:]
			}
			if l.Primes[c] != prime || l.Offsets[c] != offset {
				t.Errorf("layer %d column %d: prime %d at %d, want %d at %d", l.ID, c, l.Primes[c], l.Offsets[c], prime, offset)
			}
			offset += prime
		}
	}
}

// What numpy 2.4.6 draws: default_rng(seed).integers(0, bound, size=8, dtype=int64).
func TestGeneratorEqualsNumpy(t *testing.T) {
	for _, c := range []struct {
		seed, bound uint64
		want        []uint64
	}{
		{12345678901234, 1<<62 + 1, []uint64{1874085759403608545, 120842607007988073, 149614681391036371, 2984612610411012374,
			2115555839217122970, 3356044229879338805, 4561784036766460591, 1108105770361074299}},
		{5, 1<<62 + 1<<61 + 7, []uint64{5568631092344608292, 5588953865617455553, 3564779527194444075, 1977039342899601838,
			373067199206180441, 2651965361128095992, 2825625255506439532, 313192468052243501}},
		{1<<63 - 1, 1<<33 + 1, []uint64{1507242531, 4036656378, 7087017682, 2619351400, 4090237634, 6907231068, 4963447587, 6489089951}},
		{0, 1, []uint64{0, 0}},
	} {
		g := newPCG64(c.seed)
		for i, want := range c.want {
			if got := g.below(c.bound); got != want {
				t.Errorf("seed %d, bound %d, draw %d: %d, want %d", c.seed, c.bound, i, got, want)
			}
		}
	}
}

func TestBadParamsAreRefused(t *testing.T) {
	for _, c := range []struct {
		change func(p *Params)
		want   string
	}{
		{func(p *Params) { p.Layers = nil }, "no layers"},
		{func(p *Params) { p.Layers = []int{3, 3} }, "layer 3 appears twice"},
		{func(p *Params) { p.Layers = []int{-1} }, "layer -1"},
		{func(p *Params) { p.MaxNgram = 1 }, "n-gram order is 1"},
		{func(p *Params) { p.Bucket = 0 }, "bucket size is 0"},
		{func(p *Params) { p.Heads = 1 << 20 }, "number of heads"},
		{func(p *Params) { p.Classes = 0 }, "compressed ids is 0"},
	} {
		p := releaseParams
		c.change(&p)
		if _, err := Derive(p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want one with %q", err, c.want)
		}
	}
}
