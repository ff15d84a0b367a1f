package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"cedrun/runtime/kv"
)

func TestPagesSurviveARestart(t *testing.T) {
	d := open(t, 100)
	a, b := chain("a", 40), chain("b", 3)
	d.put(a...)
	d.put(b...)
	for name, restart := range map[string]func(){"closed": d.reopen, "killed": d.kill} {
		restart()
		d.check()
		if n := d.Stats().Pages; n != 43 {
			t.Errorf("%s: %d pages, want 43", name, n)
		}
		for _, pages := range [][]Page{a, b} {
			if n := d.hit(pages, true); n != len(pages) || len(d.there(pages)) != n {
				t.Errorf("%s: a hit of %d pages, want %d", name, n, len(pages))
			}
		}
	}
	d.quiet()
}

func TestAPageDependsOnAllBeforeIt(t *testing.T) {
	keys := make([]int32, 2*kv.PageTokens)
	red := func(int32) [32]byte { return [32]byte{1} }
	blue := func(int32) [32]byte { return [32]byte{2} }
	with := func(at int, key int32) []int32 {
		k := append([]int32(nil), keys...)
		k[at] = key
		return k
	}
	d := open(t, 20)
	d.put(exact(Chain("a", with(3, -7), red))...)
	for name, pages := range map[string][]Page{
		"the same":             Chain("a", with(3, -7), red),
		"another name for it":  Chain("a", with(3, -1), red),
		"another salt":         Chain("b", with(3, -7), red),
		"another picture":      Chain("a", with(3, -7), blue),
		"no picture":           Chain("a", keys, nil),
		"a picture elsewhere":  Chain("a", with(4, -7), red),
		"another token before": Chain("a", with(0, 5), nil),
	} {
		want := 0
		if name == "the same" || name == "another name for it" {
			want = 2
		}
		if n := d.hit(pages, true); n != want || len(d.there(exact(pages))) != want {
			t.Errorf("%s: %d pages found, want %d", name, n, want)
		}
	}
}

func TestTokensAreComparedNotOnlyNames(t *testing.T) {
	d := open(t, 20)
	p := chain("a", 1)[0]
	d.put(p)
	q := p
	q.Tokens[63]++ // as if two pages had one name
	if _, err := d.Read(context.Background(), q, make([]byte, pageBytes)); !errors.Is(err, ErrMissing) {
		t.Errorf("a page of other tokens was read: %v", err)
	}
}

func TestExactPagesReplaceReplayedOnes(t *testing.T) {
	d := open(t, 20)
	p := chain("a", 3)
	d.put(p[0], replayed(p[1]), replayed(p[2]))
	d.reopen()
	if e, r := d.hit(p, true), d.hit(p, false); e != 1 || r != 3 {
		t.Fatalf("hits of %d exact and %d pages, want 1 and 3", e, r)
	}
	d.expect(p, 0)
	d.put(p[1])
	d.put(replayed(p[1]))
	for range 2 {
		if e, r, n := d.hit(p, true), d.hit(p, false), d.Stats().Pages; e != 2 || r != 3 || n != 3 {
			t.Fatalf("hits of %d exact and %d of %d pages, want 2, 3 and 3", e, r, n)
		}
		d.kill()
		d.check()
	}
}

func TestTheBudgetHoldsAndTheOldestEndGoesFirst(t *testing.T) {
	d := open(t, 10)
	a, b, c := chain("a", 5), chain("b", 5), chain("c", 3)
	d.put(a...)
	d.put(b...)
	d.hit(a, true)
	d.flush()
	for _, restart := range []func(){d.reopen, d.kill} { // times of use outlive the process
		restart()
		d.put(c[:1]...)
		c = c[1:]
	}
	d.put(c...)
	d.expect(a, 0, 1, 2, 3, 4)
	d.expect(b, 0, 1)
	if st := d.Stats(); st.Pages != 10 || st.Bytes > st.MaxBytes || d.fs.size() > st.MaxBytes {
		t.Errorf("%+v", st)
	}
}

func TestAHitIsNotEvicted(t *testing.T) {
	d := open(t, 6)
	a, b := chain("a", 5), chain("b", 9)
	d.put(a...)
	h := d.Find(a, true)
	d.put(b...)
	d.expect(a, 0, 1, 2, 3, 4)
	d.expect(b, 0) // which must not give way to those that follow it
	if d.Write(b[2], content(b[2])) {
		t.Error("a page was taken without the one before it")
	}
	h.Release()
	h.Release()
	d.put(b...)
	d.expect(a)
	d.expect(b, 0, 1, 2, 3, 4, 5)
}

func TestASmallerBudgetCutsTheFiles(t *testing.T) {
	for _, pages := range []int{39, 33, 32, 17, 3, 1} {
		d := open(t, 40)
		a := chain("a", 40)
		d.put(a...)
		d.opt.MaxBytes = bytesFor(pages)
		d.reopen()
		d.check()
		if d.fs.size() > d.opt.MaxBytes || len(d.there(a)) != pages || d.hit(a, true) != pages {
			t.Errorf("%d pages: %d bytes of %d, %v", pages, d.fs.size(), d.opt.MaxBytes, d.there(a))
		}
		d.put(chain("b", 3)...)
		d.opt.MaxBytes = bytesFor(50)
		d.reopen()
		d.put(a...)
		d.quiet()
		if n := d.hit(a, true); n != 40 {
			t.Errorf("after growing from %d pages: %d found", pages, n)
		}
	}
}

func TestPagesOfAnotherIdentityAreNeverLoaded(t *testing.T) {
	d := open(t, 10)
	a := chain("a", 5)
	d.put(a...)
	for name, id := range map[string]Identity{
		"model": {Model: "other"}, "config": {Model: "m", Config: "c"}, "numerics": {Model: "m", Numerics: "fast"},
	} {
		d.opt.Identity = id
		d.reopen()
		d.expect(a)
		d.warned("files: 1", "another model, configuration, numeric profile or format", "delete")
		if st := d.Stats(); st.ForeignFiles != 1 || st.ForeignBytes != d.fs.size() || st.Pages != 0 {
			t.Errorf("%s: %+v", name, st)
		}
	}
	d.opt.Identity = Identity{Model: "m"}
	d.opt.PageBytes = 700
	d.reopen()
	if st := d.Stats(); st.ForeignFiles != 1 {
		t.Errorf("other size of pages: %+v", st)
	}
	d.opt.PageBytes = pageBytes
	_, data := d.segment()
	data.b[8]++ // format
	d.reopen()
	if st := d.Stats(); st.ForeignFiles != 1 {
		t.Errorf("other format: %+v", st)
	}
	data.b[8]--
	d.reopen()
	d.expect(a, 0, 1, 2, 3, 4)
}

func TestOtherFilesAreLeftAlone(t *testing.T) {
	d := open(t, 10)
	d.fs.files["kv/notes.txt"] = &memData{[]byte("hello")}
	d.fs.files["kv/0011223344556677-000009.kv"] = &memData{[]byte("not one of ours")}
	d.fs.files["kv/0011223344556677-000010.kv.new"] = &memData{[]byte("half made")}
	d.reopen()
	d.warned("000009.kv", "not a segment")
	d.put(chain("a", 1)...)
	if got := strings.Join(d.fs.names(), " "); !strings.Contains(got, "notes.txt") || !strings.Contains(got, "000009.kv") ||
		!strings.Contains(got, "-000010.kv") || strings.Contains(got, ".new") {
		t.Errorf("files: %s", got)
	}
}

func TestADirectoryServesOneProcess(t *testing.T) {
	opt := Options{Dir: t.TempDir() + "/a/kv", MaxBytes: 1 << 20, PageBytes: pageBytes}
	s, err := Open(context.Background(), opt)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(context.Background(), opt)
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), opt.Dir) {
		t.Errorf("second store: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(context.Background(), opt); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
}

func TestAFullQueueDoesNotWait(t *testing.T) {
	d := open(t, 20)
	d.opt.Queue = 4
	d.reopen()
	d.fs.mu.Lock() // the disk hangs
	a := chain("a", 10)
	accepted := 0
	for _, p := range a {
		if d.Write(p, content(p)) {
			accepted++
			if !d.Has(p.Hash, true) || d.get(p) == nil {
				t.Error("a queued page cannot be read")
			}
		}
	}
	d.fs.mu.Unlock()
	d.flush()
	if st := d.Stats(); accepted < 4 || accepted > 5 || st.Dropped != int64(10-accepted) || st.Written != int64(accepted) {
		t.Errorf("%d accepted: %+v", accepted, st)
	}
	d.put(a...)
	if n := d.hit(a, true); n < 4 {
		t.Errorf("%d pages", n)
	}
}

func TestAFullDiskStopsGrowthOnly(t *testing.T) {
	d := open(t, 100)
	a, b := chain("a", 20), chain("b", 20)
	d.put(a...)
	d.fs.room = 2500 // room for two pages and a torn one
	d.put(b...)
	d.warned("is full", "replaces pages")
	if st := d.Stats(); st.State != StateFull || st.Pages != 22 || st.Written != 40 || st.Trouble == "" {
		t.Errorf("%+v", st)
	}
	if n := d.hit(b, true); n != 20 {
		t.Errorf("%d new pages", n)
	}
	d.expect(a, 0, 1)
	d.reopen()
	d.put(a...)
	d.warned("is full")
	d.fs.room = -1
	d.time = d.time.Add(2 * fullPause)
	d.put(b...)
	if st := d.Stats(); st.State != StateOn || st.Pages != 40 {
		t.Errorf("with room again: %+v", st)
	}
	d.quiet()
}

func TestADiskThatIsFullFromTheStartKeepsNothing(t *testing.T) {
	d := open(t, 10)
	d.fs.room = 0
	for range 3 {
		d.put(chain("a", 5)...)
	}
	d.warned("is full")
	if st := d.Stats(); st.Pages != 0 || st.Bytes != 0 || st.State != StateFull || st.Dropped != 15 {
		t.Errorf("%+v", st)
	}
}

func TestAFailureToWritePausesWriting(t *testing.T) {
	for name, fault := range map[string]func(fs *memFS, on bool){
		"input/output error": func(fs *memFS, on bool) {
			if fs.writeErr = nil; on {
				fs.writeErr = errDisk
			}
		},
		"short write": func(fs *memFS, on bool) { fs.short = on },
		"read-only":   func(fs *memFS, on bool) { fs.writeErr = map[bool]error{true: syscall.EROFS}[on] },
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, 50)
			a, b := chain("a", 20), chain("b", 20)
			d.put(a...)
			fault(d.fs, true)
			others := make([]Page, 0, 20)
			for i := range 20 {
				others = append(others, chain(fmt.Sprint(i), 1)...)
			}
			d.put(others...)
			d.warned("no KV pages are written", "still read", name)
			d.time = d.time.Add(firstPause)
			d.put(others...)
			if st := d.Stats(); st.State != StatePaused || st.Dropped != 40 || st.WriteErrors != 2 {
				t.Errorf("two tries: %+v", st)
			}
			d.quiet()
			if n := d.hit(a, true); n != 20 || len(d.there(a)) != 20 {
				t.Errorf("reads did not go on: %d", n)
			}
			fault(d.fs, false)
			d.time = d.time.Add(lastPause)
			d.put(b...)
			d.warned("written to kv again")
			if n := d.hit(b, true); n != 20 || d.Stats().State != StateOn {
				t.Errorf("after the fault: %d pages, %+v", n, d.Stats())
			}
			d.kill()
			d.quiet()
			if n := len(d.there(append(a, b...))); n != 40 {
				t.Errorf("after a restart: %d pages", n)
			}
		})
	}
}

// A store leaves files to the process: it makes do with those it may have, and says which it left aside.
func TestFilesAreBounded(t *testing.T) {
	d := open(t, 3*minSlots)
	d.opt.MaxFiles = 2
	d.reopen()
	a := chain("a", 3*minSlots)
	d.put(a...)
	if n := d.hit(a, true); len(d.segments) != 2 || n != 2*minSlots {
		t.Errorf("%d files, %d pages", len(d.segments), n)
	}
	b := chain("b", 2*minSlots)
	d.put(b...)
	d.expect(b, d.there(b)...)
	d.quiet()
	d.opt.MaxFiles = 1
	d.reopen()
	d.warned("1 files in kv are not read", "1 are for KV pages", "ulimit -n")
	for _, p := range b {
		d.Write(p, content(p))
	}
	if err := d.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(d.segments) != 1 || d.hit(b, true) == 0 || d.Stats().State != StateOn {
		t.Errorf("%d files, %d pages, %+v", len(d.segments), d.hit(b, true), d.Stats())
	}
	d.opt.MaxFiles = 0 // as many as the process may
	d.reopen()
	d.quiet()
	if len(d.segments) != 2 || mostFiles() < 1 {
		t.Errorf("%d files", len(d.segments))
	}
}

func TestAReadOnlyDirectoryIsReadLoudly(t *testing.T) {
	d := open(t, 50)
	a := chain("a", 5)
	d.put(a...)
	_ = d.Close()
	d.fs.writeErr = syscall.EROFS
	d.open()
	d.warned("no KV pages are written", "read-only")
	if st := d.Stats(); st.State != StatePaused || st.Pages != 5 {
		t.Errorf("%+v", st)
	}
	d.expect(a, 0, 1, 2, 3, 4)
}

func TestADirectoryThatCannotBeReadIsRefused(t *testing.T) {
	d := open(t, 50)
	_ = d.Close()
	d.fs.listErr = errDisk
	if _, err := Open(context.Background(), d.opt); !errors.Is(err, errDisk) || !strings.Contains(err.Error(), "directory kv") {
		t.Error(err)
	}
	d.fs.listErr = nil
	d.open() // the lock was let go
	d.opt.MaxBytes = 100
	if _, err := Open(context.Background(), d.opt); err == nil || !strings.Contains(err.Error(), "holds no page") {
		t.Error(err)
	}
}

func TestAFailureToReadIsAMiss(t *testing.T) {
	d := open(t, 50)
	a := chain("a", 5)
	d.put(a...)
	d.fs.readErr = errDisk
	_, err := d.Read(context.Background(), a[2], make([]byte, pageBytes))
	if !errors.Is(err, errDisk) || !strings.Contains(err.Error(), ".kv") {
		t.Error(err)
	}
	d.warned("input/output error", ".kv")
	d.fs.readErr = nil
	d.expect(a, 0, 1, 3, 4)
	if st := d.Stats(); st.ReadErrors != 1 || d.hit(a, true) != 2 {
		t.Errorf("%+v", st)
	}
	d.put(a...)
	d.expect(a, 0, 1, 2, 3, 4)
}

// A bit that flips anywhere in a file costs at most the page that it is in.
func TestAFlippedBitIsFound(t *testing.T) {
	d := open(t, 10)
	a := chain("a", 4)
	d.put(a...)
	_, data := d.segment()
	g := d.segments[0].geometry
	for at := segmentHeader; at < len(data.b); at += 7 {
		data.b[at] ^= 1 << (at % 8)
		d.kill()
		lost, hint := -1, false
		for slot := range a {
			h, p := int(g.header(slot)), int(g.payload(slot))
			if at >= h && at < h+recordHeader || at >= p && at < p+pageBytes {
				lost = slot
			}
			hint = hint || at >= h+recordSummed && at < h+recordHeader
		}
		got := d.there(a)
		if want := len(a); lost >= 0 && !hint {
			if len(got) != want-1 || d.Stats().Corrupt != 1 {
				t.Fatalf("byte %d: pages %v, %+v", at, got, d.Stats())
			}
			d.warned(".kv offset")
		} else if len(got) != want {
			t.Fatalf("byte %d, in no page: pages %v", at, got)
		}
		d.said = nil
		data.b[at] ^= 1 << (at % 8)
	}
}

func TestWarningsAboutPagesEnd(t *testing.T) {
	d := open(t, 100)
	a := chain("a", 100)
	d.put(a...)
	for name, f := range d.fs.files {
		if strings.HasSuffix(name, suffix) {
			for i := segmentHeader + minSlots*recordHeader; i < len(f.b); i++ {
				f.b[i]++
			}
		}
	}
	d.expect(a)
	if n := len(d.said); n != maxRecordWarnings+1 || d.Stats().Corrupt != 100 {
		t.Errorf("%d warnings, %d corrupt", n, d.Stats().Corrupt)
	}
}

func TestCloseWritesWhatIsQueued(t *testing.T) {
	d := open(t, 200)
	a := chain("a", 150)
	for _, p := range a {
		if !d.Write(p, content(p)) {
			t.Fatal("queue is full")
		}
	}
	d.reopen()
	if n := d.hit(a, true); n != 150 {
		t.Errorf("%d pages", n)
	}
	_ = d.Close()
	if d.Write(a[0], content(a[0])) || d.hit(a, true) != 0 || d.get(a[0]) != nil || d.Close() != nil || d.Stats().State != StateOff {
		t.Error("a closed store does something")
	}
	if err := d.Flush(context.Background()); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestANilStoreIsOff(t *testing.T) {
	var s *Store
	a := chain("a", 1)
	if _, err := s.Read(context.Background(), a[0], nil); !errors.Is(err, ErrMissing) {
		t.Error(err)
	}
	h := s.Find(a, false)
	h.Release()
	if s.Write(a[0], nil) || s.Has(a[0].Hash, false) || h.Len() != 0 || s.Flush(context.Background()) != nil || s.Close() != nil ||
		s.Stats().State != StateOff {
		t.Error("a nil store does something")
	}
}

// Whatever byte of the last record the process died at, the pages before it are there, and it is whole or missing.
func TestAnyTornTailLosesOneRecordAtMost(t *testing.T) {
	a := chain("a", 4)
	size := int64(pageBytes + recordHeader)
	for n := range size + 1 {
		d := open(t, 10)
		d.put(a[:3]...)
		d.fs.alive = n
		d.Write(a[3], content(a[3]))
		_ = d.Flush(context.Background())
		d.said = nil
		d.kill()
		d.check()
		got := len(d.there(a)) // the header's last bytes are zero anyway
		if n < pageBytes+recordHeader/2 && got != 3 || n == size && got != 4 || got < 3 {
			t.Fatalf("killed after %d bytes: pages %v", n, d.there(a))
		}
		d.put(a[3])
		d.expect(a, 0, 1, 2, 3)
	}
}

// The same for a page that takes the place of another.
func TestAnyTornReplacementLosesOneRecordAtMost(t *testing.T) {
	a, b := chain("a", 3), chain("b", 1)
	for n := range int64(pageBytes + 2*recordHeader + 1) {
		d := open(t, 3)
		d.put(a...)
		d.fs.alive = n
		d.Write(b[0], content(b[0]))
		_ = d.Flush(context.Background())
		d.kill()
		d.check()
		if got := len(d.there(a)); got < 2 || got+len(d.there(b)) > 3 {
			t.Fatalf("killed after %d bytes: pages %v", n, d.there(a))
		}
		if n >= recordHeader && n <= recordHeader+pageBytes && d.Stats().Corrupt > 0 {
			t.Fatalf("killed after %d bytes: a header stands above another page's bytes", n)
		}
	}
}

// A file that ends anywhere, as after a power loss.
func TestAFileThatEndsAnywhereKeepsThePagesBeforeTheEnd(t *testing.T) {
	a := chain("a", 3)
	whole := open(t, 10)
	whole.put(a...)
	name, data := whole.segment()
	g := whole.segments[0].geometry
	for size := range data.b {
		if size < int(g.payload(2)) && size%61 > 1 { // every byte of the last page
			continue
		}
		d := open(t, 10)
		d.fs.files[name] = &memData{bytes.Clone(data.b[:size])}
		d.reopen()
		want := 0
		for want < 3 && int64(size) >= g.payload(want)+pageBytes {
			want++
		}
		if got := len(d.there(a)); got != want {
			t.Fatalf("%d bytes: %d pages, want %d", size, got, want)
		}
		d.put(a...)
		d.expect(a, 0, 1, 2)
	}
}

func TestManyPagesOpenAtOnce(t *testing.T) {
	d := open(t, 3000)
	for i := range 30 {
		d.put(chain(fmt.Sprint(i), 100)...)
	}
	d.kill()
	d.check()
	if st := d.Stats(); st.Pages != 3000 || len(d.segments) > 80 {
		t.Errorf("%d segments, %+v", len(d.segments), st)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = d.Close()
	if _, err := Open(ctx, d.opt); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
