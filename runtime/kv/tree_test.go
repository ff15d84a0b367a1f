package kv

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// forest is a tree of a pool with the sequences that use it, as an engine drives them.
type forest struct {
	pool *Pool
	tree *Tree
	rows map[Page][]int32 // what a page's rows hold: the keys of the tokens up to each
	live []*sequence
}

type sequence struct {
	salt   string
	tokens []int32
	pages  []Page
}

// start begins a sequence on what the tree has, and says how much.
func (f *forest) start(t *rapid.T, salt string, tokens []int32) (hit int, ok bool) {
	m := f.tree.Find(salt, tokens)
	m.Cut(len(tokens) - 1)
	for i, p := range m.Pages() {
		keys := tokens[i*PageTokens : min((i+1)*PageTokens, m.Tokens)]
		if p == NoPage {
			t.Fatal("a page is not in memory")
		}
		if have := f.rows[p]; len(have) < len(keys) || !slices.Equal(have[:len(keys)], keys) {
			t.Fatalf("page %d of a match holds %v, want %v", p, have, keys)
		}
	}
	full := m.Tokens / PageTokens
	s := &sequence{salt: salt, tokens: tokens, pages: slices.Clone(m.Pages()[:full])}
	held := slices.Clone(m.Pages())
	for _, p := range held {
		if err := f.pool.Hold(p); err != nil {
			t.Fatal(err)
		}
	}
	want := PagesFor(len(tokens)) - full
	f.tree.Evict(want - f.pool.Free())
	own, err := f.pool.Take(want)
	if err != nil {
		if err := f.pool.Release(held); err != nil {
			t.Fatal(err)
		}
		return 0, false
	}
	if err := f.pool.Release(held[full:]); err != nil {
		t.Fatal(err)
	}
	for i, p := range own {
		at := (full + i) * PageTokens
		f.rows[p] = slices.Clone(tokens[at:min(at+PageTokens, len(tokens))])
	}
	s.pages = append(s.pages, own...)
	f.live = append(f.live, s)
	return m.Tokens, true
}

// Whatever sequences come and go: a match holds the rows of its tokens, pages are conserved, and those that a sequence
// uses are never given away.
func TestMatchesHoldTheRowsOfTheirTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &forest{pool: NewPool(rapid.IntRange(4, 24).Draw(t, "pages")), rows: map[Page][]int32{}}
		f.tree = NewTree(f.pool)
		prompt := func(t *rapid.T) []int32 { // of few beginnings, so that they meet
			n := rapid.IntRange(1, 3*PageTokens+5).Draw(t, "n")
			tokens := make([]int32, n)
			for range rapid.IntRange(0, 2).Draw(t, "forks") {
				at := rapid.SampledFrom([]int{0, 1, 63, 64, 65, 100, 127, 128, 130}).Draw(t, "at")
				for i := at; i < n; i++ {
					tokens[i]++
				}
			}
			return tokens
		}
		t.Repeat(map[string]func(*rapid.T){
			"start": func(t *rapid.T) {
				f.start(t, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "salt"), prompt(t))
			},
			"store": func(t *rapid.T) {
				if len(f.live) == 0 {
					t.Skip()
				}
				s := f.live[rapid.IntRange(0, len(f.live)-1).Draw(t, "which")]
				n := rapid.IntRange(1, len(s.tokens)).Draw(t, "processed")
				f.tree.Insert(s.salt, s.tokens[:n], s.pages, n)
				if m := f.tree.Find(s.salt, s.tokens[:n]); m.Tokens != n || m.Exact != n {
					t.Fatalf("%d tokens stored, %d found, %d exact", n, m.Tokens, m.Exact)
				}
			},
			"end": func(t *rapid.T) {
				if len(f.live) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(f.live)-1).Draw(t, "which")
				if err := f.pool.Release(f.live[i].pages); err != nil {
					t.Fatal(err)
				}
				f.live = slices.Delete(f.live, i, i+1)
			},
			"evict": func(t *rapid.T) { f.tree.Evict(rapid.IntRange(0, 6).Draw(t, "n")) },
			"": func(t *rapid.T) {
				used := map[Page]int{}
				for _, s := range f.live {
					for _, p := range s.pages {
						used[p]++
					}
				}
				shared := 0
				for _, n := range used {
					if n > 1 {
						shared++
					}
				}
				if got := f.pool.Shared(); got != shared {
					t.Fatalf("%d pages are shared, the pool counts %d", shared, got)
				}
				if got := len(used) + f.pool.Idle() + f.pool.Free(); got != f.pool.Pages() {
					t.Fatalf("%d used + %d idle + %d free, pool of %d", len(used), f.pool.Idle(), f.pool.Free(), f.pool.Pages())
				}
			},
		})
		for _, s := range f.live {
			if err := f.pool.Release(s.pages); err != nil {
				t.Fatal(err)
			}
		}
		if f.tree.Evict(f.pool.Pages()); f.pool.Free() != f.pool.Pages() || f.tree.Pages() != 0 {
			t.Fatalf("%d of %d pages are free, the empty tree has %d", f.pool.Free(), f.pool.Pages(), f.tree.Pages())
		}
	})
}

// ramp is the tokens from, from+1, ...
func ramp(from, n int) []int32 {
	v := make([]int32, n)
	for i := range v {
		v[i] = int32(from + i)
	}
	return v
}

// stored is a tree that has the tokens of each prompt, of one salt, and nobody uses it.
func stored(t *testing.T, pages int, prompts ...[]int32) (*Pool, *Tree) {
	t.Helper()
	pool := NewPool(pages)
	tree := NewTree(pool)
	for _, p := range prompts {
		own, err := pool.Take(PagesFor(len(p)))
		if err != nil {
			t.Fatal(err)
		}
		tree.Insert("", p, own, len(p))
		if err := pool.Release(own); err != nil {
			t.Fatal(err)
		}
	}
	return pool, tree
}

func TestTheLongestBeginningIsFound(t *testing.T) {
	_, tree := stored(t, 16, ramp(0, 150), slices.Concat(ramp(0, 70), ramp(500, 30)), ramp(900, 10))
	for _, c := range []struct {
		prompt []int32
		want   int
		more   bool
		next   int32
	}{
		{nil, 0, false, 0}, {ramp(1, 9), 0, true, 0}, {ramp(0, 40), 40, true, 40}, {ramp(0, 64), 64, false, 0}, {ramp(0, 150), 150, false, 0}, {ramp(0, 200), 150, false, 0},
		{slices.Concat(ramp(0, 70), ramp(500, 50)), 100, false, 0}, {slices.Concat(ramp(0, 149), []int32{7}), 149, true, 149}, {ramp(900, 20), 10, false, 0},
	} {
		m := tree.Find("", c.prompt)
		if m.Tokens != c.want || m.Exact != c.want {
			t.Errorf("prompt of %d tokens: %d found, %d exact, want %d", len(c.prompt), m.Tokens, m.Exact, c.want)
		}
		if c.want%PageTokens != 0 && (len(m.Rest) > 0 != c.more || c.more && m.Rest[0] != c.next) {
			t.Errorf("prompt of %d tokens: goes on with %v, want %v %d", len(c.prompt), m.Rest, c.more, c.next)
		}
		if m := tree.Find("other", c.prompt); m.Tokens != 0 {
			t.Errorf("another salt finds %d tokens", m.Tokens)
		}
	}
}

func TestPagesUnusedForLongestGoFirst(t *testing.T) {
	old, recent := ramp(0, 128), ramp(1000, 128)
	pool, tree := stored(t, 4, old, recent)
	m := tree.Find("", old[:100])
	tree.Use(&m) // a beginning of it: its pages are used last
	if n := tree.Evict(2); n != 2 || pool.Free() != 2 {
		t.Fatalf("%d pages evicted, %d free", n, pool.Free())
	}
	if m := tree.Find("", recent); m.Tokens != 0 {
		t.Errorf("%d tokens of what was unused for longest are left", m.Tokens)
	}
	if m := tree.Find("", old); m.Tokens != 128 {
		t.Errorf("%d tokens of what was used last are left", m.Tokens)
	}
	if n := tree.Evict(1); n != 1 || tree.Find("", old).Tokens != 64 {
		t.Errorf("%d pages evicted, %d tokens are left: the end goes before the beginning", n, tree.Find("", old).Tokens)
	}
}

// Rows after a bounded replay are stored as such, give way to exact ones, and never replace them.
func TestProvenanceIsKept(t *testing.T) {
	prompt := ramp(0, 100)
	pool, tree := NewPool(8), (*Tree)(nil)
	tree = NewTree(pool)
	put := func(exact int) {
		own, err := pool.Take(2)
		if err != nil {
			t.Fatal(err)
		}
		tree.Insert("", prompt, own, exact)
		if err := pool.Release(own); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ put, want int }{{70, 70}, {64, 70}, {100, 100}, {0, 100}} {
		put(c.put)
		if m := tree.Find("", prompt); m.Tokens != 100 || m.Exact != c.want {
			t.Errorf("after one with %d exact: %d tokens, %d exact, want %d", c.put, m.Tokens, m.Exact, c.want)
		}
		if pool.Idle() != 2 {
			t.Errorf("%d pages for two", pool.Idle())
		}
	}
}

func TestImagesAreBoundByBytesAndTime(t *testing.T) {
	prompt := ramp(0, 200)
	pool, tree := stored(t, 8, prompt)
	tree.LimitImages(100, time.Minute)
	now := time.Unix(0, 0)
	any := func(*Image) bool { return true }
	deepest := func(n, from int) int {
		m := tree.Find("", prompt[:n])
		if i := tree.Deepest(&m, from, now, any); i != nil {
			return i.Pos
		}
		return 0
	}
	for _, n := range []int{50, 64, 130} {
		tree.Keep("", prompt[:n], n, 30, now)
	}
	if deepest(200, 0) != 130 || deepest(129, 0) != 64 || deepest(63, 0) != 50 || deepest(49, 0) != 0 || deepest(129, 65) != 0 {
		t.Error("not the deepest image")
	}
	now = now.Add(30 * time.Second)
	if deepest(60, 0) != 50 { // used last now
		t.Error("no image at 50")
	}
	tree.Keep("", prompt, 200, 40, now) // 130 bytes are too many
	if tree.ImageBytes() != 100 || deepest(60, 0) != 50 {
		t.Errorf("%d bytes of images, want 100", tree.ImageBytes())
	}
	now = now.Add(59 * time.Second)
	if deepest(199, 51) != 0 {
		t.Error("an image outlived its time")
	}
	if tree.Evict(8); tree.Images() != 0 || tree.ImageBytes() != 0 || pool.Free() != 8 {
		t.Errorf("%d images of pages that are gone", tree.Images())
	}
}

// An image is found by the tokens before it, whichever of the pages that begin alike it was kept with.
func TestAnImageWithinAPageIsFoundFromItsSiblings(t *testing.T) {
	first, second := slices.Concat(ramp(0, 80), ramp(500, 20)), slices.Concat(ramp(0, 80), ramp(700, 20))
	_, tree := stored(t, 8, first)
	tree.LimitImages(100, 0)
	now := time.Unix(0, 0)
	tree.Keep("", first[:80], "shared", 1, now)
	tree.Keep("", first[:90], "first", 1, now)
	pages, err := tree.pool.Take(2)
	if err != nil {
		t.Fatal(err)
	}
	tree.Insert("", second, pages, len(second))
	for _, c := range []struct {
		prompt []int32
		want   any
	}{
		{first, "first"}, {second, "shared"}, {second[:81], "shared"}, {slices.Concat(first[:85], ramp(900, 5)), "shared"}, {first[:79], nil},
	} {
		m := tree.Find("", c.prompt)
		var got any
		if i := tree.Deepest(&m, 0, now, func(*Image) bool { return true }); i != nil {
			got = i.Value
		}
		if got != c.want {
			t.Errorf("a prompt of %d tokens finds %v, want %v", len(c.prompt), got, c.want)
		}
	}
}

func TestPicturesDifferByTheirDigest(t *testing.T) {
	tree := NewTree(NewPool(1))
	a, b := tree.Picture([32]byte{1}), tree.Picture([32]byte{2})
	if a == b || a >= 0 || b >= 0 || tree.Picture([32]byte{1}) != a {
		t.Errorf("keys %d and %d", a, b)
	}
}
