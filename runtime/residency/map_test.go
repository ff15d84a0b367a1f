package residency

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"unsafe"
)

func TestAMapForHugePagesBeginsAtOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weights")
	data := bytes.Repeat([]byte("0123456789abcde\n"), (2*HugePage+4096)/16)
	data = append(data, "tail"...)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, huge := range []bool{false, true} {
		for _, size := range []int{1, 4096, HugePage - 1, HugePage, HugePage + 1, len(data)} {
			b, err := Map(f, size, huge)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(b, data[:size]) {
				t.Errorf("%d bytes, huge %v: not those of the file", size, huge)
			}
			if at := uintptr(unsafe.Pointer(unsafe.SliceData(b))); huge && size >= HugePage && at%HugePage != 0 {
				t.Errorf("%d bytes at %#x, not at a huge page", size, at)
			}
			if err := Unmap(b); err != nil {
				t.Fatal(err)
			}
		}
	}
}
