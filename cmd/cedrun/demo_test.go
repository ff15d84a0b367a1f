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
	"cedrun/runtime/selftest"
	"cedrun/runtime/tokenizer"
	"cedrun/testdata/demo"
)

// trained gives a file of the embedded model and its tokenizer.
func trained(t *testing.T, name string) (string, *tokenizer.Tokenizer) {
	t.Helper()
	fsys, ok := demo.FS()
	if !ok {
		t.Fatal("the demo model is not embedded: testdata/demo has no config.json")
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

// The embedded model selects among its global rows from position 65 on, among candidate blocks from position 97, and turns
// beyond YaRN's original context at 8192: seeing more of the same text must never cost it more than a trace.
func TestLossDoesNotJumpWithTheContext(t *testing.T) {
	text, _ := trained(t, "heldout.txt")
	for _, c := range []struct {
		bytes    int
		contexts []string
	}{{12 << 10, []string{"64", "96", "512", "2048"}}, {36 << 10, []string{"2048", "9216"}}} {
		path := textFile(t, strings.ToValidUTF8(text[:min(len(text), c.bytes)], ""))
		var before eval.Loss
		for i, context := range c.contexts {
			var l eval.Loss
			evaluate(t, &l, "--text", path, "--context", context)
			t.Logf("%d bytes in contexts of %s tokens: %.4f bits per byte", l.Bytes, context, l.BitsPerByte)
			if i > 0 && l.BitsPerByte > 1.02*before.BitsPerByte {
				t.Errorf("%.4f bits per byte in contexts of %s tokens, %.4f in shorter ones", l.BitsPerByte, context, before.BitsPerByte)
			}
			before = l
		}
	}
}

// The answer that the embedded model is known to give is checked at every start, whatever the back end.
func TestTheEmbeddedModelKnowsItsAnswer(t *testing.T) {
	file, tok := trained(t, "selftest.json")
	known, err := selftest.ParseKnown([]byte(file), tok.VocabSize())
	if err != nil || known.Top1 == nil {
		t.Fatal(known, err)
	}
	if text := tok.Decode([]int32{*known.Top1}); text != " days" { // And it came to pass in those
		t.Errorf("the answer is %q", text)
	}
	for _, backend := range []string{"cpu", "ref"} {
		r := succeed(t, "", "generate", "--raw", "-p", "x", "--max-tokens", "1", "--backend", backend, "--log-level", "info")
		if !strings.Contains(r.err, "self-test") {
			t.Errorf("%s: no self-test in %q", backend, r.err)
		}
	}
}
