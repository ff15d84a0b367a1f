package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// copyMini copies a mini checkpoint to a directory that the test may damage.
func copyMini(t testing.TB, name string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(miniDir(name))); err != nil {
		t.Fatal(err)
	}
	return dir
}

func shardPaths(t testing.TB, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "model-*.safetensors"))
	if err != nil || len(paths) == 0 {
		t.Fatal("no shards in", dir, err)
	}
	return paths
}

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// refused opens dir and checks that the error contains every text.
func refused(t *testing.T, dir string, texts ...string) {
	t.Helper()
	c, err := Open(dir, Options{})
	if err == nil {
		c.Close()
		t.Errorf("opened; want an error with %q", texts)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q does not contain %q", err, text)
		}
	}
}

func TestTruncatedShardIsNamedWithItsMissingBytes(t *testing.T) {
	for _, name := range minis {
		for _, keep := range []func(size int64) int64{
			func(size int64) int64 { return size - 1 },
			func(size int64) int64 { return size * 3 / 4 },
			func(size int64) int64 { return 4096 }, // inside the header
			func(size int64) int64 { return 9 },
		} {
			dir := copyMini(t, name)
			path := shardPaths(t, dir)[0]
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			left := keep(info.Size())
			if err := os.Truncate(path, left); err != nil {
				t.Fatal(err)
			}
			missing := info.Size() - left
			if left < 8192 { // only the header's own length is known
				header := make([]byte, 8)
				f, _ := os.Open(filepath.Join(miniDir(name), filepath.Base(path)))
				f.ReadAt(header, 0)
				f.Close()
				missing = 8 + int64(binary.LittleEndian.Uint64(header)) - left
			}
			refused(t, dir, filepath.Base(path)+" is truncated", fmt.Sprintf("%d of", missing), "download the file again")
		}
	}
}

func TestEveryFaultyShardIsNamed(t *testing.T) {
	dir := copyMini(t, "sched40")
	paths := shardPaths(t, dir)
	if err := os.Truncate(paths[0], 100000); err != nil {
		t.Fatal(err)
	}
	write(t, paths[1], "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1512758\n")
	if err := os.Remove(paths[2]); err != nil {
		t.Fatal(err)
	}
	refused(t, dir, filepath.Base(paths[0])+" is truncated", filepath.Base(paths[1])+" is not a safetensors file but a git-lfs pointer", filepath.Base(paths[2])+" is missing")
}

func TestReplyInPlaceOfAShardIsRecognised(t *testing.T) {
	for _, tt := range []struct{ name, body, want string }{
		{"git-lfs pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n", "a git-lfs pointer"},
		{"HTML page", "<!DOCTYPE html>\n<html><body>404</body></html>", "an HTML or XML page"},
		{"HTML page after blank lines", "\r\n\r\n<html></html>", "an HTML or XML page"},
		{"XML error", "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>", "an HTML or XML page"},
		{"JSON error", `{"error":"Invalid credentials in Authorization header"}`, `a JSON document ("{\"error\":\"Invalid credentials`},
		{"empty file", "", "is empty"},
		{"few bytes", "abc", "only 3 bytes"},
		{"text", "Not Found: no such object\n", "header length"},
		{"zeros", strings.Repeat("\x00", 64), "header length 0 is outside"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := copyMini(t, "base")
			path := shardPaths(t, dir)[0]
			write(t, path, tt.body)
			refused(t, dir, filepath.Base(path), tt.want, "download the file again")
		})
	}
}

func TestBytesAfterTheLastTensorAreRefused(t *testing.T) {
	dir := copyMini(t, "base")
	path := shardPaths(t, dir)[0]
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString("junk!")
	f.Close()
	refused(t, dir, "has 5 bytes after its last tensor")
}

func TestShardThatIsADirectoryIsRefused(t *testing.T) {
	dir := copyMini(t, "base")
	path := shardPaths(t, dir)[0]
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	refused(t, dir, "is not a regular file")
}

func TestDirectoryWithoutCheckpointIsRefused(t *testing.T) {
	refused(t, t.TempDir(), "neither model.safetensors.index.json nor model.safetensors is there")
	refused(t, filepath.Join(t.TempDir(), "absent"), "absent", "neither")
}

func TestBadIndexIsRefused(t *testing.T) {
	const shard = `"model-00001-of-00001.safetensors"`
	for _, tt := range []struct{ name, index, want string }{
		{"git-lfs pointer", "version https://git-lfs.github.com/spec/v1\n", "is not an index but a git-lfs pointer"},
		{"HTML page", "<html></html>", "is not an index but an HTML or XML page"},
		{"JSON error", `{"error":"not found"}`, `has no weight_map ("{\"error\"`},
		{"cut off", `{"weight_map":{"embed.weight":` + shard, "is malformed: expected ',' or '}'"},
		{"empty", "", "is malformed"},
		{"number for a shard", `{"weight_map":{"embed.weight":1}}`, "weight_map of embed.weight"},
		{"path outside the directory", `{"weight_map":{"embed.weight":"../x.safetensors"}}`, `"../x.safetensors" is not a plain file name`},
		{"absolute path", `{"weight_map":{"embed.weight":"/etc/passwd"}}`, "is not a plain file name"},
		{"tensor twice", `{"weight_map":{"norm.weight":` + shard + `,"model.norm.weight":` + shard + `}}`, "tensor norm.weight occurs twice"},
		{"map twice", `{"weight_map":{},"weight_map":{}}`, "weight_map occurs twice"},
		{"fractional size", `{"metadata":{"total_size":1.5},"weight_map":{}}`, "total_size: expected an integer"},
		{"trailing data", `{"weight_map":{}} x`, "data after the JSON object"},
		{"shard absent", `{"weight_map":{"embed.weight":"other.safetensors"}}`, "other.safetensors is missing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := copyMini(t, "base")
			write(t, filepath.Join(dir, indexName), tt.index)
			refused(t, dir, tt.want)
		})
	}
}

// editIndex changes the decoded index of a checkpoint.
func editIndex(t testing.TB, dir string, edit func(total *int64, weights map[string]string)) {
	t.Helper()
	path := filepath.Join(dir, indexName)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var x struct {
		Metadata struct {
			TotalSize int64 `json:"total_size"`
		} `json:"metadata"`
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(data, &x); err != nil {
		t.Fatal(err)
	}
	edit(&x.Metadata.TotalSize, x.WeightMap)
	if data, err = json.Marshal(x); err != nil {
		t.Fatal(err)
	}
	write(t, path, string(data))
}

func TestIndexThatDisagreesWithItsShardsIsRefused(t *testing.T) {
	t.Run("total size", func(t *testing.T) {
		dir := copyMini(t, "base")
		editIndex(t, dir, func(total *int64, _ map[string]string) { *total++ })
		refused(t, dir, "states total_size 3106249, but the shards hold 3106248 bytes")
	})
	t.Run("tensor that no shard has", func(t *testing.T) {
		dir := copyMini(t, "base")
		editIndex(t, dir, func(_ *int64, w map[string]string) { w["layers.3.extra"] = w["embed.weight"] })
		refused(t, dir, "1 tensors in the index but in no shard: layers.3.extra")
	})
	t.Run("tensor that the index lacks", func(t *testing.T) {
		dir := copyMini(t, "base")
		editIndex(t, dir, func(_ *int64, w map[string]string) { delete(w, "norm.weight") })
		refused(t, dir, "1 tensors not where the index says: norm.weight")
	})
	t.Run("tensor in another shard", func(t *testing.T) {
		dir := copyMini(t, "wide")
		editIndex(t, dir, func(_ *int64, w map[string]string) { w["norm.weight"] = "model-00002-of-00002.safetensors" })
		refused(t, dir, "1 tensors not where the index says: norm.weight")
	})
	t.Run("long lists are cut after ten names", func(t *testing.T) {
		dir := copyMini(t, "base")
		editIndex(t, dir, func(_ *int64, w map[string]string) {
			for i := range 12 {
				w[fmt.Sprintf("extra.%02d", i)] = w["embed.weight"]
			}
		})
		_, err := Open(dir, Options{})
		if err == nil || !strings.Contains(err.Error(), "12 tensors") || strings.Count(err.Error(), "extra.") != 10 || !strings.Contains(err.Error(), ", ...") {
			t.Errorf("%v", err)
		}
	})
}

func TestTensorStoredTwiceIsRefused(t *testing.T) {
	dir := t.TempDir()
	one := []Out{{Name: "a", DType: U8, Shape: []int64{1}, Data: []byte{1}}}
	for _, f := range []string{"x.safetensors", "y.safetensors"} {
		if err := WriteFile(filepath.Join(dir, f), one); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, indexName), `{"weight_map":{"a":"x.safetensors","b":"y.safetensors"}}`)
	refused(t, dir, "1 tensors stored twice: a", "1 tensors in the index but in no shard: b")
}

func TestSingleFileNeedsNoIndex(t *testing.T) {
	dir := copyMini(t, "base")
	if err := os.Rename(shardPaths(t, dir)[0], filepath.Join(dir, singleName)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, indexName)); err != nil {
		t.Fatal(err)
	}
	c := mustOpen(t, dir, Options{})
	if _, err := c.Check(loadConfig(t, dir)); err != nil {
		t.Error(err)
	}
}

func TestIndexNeedsNoTotalSize(t *testing.T) {
	dir := copyMini(t, "base")
	data, err := os.ReadFile(filepath.Join(dir, indexName))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := bytes.Cut(data, []byte(`"weight_map"`))
	if !ok {
		t.Fatal("no weight_map")
	}
	write(t, filepath.Join(dir, indexName), `{"weight_map"`+string(rest))
	mustOpen(t, dir, Options{})
}

func TestShardsAreListedInOrder(t *testing.T) {
	c := mustOpen(t, miniDir("sched40"), Options{})
	if s := c.Shards(); len(s) != 3 || !slices.IsSorted(s) {
		t.Errorf("shards %v", s)
	}
}
