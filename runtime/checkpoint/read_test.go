package checkpoint

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"unsafe"
)

var modes = map[string]Options{"mapped": {}, "read": {NoMap: true}}

func TestReadRows(t *testing.T) {
	const name = "layers.3.engram.embed.weight"
	for mode, opts := range modes {
		t.Run(mode, func(t *testing.T) {
			c := mustOpen(t, miniDir("base"), opts)
			x, ok := c.Tensor(name)
			if !ok {
				t.Fatal("no", name)
			}
			whole, err := mustOpen(t, miniDir("base"), Options{}).Bytes(name)
			if err != nil {
				t.Fatal(err)
			}
			width := int(x.Shape[1])
			rows := []int64{0, x.Shape[0] - 1, 7, 7}
			for range 44 {
				rows = append(rows, rand.Int64N(x.Shape[0]))
			}
			dst := make([]byte, len(rows)*width)
			if err := c.ReadRows(name, width, rows, dst); err != nil {
				t.Fatal(err)
			}
			for i, r := range rows {
				if !bytes.Equal(dst[i*width:(i+1)*width], whole[int(r)*width:int(r+1)*width]) {
					t.Errorf("row %d differs", r)
				}
			}
			for _, bad := range []struct {
				name  string
				width int
				rows  []int64
				dst   int
				want  string
			}{
				{name, width, []int64{x.Shape[0]}, width, "row 552 is outside 0..551"},
				{name, width, []int64{-1}, width, "row -1 is outside"},
				{name, width, []int64{0}, width - 1, "destination has 31 bytes for 1 rows of 32"},
				{name, 0, nil, 0, "not a whole number of rows"},
				{name, 37, []int64{0}, 37, "not a whole number of rows of 37"},
				{"absent", 1, nil, 0, "no such tensor: absent"},
			} {
				err := c.ReadRows(bad.name, bad.width, bad.rows, make([]byte, bad.dst))
				if err == nil || !strings.Contains(err.Error(), bad.want) {
					t.Errorf("error %v does not contain %q", err, bad.want)
				}
			}
		})
	}
}

func TestAbsentTensor(t *testing.T) {
	c := mustOpen(t, miniDir("base"), Options{})
	if _, err := c.Bytes("absent"); !errors.Is(err, ErrNoTensor) {
		t.Error(err)
	}
	if _, ok := c.Tensor("absent"); ok {
		t.Error("Tensor finds it")
	}
}

func TestTensorThatEndsTheFileUnaligned(t *testing.T) {
	// The last tensor ends at an odd offset, far from any page or sector boundary.
	path := filepath.Join(t.TempDir(), "x.safetensors")
	data := make([]byte, 4096+13)
	for i := range data {
		data[i] = byte(i * 7)
	}
	if err := WriteFile(path, []Out{
		{Name: "first", DType: U8, Shape: []int64{3}, Data: []byte{1, 2, 3}},
		{Name: "misaligned", DType: F32, Shape: []int64{2}, Data: data[:8]},
		{Name: "last", DType: F8E4M3, Shape: []int64{int64(len(data))}, Data: data},
	}); err != nil {
		t.Fatal(err)
	}
	for mode, opts := range modes {
		t.Run(mode, func(t *testing.T) {
			c, err := OpenFile(path, opts)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			got, err := c.Bytes("last")
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			row := make([]byte, 1)
			if err := c.ReadRows("last", 1, []int64{int64(len(data) - 1)}, row); err != nil || row[0] != data[len(data)-1] {
				t.Error(row, err)
			}
			got, err = c.Bytes("misaligned")
			if err != nil || !bytes.Equal(got, data[:8]) || !aligned(got, F32) {
				t.Error(got, err, "misaligned in place")
			}
		})
	}
}

func TestFileThatShrinksAfterOpenIsReported(t *testing.T) {
	dir := copyMini(t, "base")
	c := mustOpen(t, dir, Options{NoMap: true})
	if err := os.Truncate(shardPaths(t, dir)[0], 100000); err != nil {
		t.Fatal(err)
	}
	_, err := c.Bytes("layers.8.ffn.shared_experts.w3.weight")
	if err == nil || !strings.Contains(err.Error(), "became shorter") {
		t.Error(err)
	}
}

func TestConcurrentReadersShareOneCopy(t *testing.T) {
	for mode, opts := range modes {
		t.Run(mode, func(t *testing.T) {
			c := mustOpen(t, miniDir("sched40"), opts)
			var wg sync.WaitGroup
			first := make([]*byte, len(c.Tensors()))
			for w := range 4 {
				wg.Go(func() {
					for i, x := range c.Tensors() {
						b, err := c.Bytes(x.Name)
						if err != nil {
							t.Error(err)
							return
						}
						if w == 0 {
							first[i] = unsafe.SliceData(b)
						}
					}
				})
			}
			wg.Wait()
			for i, x := range c.Tensors() {
				if b, _ := c.Bytes(x.Name); unsafe.SliceData(b) != first[i] {
					t.Errorf("%s has two copies", x.Name)
				}
			}
		})
	}
}

func TestEmbeddedCheckpoint(t *testing.T) {
	for _, name := range []string{"base", "sched40"} {
		t.Run(name, func(t *testing.T) {
			files := fstest.MapFS{}
			for _, p := range append(shardPaths(t, miniDir(name)), filepath.Join(miniDir(name), indexName)) {
				data, err := os.ReadFile(p)
				if err != nil {
					t.Fatal(err)
				}
				files[filepath.Base(p)] = &fstest.MapFile{Data: data}
			}
			c, err := OpenFS(files, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if c.Mapped() {
				t.Error("an embedded checkpoint is not mapped")
			}
			for i := range c.shards {
				if uintptr(unsafe.Pointer(unsafe.SliceData(c.shards[i].data)))%alignment != 0 {
					t.Errorf("shard %d is not aligned", i)
				}
			}
			if _, err := c.Check(loadConfig(t, miniDir(name))); err != nil {
				t.Error(err)
			}
			want := mustOpen(t, miniDir(name), Options{})
			for _, x := range want.Tensors() {
				a, err := c.Bytes(x.Name)
				b, err2 := want.Bytes(x.Name)
				if err != nil || err2 != nil || !bytes.Equal(a, b) {
					t.Errorf("%s differs: %v, %v", x.Name, err, err2)
				}
			}
		})
	}
	t.Run("absent", func(t *testing.T) {
		if _, err := OpenFS(fstest.MapFS{}, Options{}); err == nil || !strings.Contains(err.Error(), "embedded checkpoint") {
			t.Error(err)
		}
	})
}

func TestWrittenFileReadsBack(t *testing.T) {
	src := mustOpen(t, miniDir("vl"), Options{})
	var tensors []Out
	for _, x := range src.Tensors() {
		b, err := src.Bytes(x.Name)
		if err != nil {
			t.Fatal(err)
		}
		tensors = append(tensors, Out{x.Name, x.DType, x.Shape, b})
	}
	var got bytes.Buffer
	if err := Write(&got, tensors); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(shardPaths(t, miniDir("vl"))[0])
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Error("a mini checkpoint written again differs from the reference's file")
	}
}

func TestBadTensorsAreNotWritten(t *testing.T) {
	for _, tt := range []struct {
		name    string
		tensors []Out
		want    string
	}{
		{"short data", []Out{{"a", F32, []int64{2}, make([]byte, 4)}}, "4 bytes of data for F32 [2], which takes 8"},
		{"same name", []Out{{"a", U8, []int64{0}, nil}, {"a", U8, []int64{0}, nil}}, `tensor name "a" is taken`},
		{"reserved name", []Out{{"__metadata__", U8, []int64{0}, nil}}, "is taken"},
		{"negative shape", []Out{{"a", U8, []int64{-1}, nil}}, "overflows"},
		{"unknown dtype", []Out{{"a", DType(99), nil, nil}}, "cannot be written"},
	} {
		path := filepath.Join(t.TempDir(), "x.safetensors")
		if err := WriteFile(path, tt.tensors); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v does not contain %q", tt.name, err, tt.want)
		}
		if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 0 {
			t.Errorf("%s: %v left behind", tt.name, left)
		}
	}
}

// A file system without direct I/O must not matter: shards are mapped or read through the page cache, never otherwise.
func TestCheckpointOnTmpfsReadsAlike(t *testing.T) {
	shm, err := os.MkdirTemp("/dev/shm", "checkpoint")
	if err != nil {
		t.Skip("no tmpfs here:", err)
	}
	defer os.RemoveAll(shm)
	if err := os.CopyFS(shm, os.DirFS(miniDir("base"))); err != nil {
		t.Fatal(err)
	}
	want := mustOpen(t, miniDir("base"), Options{})
	for _, noMap := range []bool{false, true} {
		got := mustOpen(t, shm, Options{NoMap: noMap})
		for _, x := range want.Tensors() {
			a, err := want.Bytes(x.Name)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := got.Bytes(x.Name); err != nil || !bytes.Equal(a, b) {
				t.Errorf("%s, mapping refused %v: %v", x.Name, noMap, err)
			}
		}
	}
}
