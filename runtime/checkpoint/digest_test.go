package checkpoint

import (
	"os"
	"testing"
	"time"
)

func TestADigestTellsCheckpointsApart(t *testing.T) {
	digest := func(dir string) string {
		t.Helper()
		c, err := Open(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		d, err := c.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	dir := copyMini(t, "base")
	paths := shardPaths(t, dir)
	then := time.Unix(1e9, 0)
	for _, p := range paths {
		if err := os.Chtimes(p, then, then); err != nil {
			t.Fatal(err)
		}
	}
	first := digest(dir)
	if again := digest(dir); again != first {
		t.Errorf("%s and then %s", first, again)
	}
	if other := digest(miniDir("edge")); other == first {
		t.Error("another checkpoint has the same digest")
	}
	data, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	c, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range c.Tensors() {
		if x.Shard == 0 && x.Name == "norm.weight" || x.Shard == 0 && data[x.Offset] != 0 {
			data[x.Offset] ^= 1
			break
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(paths[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(paths[0], then, then); err != nil {
		t.Fatal(err)
	}
	if other := digest(dir); other == first {
		t.Error("another weight, the same digest")
	}
	if err := os.Chtimes(paths[0], then, then.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if other := digest(dir); other == first {
		t.Error("another time, the same digest")
	}
}
