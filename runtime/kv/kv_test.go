package kv

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func TestReleasedPageTakes890BytesAToken(t *testing.T) {
	l := NewLayout(512, 128, []int{2, 8, 14, 20}, []int{2, 2, 2, 1})
	if want := 890 * PageTokens; l.PageBytes != want || want != 56960 {
		t.Fatalf("page of %d bytes, want 56960", l.PageBytes)
	}
	for _, o := range l.Owners {
		for _, at := range []int{o.MainCodes, o.MainScales, o.IndexCodes, o.IndexScales} {
			if at%16 != 0 {
				t.Errorf("layer %d: plane at %d is not 16-byte aligned", o.Layer, at)
			}
		}
	}
}

func TestPlanesNeverOverlapInSmallGeometries(t *testing.T) {
	l := NewLayout(64, 64, []int{1, 3, 5}, []int{2, 2, 1})
	end := 0
	for _, o := range l.Owners {
		for _, p := range [][2]int{{o.MainCodes, 32}, {o.MainScales, 4}, {o.IndexCodes, 32}, {o.IndexScales, 2}} {
			if p[0] < end {
				t.Fatalf("layer %d: plane at %d starts before %d", o.Layer, p[0], end)
			}
			end = p[0] + p[1]*o.PageRows
		}
	}
	if end > l.PageBytes {
		t.Fatalf("planes end at %d, page at %d", end, l.PageBytes)
	}
}

func TestPoolConservesPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := NewPool(rapid.IntRange(0, 20).Draw(t, "pages"))
		refs := map[Page]int{}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				n := rapid.IntRange(0, 8).Draw(t, "n")
				free := p.Free()
				got, err := p.Take(n)
				var full *FullError
				if n > free {
					if !errors.As(err, &full) || len(got) != 0 || p.Free() != free {
						t.Fatalf("took %d of %d free: %v", n, free, err)
					}
					return
				}
				for _, g := range got {
					if refs[g] != 0 {
						t.Fatalf("page %d handed out twice", g)
					}
					refs[g] = 1
				}
			},
			"hold or release": func(t *rapid.T) {
				for g, n := range refs {
					if n == 0 {
						continue
					}
					if rapid.Bool().Draw(t, "hold") {
						_ = p.Hold(g)
						refs[g]++
					} else {
						if err := p.Release([]Page{g}); err != nil {
							t.Fatal(err)
						}
						refs[g]--
					}
					return
				}
			},
			"": func(t *rapid.T) {
				held := 0
				for _, n := range refs {
					if n > 0 {
						held++
					}
				}
				if held+p.Free() != p.Pages() {
					t.Fatalf("%d held + %d free, pool of %d", held, p.Free(), p.Pages())
				}
			},
		})
	})
}

func TestReleasingAFreePageIsAnError(t *testing.T) {
	p := NewPool(1)
	if p.Release([]Page{0}) == nil || p.Hold(0) == nil {
		t.Fatal("a free page was held or released")
	}
}
