package disk

import (
	"context"
	"maps"
	"slices"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"cedrun/runtime/kv"
)

// Whatever callers, the disk and kill -9 do, in any order: what is read is what was written, the budget holds, and without
// faults everything accepted is there until it is evicted.
func TestAnyHistoryServesOnlyWhatWasWritten(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		d := open(r, rapid.IntRange(1, 40).Draw(r, "budget"))
		d.opt.Queue = rapid.IntRange(1, 30).Draw(r, "queue")
		d.reopen()
		sound := true // nothing has been lost by a fault
		accepted := map[Hash]Page{}
		ctx := context.Background()

		sequence := func() []Page { // of a tree with few branches, so that histories meet
			keys := make([]int32, kv.PageTokens*rapid.IntRange(1, 6).Draw(r, "pages"))
			for i := 0; i < len(keys); i += kv.PageTokens {
				keys[i] = rapid.Int32Range(-1, 1).Draw(r, "branch")
			}
			return Chain(rapid.SampledFrom([]string{"", "a"}).Draw(r, "salt"), keys, func(int32) [32]byte { return [32]byte{7} })
		}
		quiet := func() { // a disk without faults
			d.fs.mu.Lock()
			d.fs.writeErr, d.fs.readErr, d.fs.short, d.fs.room = nil, nil, false, -1
			d.fs.mu.Unlock()
		}
		fault := func(set func()) {
			if rapid.IntRange(0, 3).Draw(r, "fault") == 0 {
				sound = false
				d.fs.mu.Lock()
				set()
				d.fs.mu.Unlock()
			}
		}
		var hits []*Hit
		flush := func() {
			for _, h := range hits {
				h.Release()
			}
			hits = nil
			d.flush()
		}
		r.Repeat(map[string]func(*rapid.T){
			"write": func(r *rapid.T) {
				fromExact := rapid.IntRange(0, 6).Draw(r, "exact")
				for i, p := range sequence() {
					p.Exact = i < fromExact
					if d.Write(p, content(p)) {
						if was, ok := accepted[p.Hash]; ok && was.Exact {
							p.Exact = true
						}
						accepted[p.Hash] = p
					}
				}
			},
			"read": func(r *rapid.T) {
				for _, p := range sequence() {
					p.Exact = rapid.Bool().Draw(r, "exact")
					if d.get(p) != nil {
						if was, ok := accepted[p.Hash]; !ok || p.Exact && !was.Exact {
							r.Fatal("a page was read that was never accepted")
						}
					}
				}
			},
			"find": func(r *rapid.T) {
				pages, exact := sequence(), rapid.Bool().Draw(r, "exact")
				h := d.Find(pages, exact)
				hits = append(hits, h)
				for _, p := range pages[:h.Len()] {
					p.Exact = exact
					if d.get(p) == nil && sound {
						r.Fatal("a page of a hit cannot be read")
					}
				}
			},
			"flush": func(r *rapid.T) {
				flush()
				if d.Stats().Evicted > 0 || d.Stats().Dropped > 0 {
					sound = false
				}
				for _, p := range accepted {
					if sound && d.get(p) == nil {
						r.Fatal("a page was lost")
					}
				}
			},
			"reopen": func(r *rapid.T) {
				hits = nil
				quiet()
				_ = d.Close()
				if d.stats.Evicted > 0 || d.stats.Dropped > 0 {
					sound = false
				}
				d.open()
				d.check()
			},
			"kill": func(r *rapid.T) {
				hits = nil
				sound = false // what was queued may be missing
				left := rapid.Int64Range(0, 4*pageBytes).Draw(r, "bytes")
				d.fs.mu.Lock()
				d.fs.alive = left
				d.fs.mu.Unlock()
				for _, p := range sequence() {
					if d.Write(p, content(p)) && !accepted[p.Hash].Exact {
						accepted[p.Hash] = p
					}
				}
				_ = d.Flush(ctx)
				quiet()
				d.kill()
				d.check()
			},
			"budget": func(r *rapid.T) {
				hits = nil
				sound = false
				quiet()
				d.opt.MaxBytes = bytesFor(rapid.IntRange(1, 40).Draw(r, "budget"))
				d.reopen()
				d.check()
			},
			"full": func(r *rapid.T) {
				room := rapid.Int64Range(0, 5000).Draw(r, "room")
				fault(func() { d.fs.room = room })
			},
			"write error": func(r *rapid.T) { fault(func() { d.fs.writeErr = syscall.EIO }) },
			"read error":  func(r *rapid.T) { fault(func() { d.fs.readErr = syscall.EIO }) },
			"short write": func(r *rapid.T) { fault(func() { d.fs.short = true }) },
			"mend": func(r *rapid.T) {
				quiet()
				flush()
				d.mu.Lock()
				d.time = d.time.Add(2 * lastPause)
				d.mu.Unlock()
			},
			"flip": func(r *rapid.T) {
				at, bit := rapid.Float64Range(0, 0.999).Draw(r, "place"), rapid.IntRange(0, 7).Draw(r, "bit")
				fault(func() {
					for _, name := range slices.Sorted(maps.Keys(d.fs.files)) {
						if f := d.fs.files[name]; len(f.b) > segmentHeader {
							f.b[segmentHeader+int(at*float64(len(f.b)-segmentHeader))] ^= 1 << bit
						}
					}
				})
			},
		})
	})
}
