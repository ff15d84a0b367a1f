package disk

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"cedrun/runtime/kv"
)

func TestManyCallersAtOnce(t *testing.T) {
	s, err := Open(context.Background(), Options{Dir: t.TempDir(), MaxBytes: bytesFor(30), PageBytes: pageBytes, Queue: 8})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(worker)))
			b := make([]byte, pageBytes)
			for range 60 {
				pages := chain(fmt.Sprint(r.IntN(8)), 1+r.IntN(16))
				for i := range pages {
					pages[i].Exact = r.IntN(4) > 0
					s.Write(pages[i], content(pages[i]))
				}
				if r.IntN(4) == 0 {
					if err := s.Flush(context.Background()); err != nil {
						t.Error(err)
					}
				}
				h := s.Find(pages, false)
				for _, p := range pages[:h.Len()] {
					p.Exact = false
					exact, err := s.Read(context.Background(), p, b)
					if p.Exact = exact; err != nil || !bytes.Equal(b, content(p)) {
						t.Errorf("a page of a hit: %v", err)
					}
				}
				if st := s.Stats(); st.Bytes > st.MaxBytes {
					t.Errorf("%+v", st)
				}
				h.Release()
			}
		})
	}
	wg.Wait()
	st := s.Stats()
	if st.Written == 0 || st.Evicted == 0 || st.Reads == 0 || st.Corrupt+st.ReadErrors+st.WriteErrors > 0 {
		t.Errorf("%+v", st)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkMillionTokens: a store of the release's pages for a million tokens. open is a restart, write and read are a
// prefix's pages in order, from memory if that is large enough.
func BenchmarkMillionTokens(b *testing.B) {
	layout := kv.NewLayout(512, 128, []int{2, 8, 14, 20}, []int{2, 2, 2, 1})
	const pages = 1_000_000 / kv.PageTokens
	opt := Options{Dir: b.TempDir(), MaxBytes: 2 << 30, PageBytes: layout.PageBytes}
	ctx := context.Background()
	start := func() *Store {
		s, err := Open(ctx, opt)
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	long := chain("a", pages)
	page := make([]byte, layout.PageBytes)
	s := start()
	for i := range long {
		for !s.Write(long[i], page) {
			if err := s.Flush(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			s := start()
			if n := s.Stats().Pages; n != pages {
				b.Fatalf("%d pages", n)
			}
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
	s = start()
	b.Run("find", func(b *testing.B) {
		for b.Loop() {
			s.Find(long, true).Release()
		}
	})
	b.Run("read", func(b *testing.B) {
		b.SetBytes(int64(len(page)))
		for i := range b.N {
			if _, err := s.Read(ctx, long[i%pages], page); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("write", func(b *testing.B) {
		const run = 256
		b.SetBytes(run * int64(len(page)))
		n := 0
		for b.Loop() {
			for _, p := range chain(fmt.Sprint("b", n), run) {
				s.Write(p, page)
			}
			if err := s.Flush(ctx); err != nil {
				b.Fatal(err)
			}
			n++
		}
	})
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}
