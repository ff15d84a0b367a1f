package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cedrun/runtime/checkpoint"
)

// rewriteModel copies the small model with its tensors changed.
func rewriteModel(t *testing.T, change func([]checkpoint.Out) []checkpoint.Out) string {
	t.Helper()
	dir := copyModel(t, small(t))
	ck, err := checkpoint.Open(small(t), checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	if err := ck.Copy(filepath.Join(dir, "model.safetensors"), change); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A checkpoint that cannot be right is refused before anything runs: exit status 1, one report with names, no text, no
// stack trace.
func TestAFaultyCheckpointIsRefusedInOneReport(t *testing.T) {
	overwrite := func(content string) string {
		dir := copyModel(t, small(t))
		if err := os.WriteFile(filepath.Join(dir, "model.safetensors"), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	truncated := copyModel(t, small(t))
	shard := filepath.Join(truncated, "model.safetensors")
	st, err := os.Stat(shard)
	if err == nil {
		err = os.Truncate(shard, st.Size()-1000)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, dir string
		want      []string
	}{
		{"truncated shard", truncated, []string{"model.safetensors", "1000 of"}},
		{"git-lfs pointer", overwrite("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n"), []string{"model.safetensors", "git-lfs"}},
		{"web page", overwrite("<!DOCTYPE html><html>Too many requests</html>"), []string{"model.safetensors", "HTML"}},
		{"missing tensors", rewriteModel(t, func(in []checkpoint.Out) []checkpoint.Out {
			return slices.DeleteFunc(in, func(x checkpoint.Out) bool { return strings.Contains(x.Name, "indexer.wq_b.scale") })
		}), []string{"tensors missing", "indexer.wq_b.scale"}},
		{"a tensor nobody reads", rewriteModel(t, func(in []checkpoint.Out) []checkpoint.Out {
			return append(in, checkpoint.Out{Name: "layers.0.attn.q_head_norm.weight", DType: checkpoint.BF16, Shape: []int64{1}, Data: make([]byte, 2)})
		}), []string{"1 tensors unexpected", "q_head_norm"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := cedrun(t, "", "generate", "-m", c.dir, "-p", "Hello")
			if r.status != exitError || r.out != "" {
				t.Errorf("status %d, stdout %q", r.status, r.out)
			}
			for _, want := range c.want {
				if !strings.Contains(r.err, want) {
					t.Errorf("stderr %q lacks %q", r.err, want)
				}
			}
			if strings.Contains(r.err, "goroutine") || strings.Contains(r.err, "corrupt") || len(r.err) > 2000 {
				t.Errorf("stderr is no report: %q", r.err)
			}
		})
	}
}

// The self-test runs before the first token and can be left out.
func TestDamagedWeightsAreNoticedBeforeTheFirstToken(t *testing.T) {
	dir := rewriteModel(t, func(in []checkpoint.Out) []checkpoint.Out {
		for _, x := range in {
			if x.Name == "norm.weight" {
				for i := range x.Data {
					x.Data[i] = 0xFF // NaN in BF16 and F32
				}
			}
		}
		return in
	})
	r := cedrun(t, "", "generate", "-m", dir, "-p", "Hello")
	if r.status != exitError || r.out != "" || !strings.Contains(r.err, "self-test") || strings.Count(strings.TrimSpace(r.err), "\n") > 0 {
		t.Errorf("status %d, stdout %q, stderr %q", r.status, r.out, r.err)
	}
	r = cedrun(t, "", "generate", "-m", dir, "-p", "Hello", "--no-self-test")
	if r.status != exitError || strings.Contains(r.err, "self-test") {
		t.Errorf("without it: status %d, stderr %q", r.status, r.err)
	}
}

// The defaults of every command fit each other and any model: only what has no default is given.
func TestEveryCommandRunsWithItsDefaults(t *testing.T) {
	dir := copyModel(t, small(t))
	if err := os.WriteFile(filepath.Join(dir, "heldout.txt"), []byte(sample120), 0o644); err != nil {
		t.Fatal(err)
	}
	invocations := map[string]struct {
		stdin string
		args  []string
	}{
		"generate":   {"Hello", []string{"-m", dir}},
		"chat":       {"Hello\n", []string{"-m", dir, "--max-tokens", "20"}},
		"eval":       {"", []string{"-m", dir}},
		"logits":     {"", []string{"-m", dir, "--ids", "1", "--out", filepath.Join(t.TempDir(), "l.safetensors")}},
		"conform":    {"", []string{"-m", testdata + "mini/calm"}},
		"tokenize":   {"Hello", []string{"-m", dir}},
		"render":     {"Hello", []string{"-m", dir}},
		"inspect":    {"", []string{"-m", dir}},
		"verify":     {"", []string{"-m", dir}},
		"plan":       {"", []string{"-m", dir}},
		"bench":      {"", []string{"-m", dir, "--repeat", "1"}},
		"profile":    {"", []string{"-m", dir}},
		"doctor":     {"", []string{"-m", dir, "--port", "0"}}, // its default may be in use
		"top":        {"", []string{"--once"}},
		"completion": {"", []string{"bash"}},
		"synth":      {"", []string{"--preset", "tiny", "--out", t.TempDir()}},
	}
	for _, c := range newApp(newConsole(strings.NewReader(""), io.Discard, io.Discard)).Commands {
		if c.Name == "serve" || c.Name == "load" {
			continue // does not end by itself, and needs one that runs: serve_test.go and load_test.go run them
		}
		t.Run(c.Name, func(t *testing.T) {
			i, ok := invocations[c.Name]
			if !ok {
				t.Fatal("no default invocation is known")
			}
			if r := succeed(t, i.stdin, append([]string{c.Name}, i.args...)...); r.out == "" {
				t.Errorf("wrote nothing; stderr %q", r.err)
			}
		})
	}
}
