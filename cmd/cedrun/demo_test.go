package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cedrun/runtime/engine"
	"cedrun/runtime/eval"
	"cedrun/runtime/tokenizer"
	"cedrun/testdata/demo"
)

// trained gives a file of the embedded model and its tokenizer; tests that need a trained model are skipped without.
func trained(t *testing.T, name string) (string, *tokenizer.Tokenizer) {
	t.Helper()
	fsys, ok := demo.FS()
	if !ok {
		t.Skip("no embedded model in this build")
	}
	data, err := fs.ReadFile(fsys, name)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := engine.Source{FS: fsys}.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	return string(data), tok
}

// evaluate runs cedrun eval on the embedded model.
func evaluate(t *testing.T, to any, args ...string) {
	t.Helper()
	r := succeed(t, "", append([]string{"eval", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(r.out), to); err != nil {
		t.Fatalf("%v in %s", err, r.out)
	}
}

// A wrong row in the window, in an open group or at a group's position shows at some prompt lengths only: what the model
// can recall must not depend on the length modulo window and groups.
func TestRecallHoldsAtEveryPromptLength(t *testing.T) {
	data, tok := trained(t, "recall.json")
	cases, err := eval.ParseCases([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	const remainders = 64 // a multiple of window and group
	const each = 2
	var shifted []eval.Case
	for i := range remainders * each {
		c := cases[i%each*len(cases)/each/2] // of the shorter distances
		want := (len(tok.Encode(c.Prompt, tokenizer.Options{})) + i/each) % remainders
		for len(tok.Encode(c.Prompt, tokenizer.Options{}))%remainders != want {
			c.Prompt = "\n" + c.Prompt
		}
		c.Distance = want % 8
		shifted = append(shifted, c)
	}
	file, err := json.Marshal(shifted)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "cases.json")
	if err := os.WriteFile(path, file, 0o644); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Distances []eval.Accuracy
		All       eval.Accuracy
	}
	evaluate(t, &got, "--recall", path)
	for _, a := range got.Distances {
		t.Logf("prompts of %d modulo 8: %d of %d right", a.Distance, a.Right, a.Cases)
		if a.Accuracy < got.All.Accuracy-0.3 {
			t.Errorf("prompts of %d modulo 8: %d of %d right, of all %d of %d", a.Distance, a.Right, a.Cases, got.All.Right, got.All.Cases)
		}
	}
}

// The embedded model selects among its global rows from position 65 on and among candidate blocks from position 97 on: its
// loss must keep falling, or at least stay, where they begin.
func TestLossDoesNotJumpWithTheContext(t *testing.T) {
	text, _ := trained(t, "heldout.txt")
	path := textFile(t, strings.ToValidUTF8(text[:min(len(text), 24<<10)], ""))
	var l eval.Loss
	evaluate(t, &l, "--text", path, "--context", "2048")
	best := 0.0
	for _, b := range l.Positions {
		t.Logf("positions %d-%d: %d tokens, %.3f bits per byte", b.From, b.To-1, b.Tokens, b.BitsPerByte)
		if b.Tokens < 256 {
			continue
		}
		if best > 0 && b.BitsPerByte > 1.15*best {
			t.Errorf("positions %d-%d: %.3f bits per byte after %.3f", b.From, b.To-1, b.BitsPerByte, best)
		}
		if best == 0 || b.BitsPerByte < best {
			best = b.BitsPerByte
		}
	}
}
