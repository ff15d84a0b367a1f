package checkpoint

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	limitEnv  = "CHECKPOINT_TEST_LIMITED_DIR"
	tableName = "layers.1.engram.embed.weight"
	tableRows = 1 << 28 // 64 GiB of holes
	rowBytes  = 256
)

// hugeCheckpoint writes a sparse checkpoint with one table that is larger than the address space left.
func hugeCheckpoint(t *testing.T) string {
	dir := t.TempDir()
	header, err := Header([]Out{
		{Name: "norm.weight", DType: BF16, Shape: []int64{4}},
		{Name: tableName, DType: F8E4M3, Shape: []int64{tableRows, rowBytes}},
	})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, singleName))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size := int64(len(header)) + 8 + tableRows*rowBytes
	if err := f.Truncate(size); err != nil {
		t.Skip("no sparse files here:", err)
	}
	f.WriteAt(header, 0)
	f.WriteAt([]byte("\x01\x02\x03\x04\x05\x06\x07\x08"), int64(len(header)))
	if _, err := f.WriteAt([]byte("last"), size-4); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestAddressSpaceLimitFallsBackToReading runs itself under RLIMIT_AS, which cannot be lifted again.
func TestAddressSpaceLimitFallsBackToReading(t *testing.T) {
	if dir := os.Getenv(limitEnv); dir != "" {
		limited(t, dir)
		return
	}
	dir := hugeCheckpoint(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestAddressSpaceLimitFallsBackToReading$", "-test.v")
	cmd.Env = append(os.Environ(), limitEnv+"="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("mapping refused")) {
		t.Errorf("%v\n%s", err, out)
	}
}

func limited(t *testing.T, dir string) {
	var used uint64
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("no /proc here:", err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmSize:"); ok {
			fmt.Sscan(rest, &used)
		}
	}
	limit := used<<10 + 4<<30
	if err := unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		t.Skip("the address space cannot be limited here:", err)
	}
	c := mustOpen(t, dir, Options{})
	if c.Mapped() || c.MapRefused() == nil {
		t.Fatal("mapped in spite of the limit")
	}
	t.Log("mapping refused:", c.MapRefused())
	b, err := c.Bytes("norm.weight")
	if err != nil || !bytes.Equal(b, []byte{1, 2, 3, 4, 5, 6, 7, 8}) {
		t.Errorf("norm.weight = %v, %v", b, err)
	}
	row := make([]byte, 2*rowBytes)
	if err := c.ReadRows(tableName, rowBytes, []int64{tableRows - 1, 0}, row); err != nil {
		t.Fatal(err)
	}
	if !bytes.HasSuffix(row[:rowBytes], []byte("last")) || !bytes.Equal(row[rowBytes:], make([]byte, rowBytes)) {
		t.Errorf("rows differ: %q", row)
	}
	if _, err := c.Bytes(tableName); err == nil || !strings.Contains(err.Error(), "allocate 68719476736 bytes") {
		t.Errorf("a table beyond the limit: %v", err)
	}
}
