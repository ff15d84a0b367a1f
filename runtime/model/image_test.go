package model

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
	"cedrun/runtime/kv"
)

// someIDs are n random tokens.
func someIDs(m *Model, n int, seed uint64) []int32 {
	r := rand.New(rand.NewPCG(seed, 1))
	v := make([]int32, n)
	for i := range v {
		v[i] = int32(r.IntN(m.cfg.VocabSize-3)) + 3
	}
	return v
}

// feedTo feeds a sequence up to the end of prompt in chunks, then the forced tokens one by one. It returns the logits of
// the prompt's last token and of each forced one.
func feedTo(t *testing.T, m *Model, q *Sequence, prompt, forced []int32, chunk int) [][]float32 {
	t.Helper()
	var rows [][]float32
	step := func(tokens []int32, logits int) {
		at, n, err := m.Forward([]Span{{q, tokens, logits}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			rows = append(rows, logitsRow(t, m, at, i))
		}
	}
	for q.TailLeft() > 0 {
		if err := m.RunTail(q, chunk); err != nil {
			t.Fatal(err)
		}
	}
	for q.Pos() < len(prompt) {
		step(prompt[q.Pos():min(q.Pos()+chunk, len(prompt))], len(prompt)-1)
	}
	for _, id := range forced {
		step([]int32{id}, q.Pos())
	}
	return rows
}

// logitsRow is row i of a step's logits.
func logitsRow(t *testing.T, m *Model, at ced.Addr, i int) []float32 {
	t.Helper()
	row := make([]float32, m.cfg.VocabSize)
	if err := m.s.Download(unsafe.Slice((*byte)(unsafe.Pointer(&row[0])), 4*len(row)), at+ced.Addr(4*i*len(row))); err != nil {
		t.Fatal(err)
	}
	return row
}

// adopt starts a sequence of a prefix that q's pages hold.
func adopt(t *testing.T, m *Model, donor *Sequence, mode Prefill, prompt, reserve int, x Prefix) *Sequence {
	t.Helper()
	hit := len(x.Tokens)
	x.Pages = donor.Pages()[:kv.PagesFor(hit)]
	for _, p := range x.Pages[:hit/kv.PageTokens] {
		if err := m.pool.Hold(p); err != nil {
			t.Fatal(err)
		}
	}
	q, err := m.Adopt(mode, prompt, x)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Reserve(q, reserve); err != nil {
		t.Fatal(err)
	}
	return q
}

func release(t *testing.T, m *Model, qs ...*Sequence) {
	t.Helper()
	for _, q := range qs {
		if err := m.Release(q); err != nil {
			t.Fatal(err)
		}
	}
}

func pageBytes(t *testing.T, m *Model, pages []kv.Page) [][]byte {
	t.Helper()
	var out [][]byte
	for _, p := range pages {
		b := make([]byte, m.layout.PageBytes)
		if err := m.s.Download(b, m.page(p)); err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

var hitLengths = []int{1, 2, 7, 63, 64, 65, 127, 128, 129, 255, 256, 257}

// Whatever the prefill mode, chunks and the place of the image, a sequence that begins with another's pages has the bits
// of a cold one: from the deepest image, or, without any, from rows that are run again.
func TestASequenceThatBeginsWithPagesEqualsAColdOne(t *testing.T) {
	for dir, hits := range map[string][]int{
		"mini/base": hitLengths, "mini/edge": hitLengths, "mini/wide": {1, 64, 129}, "mini/sched40": {65}, "demo": {63, 128, 257},
	} {
		t.Run(dir, func(t *testing.T) {
			const chunk = 70
			m := openModel(t, dir, checkpoint.Options{}, Options{Slots: 3, Context: 512, StepRows: chunk, Tails: true})
			ids := someIDs(m, 300, 1)
			for _, mode := range []Prefill{Exact, Cone, Replay} {
				for k, hit := range hits {
					more := []int{1, 20, 90}[k%3]
					prompt := slices.Concat(ids[:hit], someIDs(m, more, 2))
					forced := someIDs(m, 4, 3)
					end := len(prompt) + len(forced)
					cold := sequence(t, m, mode, len(prompt), end)
					want := feedTo(t, m, cold, prompt, forced, chunk)
					for _, at := range []int{-1, hit, hit - 1, max(1, hit-9)} { // of the image
						if at == 0 {
							continue
						}
						first := at
						if at < 0 {
							first = hit / 2
						}
						donor := sequence(t, m, mode, max(first, 1), 400)
						feedTo(t, m, donor, ids[:max(first, 1)], nil, chunk)
						x := Prefix{Tokens: ids[:hit], Exact: hit}
						if at > 0 {
							i, err := m.Save(donor, nil)
							if err != nil {
								t.Fatal(err)
							}
							if x.Image = i; !m.Continues(i, mode, len(prompt)) {
								if mode == Exact || mode == Replay && hit-at == 0 && more > 1 && at > m.cfg.Window {
									t.Errorf("%s: an image at %d does not continue to %d", mode, at, len(prompt))
								}
								release(t, m, donor)
								continue
							}
						}
						feedTo(t, m, donor, ids[:hit], ids[hit:hit+1], chunk) // and into the page that is copied
						before := pageBytes(t, m, donor.Pages())
						q := adopt(t, m, donor, mode, len(prompt), end, x)
						if at > 0 && q.Pos() != at || at < 0 && q.Pos() != m.RestartAt(mode, len(prompt), hit) {
							t.Errorf("%s: begins at %d", mode, q.Pos())
						}
						got := feedTo(t, m, q, prompt, forced, chunk-7)
						for i := range want {
							if !slices.Equal(got[i], want[i]) {
								t.Fatalf("%s, hit of %d tokens, image at %d, prompt of %d: logits %d differ from a cold run's", mode, hit, at, len(prompt), i)
							}
						}
						if why := samePages(m, q, pageBytes(t, m, q.Pages()), pageBytes(t, m, cold.Pages())); why != "" {
							t.Fatalf("%s, hit of %d tokens, image at %d: %s", mode, hit, at, why)
						}
						for i, b := range pageBytes(t, m, donor.Pages()) {
							if !slices.Equal(b, before[i]) {
								t.Fatalf("hit of %d tokens: page %d of the other sequence was written", hit, i)
							}
						}
						if q.Exact() != end {
							t.Errorf("%d of %d tokens are exact", q.Exact(), end)
						}
						release(t, m, q, donor)
					}
					release(t, m, cold)
				}
			}
			if m.pool.Free() != m.pool.Pages() {
				t.Errorf("%d of %d pages are free", m.pool.Free(), m.pool.Pages())
			}
		})
	}
}

// samePages compares the rows that a sequence's tokens have.
func samePages(m *Model, q *Sequence, got, want [][]byte) string {
	for i := range got {
		for _, o := range m.layout.Owners {
			rows := min(o.PageRows, max(0, (q.Pos()-i*kv.PageTokens)/o.Ratio))
			for _, p := range [][2]int{
				{o.MainCodes, m.layout.HeadDim / 2}, {o.MainScales, m.layout.HeadDim / 16}, {o.IndexCodes, m.layout.IndexDim / 2}, {o.IndexScales, m.layout.IndexDim / 32},
			} {
				if !slices.Equal(got[i][p[0]:p[0]+rows*p[1]], want[i][p[0]:p[0]+rows*p[1]]) {
					return fmt.Sprintf("page %d, layer %d: rows differ", i, o.Layer)
				}
			}
		}
	}
	return ""
}

// Bounded replay after a prefix of pages has the bits of a sequence that processed exactly the prefix and was rewound,
// and rewrites nothing. That one is compared with the reference by conformance.
func TestReplayAfterPagesEqualsARewoundSequence(t *testing.T) {
	for dir, hits := range map[string][]int{
		"mini/base": hitLengths, "mini/edge": hitLengths, "mini/wide": {65, 257}, "demo": {128, 129, 256},
	} {
		t.Run(dir, func(t *testing.T) {
			const chunk = 70
			m := openModel(t, dir, checkpoint.Options{}, Options{Slots: 3, Context: 512, StepRows: chunk})
			ids := someIDs(m, 300, 1)
			for _, mode := range []Prefill{Exact, Replay} {
				for k, hit := range hits {
					if hit < m.ReplayFrom() {
						continue
					}
					prompt := slices.Concat(ids[:hit], someIDs(m, []int{1, 20, 90}[k%3], 2))
					forced := someIDs(m, 4, 3)
					end := len(prompt) + len(forced)
					rewound := sequence(t, m, Exact, hit, end)
					feedTo(t, m, rewound, ids[:hit], nil, chunk)
					if err := m.Rewind(rewound, mode, len(prompt)); err != nil {
						t.Fatal(err)
					}
					want := feedTo(t, m, rewound, prompt, forced, chunk)

					donor := sequence(t, m, Exact, 280, 280)
					feedTo(t, m, donor, ids[:280], nil, chunk)
					before := pageBytes(t, m, donor.Pages())
					q := adopt(t, m, donor, mode, len(prompt), end, Prefix{Tokens: ids[:hit], Exact: hit, Replay: true})
					if q.Pos() != hit-m.cfg.Window {
						t.Errorf("replay of %d tokens begins at %d", hit, q.Pos())
					}
					got := feedTo(t, m, q, prompt, forced, chunk-7)
					for i := range want {
						if !slices.Equal(got[i], want[i]) {
							t.Fatalf("%s, hit of %d tokens, prompt of %d: logits %d differ", mode, hit, len(prompt), i)
						}
					}
					if why := samePages(m, q, pageBytes(t, m, q.Pages()), pageBytes(t, m, rewound.Pages())); why != "" {
						t.Fatalf("hit of %d tokens: %s", hit, why)
					}
					for i, b := range pageBytes(t, m, donor.Pages()) {
						if !slices.Equal(b, before[i]) {
							t.Fatalf("hit of %d tokens: page %d of the other sequence was written", hit, i)
						}
					}
					if q.Exact() != hit {
						t.Errorf("%d tokens are exact, want %d", q.Exact(), hit)
					}
					if i, err := m.Save(q, nil); i != nil || err != nil {
						t.Errorf("an image of a replayed sequence: %v", err)
					}
					release(t, m, q, donor, rewound)
				}
			}
		})
	}
}
