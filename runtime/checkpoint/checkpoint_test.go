package checkpoint

import (
	"bytes"
	"path/filepath"
	"testing"

	"cedrun/runtime/config"
)

var minis = []string{"base", "wide", "vl", "sched40", "calm"}

func miniDir(name string) string { return filepath.Join("../../testdata/mini", name) }

func loadConfig(t testing.TB, dir string) *config.Config {
	t.Helper()
	c, err := config.Load(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustOpen(t testing.TB, dir string, opts Options) *Checkpoint {
	t.Helper()
	c, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestMinisFitTheirConfig(t *testing.T) {
	for _, name := range minis {
		t.Run(name, func(t *testing.T) {
			c := mustOpen(t, miniDir(name), Options{})
			if !c.Mapped() {
				t.Errorf("not mapped: %v", c.MapRefused())
			}
			r, err := c.Check(loadConfig(t, miniDir(name)))
			if err != nil {
				t.Fatal(err)
			}
			if n := r.Total(); n.Tensors != len(c.Tensors()) || n.Bytes != c.TotalSize() {
				t.Errorf("report %v does not count every tensor: %d tensors, %d bytes", r, len(c.Tensors()), c.TotalSize())
			}
			t.Log(r)
		})
	}
}

func TestReleaseCensus(t *testing.T) {
	// Spec model.md section 2.2: totals of the Hub's metadata, per dtype and in all.
	tensors, bytes := 0, int64(0)
	elements := map[DType]int64{}
	perRole := map[Role]int{}
	vision := int64(0)
	for _, s := range Expected(loadConfig(t, "../../testdata/release")) {
		tensors++
		bytes += s.Size()
		elements[s.Stored] += s.Size() / s.Stored.Size()
		perRole[s.Role]++
		if s.Role == Vision {
			vision += s.Size() / 2
		}
	}
	if tensors != 96085 || bytes != 510286023000 {
		t.Errorf("%d tensors, %d bytes; want 96085 and 510286023000", tensors, bytes)
	}
	for d, want := range map[DType]int64{BF16: 1976441856, F32: 42307282, F8E4M3: 204015223296, I8: 278585671680} {
		if elements[d] != want {
			t.Errorf("%s: %d elements, want %d", d, elements[d], want)
		}
	}
	if vision != 485268480 || perRole[Vision] != 266 || perRole[Draft] != 2401 || perRole[Engram] != 12 {
		t.Errorf("vision %d values, tensors per role %v", vision, perRole)
	}
}

func TestReadingEqualsMapping(t *testing.T) {
	for _, name := range minis {
		t.Run(name, func(t *testing.T) {
			mapped, read := mustOpen(t, miniDir(name), Options{}), mustOpen(t, miniDir(name), Options{NoMap: true})
			if read.Mapped() || !mapped.Mapped() {
				t.Errorf("Mapped: %v with NoMap, %v without", read.Mapped(), mapped.Mapped())
			}
			for _, x := range mapped.Tensors() {
				a, err := mapped.Bytes(x.Name)
				if err != nil {
					t.Fatal(err)
				}
				b, err := read.Bytes(x.Name)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(a, b) {
					t.Errorf("%s differs", x.Name)
				}
				if !aligned(a, x.DType) || !aligned(b, x.DType) {
					t.Errorf("%s is misaligned", x.Name)
				}
			}
		})
	}
}
