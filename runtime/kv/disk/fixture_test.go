package disk

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"cedrun/runtime/kv"
)

type tb interface {
	rapid.TB
	Cleanup(func())
}

const pageBytes = 600

// disk is a store on a memFS, with its clock and what it said.
type disk struct {
	*Store
	t    tb
	fs   *memFS
	opt  Options
	time time.Time
	said []string
}

// bytesFor is the budget of a store whose files hold n pages.
func bytesFor(n int) int64 {
	g := geometry{pageBytes: pageBytes}
	for budget := int64(segmentHeader); ; budget += recordHeader {
		g.slots = segmentSlots(budget, g.stride())
		full, rest := n/g.slots, n%g.slots
		need := int64(full) * g.payload(g.slots)
		if rest > 0 {
			need += g.payload(rest)
		}
		if need <= budget {
			return budget
		}
	}
}

func open(t tb, pages int) *disk {
	t.Helper()
	fs := newMemFS()
	return openOn(t, fs, fs, "kv", pages)
}

// openDir is a store in a directory of the system's.
func openDir(t tb, dir string) *disk {
	t.Helper()
	return openOn(t, newMemFS(), OS{}, dir, 1000)
}

func openOn(t tb, mem *memFS, fs FS, dir string, pages int) *disk {
	t.Helper()
	d := &disk{t: t, fs: mem, time: time.Unix(1e9, 0)}
	d.opt = Options{Dir: dir, MaxBytes: bytesFor(pages), PageBytes: pageBytes, FS: fs, Identity: Identity{Model: "m"}}
	d.opt.now = func() time.Time { return d.time }
	d.opt.Warn = func(s string) { d.said = append(d.said, s) }
	d.open()
	return d
}

// wait moves the clock.
func (d *disk) wait(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.time = d.time.Add(by)
}

func (d *disk) open() {
	d.t.Helper()
	s, err := Open(context.Background(), d.opt)
	if err != nil {
		d.t.Fatal(err)
	}
	d.Store = s
	d.t.Cleanup(func() { _ = s.Close() })
}

// reopen is an orderly restart, kill one without warning.
func (d *disk) reopen() {
	d.t.Helper()
	if err := d.Close(); err != nil {
		d.t.Fatal(err)
	}
	d.open()
}

func (d *disk) kill() {
	d.t.Helper()
	old := d.Store
	d.fs.restart()
	d.open()
	_ = old.Close()
}

// put writes pages and waits.
func (d *disk) put(pages ...Page) {
	d.t.Helper()
	for _, p := range pages {
		d.Write(p, content(p))
	}
	d.flush()
}

func (d *disk) flush() {
	d.t.Helper()
	if err := d.Flush(context.Background()); err != nil {
		d.t.Fatal(err)
	}
	d.check()
}

// get reads a page; nil if it is not there. What is read must be what was written.
func (d *disk) get(p Page) []byte {
	d.t.Helper()
	b := make([]byte, pageBytes)
	exact, err := d.Read(context.Background(), p, b)
	if err != nil {
		return nil
	}
	if p.Exact && !exact {
		d.t.Fatal("a replayed page was given out as exact")
	}
	if p.Exact = exact; !bytes.Equal(b, content(p)) {
		d.t.Fatal("a page was read that was never written")
	}
	return b
}

// there says which of the pages can be read.
func (d *disk) there(pages []Page) (which []int) {
	for i, p := range pages {
		if d.get(p) != nil {
			which = append(which, i)
		}
	}
	return which
}

func (d *disk) expect(pages []Page, which ...int) {
	d.t.Helper()
	if got := d.there(pages); !slices.Equal(got, which) {
		d.t.Fatalf("pages %v can be read, want %v; said %q", got, which, d.said)
	}
}

func (d *disk) hit(pages []Page, exact bool) int {
	h := d.Find(pages, exact)
	defer h.Release()
	return h.Len()
}

// warned expects exactly one sentence with these words since the last call.
func (d *disk) warned(words ...string) {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.said) != 1 {
		d.t.Fatalf("said %q, want one sentence with %q", d.said, words)
	}
	for _, w := range words {
		if !strings.Contains(d.said[0], w) {
			d.t.Fatalf("said %q, want %q in it", d.said[0], w)
		}
	}
	d.said = nil
}

func (d *disk) quiet() {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.said) > 0 {
		d.t.Fatalf("said %q", d.said)
	}
}

// content is what a page holds: bytes that follow from its name and provenance.
func content(p Page) []byte {
	seed := [32]byte(p.Hash)
	if p.Exact {
		seed[0]++
	}
	b := make([]byte, pageBytes)
	_, _ = rand.NewChaCha8(seed).Read(b)
	return b
}

// chain names n exact pages of a caller's sequence.
func chain(salt string, n int) []Page {
	keys := make([]int32, n*kv.PageTokens)
	for i := range keys {
		keys[i] = int32(i)
	}
	return exact(Chain(salt, keys, nil))
}

func exact(pages []Page) []Page {
	for i := range pages {
		pages[i].Exact = true
	}
	return pages
}

func replayed(p Page) Page {
	p.Exact = false
	return p
}

// check compares the books of an idle store with each other and with the files.
func (d *disk) check() {
	d.t.Helper()
	s := d.Store
	s.mu.Lock()
	defer s.mu.Unlock()
	var total int64
	slots := map[place]bool{}
	for _, seg := range s.segments {
		total += seg.bytes()
		for _, slot := range seg.free {
			if slot >= seg.end || slots[place{seg: seg, slot: slot}] {
				d.t.Fatalf("slot %d of %s is free twice, or not there", slot, seg.name)
			}
			slots[place{seg: seg, slot: slot}] = true
		}
	}
	follow := map[Hash]int{}
	for _, e := range s.index.entries {
		follow[e.parent]++
		if e.slot >= e.seg.end || slots[place{seg: e.seg, slot: e.slot}] {
			d.t.Fatalf("slot %d of %s is used twice, or not there", e.slot, e.seg.name)
		}
		slots[place{seg: e.seg, slot: e.slot}] = true
	}
	for _, seg := range s.segments {
		for slot := range seg.end {
			if !slots[place{seg: seg, slot: slot}] {
				d.t.Fatalf("slot %d of %s is lost", slot, seg.name)
			}
		}
	}
	leaves := 0
	for _, e := range s.index.entries {
		if leaf := follow[e.hash] == 0 && e.reads == 0 && *e.hits == 0; leaf != (e.at >= 0) {
			d.t.Fatalf("entry is a leaf: %v, in the heap at %d", leaf, e.at)
		} else if leaf {
			leaves++
		}
		if follow[e.parent] != s.index.follow[e.parent] {
			d.t.Fatal("wrong count of followers")
		}
	}
	if leaves != len(s.index.leaves) || len(follow) != len(s.index.follow) {
		d.t.Fatal("the index has entries of pages that are gone")
	}
	if total != s.bytes || total > s.opt.MaxBytes {
		d.t.Fatalf("%d bytes on the books, %d in segments, budget %d", s.bytes, total, s.opt.MaxBytes)
	}
	if size := d.fs.size(); size > total {
		d.t.Fatalf("files have %d bytes, the books %d", size, total)
	}
}

// segment is the one file of a small store.
func (d *disk) segment() (name string, data *memData) {
	d.t.Helper()
	for _, n := range d.fs.names() {
		if strings.HasSuffix(n, suffix) {
			if data != nil {
				d.t.Fatal("more than one segment")
			}
			name, data = n, d.fs.files[n]
		}
	}
	return name, data
}

var errDisk = errors.New("input/output error")
