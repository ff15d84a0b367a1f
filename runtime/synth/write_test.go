package synth

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"cedrun/runtime/checkpoint"
)

const shardOfLayer3 = "model-00005-of-00011.safetensors"

func write(t *testing.T, o Options) *Summary {
	t.Helper()
	o.Preset = "tiny"
	s, err := Write(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// contents maps the names of a directory's files to what is in them.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(b)
	}
	return all
}

func same(t *testing.T, got, want map[string]string) {
	t.Helper()
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%s differs", name)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s is there too", name)
		}
	}
}

func TestTheSameSeedGivesTheSameBytesWhateverTheThreads(t *testing.T) {
	one, five, other := t.TempDir(), t.TempDir(), t.TempDir()
	s := write(t, Options{Seed: 9, Dir: one, Threads: 1})
	write(t, Options{Seed: 9, Dir: five, Threads: 5})
	write(t, Options{Seed: 10, Dir: other, Threads: 5})
	files := contents(t, one)
	same(t, contents(t, five), files)
	if contents(t, other)[shardOfLayer3] == files[shardOfLayer3] {
		t.Error("another seed gives the same weights")
	}
	size := int64(0)
	for name, data := range files {
		if strings.HasSuffix(name, ".safetensors") {
			size += int64(len(data))
		}
	}
	if s.Bytes != size || s.Kept != 0 || s.Shards != 11 {
		t.Errorf("%+v, but the shards take %d bytes", s, size)
	}
}

func TestAnInterruptedDirectoryIsContinued(t *testing.T) {
	whole := t.TempDir()
	write(t, Options{Dir: whole})
	want := contents(t, whole)
	for _, c := range []struct {
		name    string
		damage  func(path func(name string) string) error
		written int // shards
	}{
		{"nothing is missing", func(func(string) string) error { return nil }, 0},
		{"a shard is short", func(path func(string) string) error { return os.Truncate(path(shardOfLayer3), 100000) }, 1},
		{"a shard has a wrong byte", func(path func(string) string) error {
			b := []byte(want[shardOfLayer3])
			b[len(b)/2] ^= 1
			return os.WriteFile(path(shardOfLayer3), b, 0o644)
		}, 1},
		{"a shard has another header", func(path func(string) string) error {
			b := bytes.Replace([]byte(want[shardOfLayer3]), []byte("layers.3"), []byte("layers.4"), 1)
			return os.WriteFile(path(shardOfLayer3), b, 0o644)
		}, 1},
		{"index and a shard are missing", func(path func(string) string) error {
			return errors.Join(os.Remove(path("model.safetensors.index.json")), os.Remove(path(shardOfLayer3)))
		}, 1},
		{"only the mark is there", func(path func(string) string) error {
			var errs []error
			for name := range want {
				if name != markName {
					errs = append(errs, os.Remove(path(name)))
				}
			}
			return errors.Join(errs...)
		}, 11},
		{"a partial file is left", func(path func(string) string) error {
			return os.WriteFile(path(partial+shardOfLayer3), []byte("abc"), 0o644)
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			if err := c.damage(func(name string) string { return filepath.Join(dir, name) }); err != nil {
				t.Fatal(err)
			}
			if s := write(t, Options{Dir: dir}); s.Shards-s.Kept != c.written {
				t.Errorf("%d of %d shards were kept", s.Kept, s.Shards)
			}
			same(t, contents(t, dir), want)
		})
	}
}

func TestProgressEndsAtTheTotal(t *testing.T) {
	dir := t.TempDir()
	write(t, Options{Dir: dir})
	if err := os.WriteFile(filepath.Join(dir, shardOfLayer3), make([]byte, 632804), 0o644); err != nil {
		t.Fatal(err)
	}
	var total, done atomic.Int64
	s := write(t, Options{Dir: dir, Progress: func(n int64) func(int64) {
		total.Store(n)
		return func(n int64) { done.Add(n) }
	}})
	if total.Load() != s.Bytes || done.Load() != s.Bytes {
		t.Errorf("%d of %d bytes, the shards have %d", done.Load(), total.Load(), s.Bytes)
	}
}

func TestACancelledWriteLeavesNothingThatOpens(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	_, err := Write(ctx, Options{Preset: "tiny", Dir: dir, Progress: func(int64) func(int64) {
		var done atomic.Int64
		return func(n int64) {
			if done.Add(n) > 3e6 {
				cancel()
			}
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	for name := range contents(t, dir) {
		if strings.HasPrefix(name, partial) || strings.HasSuffix(name, "index.json") {
			t.Errorf("%s is there", name)
		}
	}
	if s := write(t, Options{Dir: dir}); s.Kept == 0 || s.Kept == s.Shards {
		t.Errorf("%d of %d shards were kept", s.Kept, s.Shards)
	}
}

// killedEnv makes the test below write to the directory it names until it is killed.
const killedEnv = "SYNTH_TEST_KILLED"

func TestAKilledWriteIsContinued(t *testing.T) {
	if dir := os.Getenv(killedEnv); dir != "" {
		var done atomic.Int64
		_, err := Write(context.Background(), Options{Preset: "tiny", Seed: 3, Dir: dir, Progress: func(int64) func(int64) {
			return func(n int64) {
				if done.Add(n) > 3e6 {
					fmt.Println("half")
					select {}
				}
			}
		}})
		t.Fatal(err)
	}
	dir, whole := t.TempDir(), t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestAKilledWriteIsContinued$")
	cmd.Env = append(os.Environ(), killedEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "half\n" {
		t.Fatalf("the child said %q, %v", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	left := false
	for name := range contents(t, dir) {
		left = left || strings.HasPrefix(name, partial)
	}
	if !left {
		t.Error("the child left no partial file, so this test shows nothing")
	}
	if s := write(t, Options{Seed: 3, Dir: dir}); s.Kept == 0 {
		t.Error("no shard was kept")
	}
	write(t, Options{Seed: 3, Dir: whole})
	same(t, contents(t, dir), contents(t, whole))
}

func TestAForeignDirectoryIsRefused(t *testing.T) {
	made := t.TempDir()
	write(t, Options{Seed: 1, Dir: made})
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "config.json"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	unreadable := t.TempDir()
	if err := os.WriteFile(filepath.Join(unreadable, markName), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Preset: "tiny", Seed: 2, Dir: made}, "holds preset tiny with seed 1 (version 1), not tiny with seed 2"},
		{Options{Preset: "bench-s", Seed: 1, Dir: made}, "holds preset tiny"},
		{Options{Preset: "tiny", Dir: foreign}, "has files that are not of this program, config.json for one"},
		{Options{Preset: "tiny", Dir: unreadable}, "does not say what is in the directory"},
		{Options{Preset: "tiny", Dir: filepath.Join(foreign, "config.json")}, "not a directory"},
		{Options{Preset: "large", Dir: t.TempDir()}, `preset "large": use bench-s, bench-m, layer`},
	} {
		before := map[string]string{}
		if st, err := os.Stat(c.o.Dir); err == nil && st.IsDir() {
			before = contents(t, c.o.Dir)
		}
		_, err := Write(context.Background(), c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: error %v, want %q", c.o, err, c.want)
		}
		if len(before) > 0 {
			same(t, contents(t, c.o.Dir), before)
		}
	}
}

func TestAFullDiskIsNoticedBeforehand(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "deep")
	w := writer{Options: Options{Preset: "tiny", Dir: dir}, files: []checkpoint.File{{Name: "a", Size: 1 << 60}}}
	if _, err := w.claim(mark{"tiny", 0, version}); err == nil || !strings.Contains(err.Error(), "needs 1152921504.67 GB more") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(filepath.Dir(dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory was left: %v", err)
	}
}

func TestADirectoryHasOneWriter(t *testing.T) {
	dir := t.TempDir()
	var second error
	write(t, Options{Dir: dir, Progress: func(int64) func(int64) {
		_, second = Write(context.Background(), Options{Preset: "tiny", Dir: dir})
		return func(int64) {}
	}})
	if second == nil || !strings.Contains(second.Error(), "another cedrun synth is writing to "+dir) {
		t.Errorf("error %v", second)
	}
	if s := write(t, Options{Dir: dir}); s.Kept != s.Shards {
		t.Errorf("%d of %d shards were kept", s.Kept, s.Shards)
	}
}
