package residency

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// cold maps a file of n pages that are not in memory.
func cold(t *testing.T, n int) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pages")
	data := make([]byte, n*pageSize)
	for i := range data {
		data[i] = byte(i / pageSize)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fsync(int(f.Fd())); err != nil { // dirty pages stay
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, len(data), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	if Held(b) {
		t.Skip("this file system keeps its pages in memory")
	}
	return b
}

func TestPopulateReadsEveryPage(t *testing.T) {
	b := cold(t, 5000)
	var last int64
	if err := Populate(t.Context(), [][]byte{b[:100], b[7*pageSize : 4000*pageSize]}, func(done int64) {
		if done <= last {
			t.Errorf("%d bytes done after %d", done, last)
		}
		last = done
	}); err != nil {
		t.Fatal(err)
	}
	if want := int64(3994 * pageSize); last != want {
		t.Errorf("%d bytes done, want %d", last, want)
	}
	if !HeldWhole(b[7*pageSize:4000*pageSize]) || !Held(b[:100]) {
		t.Error("pages are missing")
	}
}

func TestPopulateEndsWithItsContext(t *testing.T) {
	b := cold(t, 5000)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Populate(ctx, [][]byte{b}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if HeldWhole(b) {
		t.Error("all was read")
	}
}

func TestWhatIsAskedForComes(t *testing.T) {
	b := cold(t, 64)
	row := b[3*pageSize-10 : 3*pageSize+10] // on two pages
	WillNeed(row)
	for end := time.Now().Add(10 * time.Second); !HeldWhole(row); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the pages are not in memory")
		}
	}
	WillNeed(nil)
}

func TestMergeJoinsNeighbours(t *testing.T) {
	all, err := unix.Mmap(-1, 0, 16*pageSize, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(all)
	at := func(from, to int) []byte { return all[from:to] }
	got := Merge([][]byte{
		at(9*pageSize+5, 9*pageSize+6), at(100, 200), at(pageSize, 2*pageSize), nil, at(300, pageSize+1), at(5*pageSize, 9*pageSize),
	})
	want := [][]byte{at(0, 2*pageSize), at(5*pageSize, 10*pageSize)}
	if len(got) != len(want) {
		t.Fatalf("%d parts, want %d", len(got), len(want))
	}
	for i := range want {
		if unsafe.SliceData(got[i]) != unsafe.SliceData(want[i]) || len(got[i]) != len(want[i]) {
			t.Errorf("part %d: %d bytes, want %d", i, len(got[i]), len(want[i]))
		}
	}
}

func TestWhyThereAreNoHugePages(t *testing.T) {
	const name = "sys/kernel/mm/transparent_hugepage/enabled"
	for _, tc := range []struct {
		name string
		fs   fstest.MapFS
		want string
	}{
		{"no support", fstest.MapFS{}, "this kernel has no transparent huge pages"},
		{"never", fstest.MapFS{name: {Data: []byte("always madvise [never]\n")}}, "/" + name + " says never"},
		{"madvise", fstest.MapFS{name: {Data: []byte("always [madvise] never\n")}}, ""},
		{"always", fstest.MapFS{name: {Data: []byte("[always] madvise never\n")}}, ""},
	} {
		if got := HugePagesOff(tc.fs); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestHugePagesNeedAWholeOne(t *testing.T) {
	b, err := unix.Mmap(-1, 0, 3*HugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	if err := HugePages(at, pageSize); err != nil {
		t.Errorf("a small part: %v", err)
	}
	if err := HugePages(at, len(b)); err != nil && HugePagesOff(os.DirFS("/")) == "" {
		t.Error(err)
	}
}
