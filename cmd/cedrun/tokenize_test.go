package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestTokenizeAndDecodeAreInverse(t *testing.T) {
	m := []string{"tokenize", "-m", small(t)}
	for _, text := range []string{"Hello", "", "two\nlines\n\n", "汉字 <think> \U0001F600", "\"quoted\" & <b>"} {
		ids := succeed(t, "", append(m, "-p", text)...).out
		if text == "" {
			if ids != "\n" {
				t.Errorf("ids of nothing: %q", ids)
			}
			continue
		}
		if got := succeed(t, ids, append(m, "--decode", "-")...).out; got != text {
			t.Errorf("%q became %q by way of %s", text, got, ids)
		}
		if got := succeed(t, "", append(m, "--decode", ids)...).out; got != text {
			t.Errorf("%q became %q by way of --decode %s", text, got, ids)
		}
	}
}

func TestTokenizeReadsAPipeAndAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(path, []byte("Hello\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	m := []string{"tokenize", "-m", small(t)}
	want := succeed(t, "", append(m, "-p", "Hello")...).out
	for name, r := range map[string]result{
		"stdin":  succeed(t, "Hello\n", m...),
		"file":   succeed(t, "", append(m, "--prompt-file", path)...),
		"file -": succeed(t, "Hello\n", append(m, "--prompt-file", "-")...),
	} {
		if r.out != want {
			t.Errorf("%s: %q, want %q", name, r.out, want)
		}
	}
}

func TestControlTokensAreTextUnlessAskedFor(t *testing.T) {
	m := []string{"tokenize", "--json", "-m", small(t), "-p", "<think>"}
	tokenized := func(args ...string) (o tokens) {
		t.Helper()
		if err := json.Unmarshal([]byte(succeed(t, "", args...).out), &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	if o := tokenized(m...); len(o.IDs) != len("<think>") || o.Text != "<think>" {
		t.Errorf("as text: %+v", o)
	}
	if o := tokenized(append(m, "--added-tokens")...); !slices.Equal(o.Tokens, []string{"<think>"}) || len(o.IDs) != 1 {
		t.Errorf("as a control token: %+v", o)
	}
	if o := tokenized("tokenize", "--json", "-m", small(t), "-p", ""); o.IDs == nil || o.Tokens == nil {
		t.Errorf("lists of nothing are not lists: %+v", o)
	}
}

func TestTokenizeNeedsNoWeights(t *testing.T) {
	dir := t.TempDir()
	data, err := os.ReadFile(filepath.Join(small(t), "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	succeed(t, "", "tokenize", "-m", dir, "-p", "Hello")
	succeed(t, "", "render", "-m", dir, "-p", "Hello", "--ids")
}

func TestRenderShowsTheTemplate(t *testing.T) {
	messages := `[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi <think>"}]`
	const want = "<｜begin▁of▁sentence｜><｜System｜>Be brief.<｜User｜>Hi <think><｜Assistant｜></think>"
	if r := succeed(t, messages, "render", "--messages", "-"); r.out != want {
		t.Errorf("text %q, want %q", r.out, want)
	}
	r := succeed(t, messages, "render", "-m", small(t), "--messages", "-", "--json")
	var o rendered
	if err := json.Unmarshal([]byte(r.out), &o); err != nil {
		t.Fatal(err)
	}
	// Four control tokens and BOS of the template; the user's <think> is text.
	if n := len("Be brief.") + len("Hi <think>") + 5; o.Text != want || len(o.IDs) != n {
		t.Errorf("%d ids, want %d: %+v", len(o.IDs), n, o)
	}
	ids := succeed(t, messages, "render", "-m", small(t), "--messages", "-", "--ids")
	if got := succeed(t, ids.out, "tokenize", "-m", small(t), "--decode", "-"); got.out != want {
		t.Errorf("the ids decode to %q", got.out)
	}
}

// The prompt that render shows is the one that generate uses.
func TestRenderShowsThePromptOfGenerate(t *testing.T) {
	for _, args := range [][]string{{"-p", "Hello"}, {"-p", "Hello", "--thinking", "--effort", "7"}} {
		args = append(args, "-m", small(t))
		ids := strings.Split(succeed(t, "", append([]string{"render", "--ids"}, args...)...).out, ",")
		if o := generated(t, "", append(args, "--max-tokens", "0")...); o.Stats.PromptTokens != len(ids) {
			t.Errorf("%v: %d prompt tokens, render shows %d", args, o.Stats.PromptTokens, len(ids))
		}
	}
}

func TestRenderShowsAFinishedConversation(t *testing.T) {
	r := succeed(t, `[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]`, "render", "--messages", "-")
	if !strings.HasSuffix(r.out, "b<｜end▁of▁sentence｜>") {
		t.Errorf("%q", r.out)
	}
}

func TestTokenizeBadInput(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"two sources", []string{"tokenize", "-p", "x", "--decode", "1"}, "--prompt and --decode: give one"},
		{"added tokens of ids", []string{"tokenize", "--decode", "1", "--added-tokens"}, "--added-tokens is about text"},
		{"words for ids", []string{"tokenize", "--decode", "one"}, `"one" is not a token id`},
		{"an id that is not there", []string{"tokenize", "-m", small(t), "--decode", "1,99999"}, "id 99999, number 2 of them"},
		{"no tokenizer", []string{"tokenize", "-m", testdata + "mini/base", "-p", "x"}, "no tokenizer.json"},
		{"no directory", []string{"tokenize", "-m", filepath.Join(t.TempDir(), "no"), "-p", "x"}, "no such file"},
		{"render of nothing", []string{"render"}, "the prompt is empty"},
		{"render with an effort without thinking", []string{"render", "-p", "x", "--effort", "low"}, "--effort needs --thinking"},
		{"completion of an unknown shell", []string{"completion", "fish"}, `"fish": give bash or zsh`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := cedrun(t, "", c.args...)
			if r.status != exitError || r.out != "" || !strings.Contains(r.err, c.want) || strings.Count(r.err, "\n") != 1 {
				t.Errorf("status %d, stdout %q, stderr %q; want %q", r.status, r.out, r.err, c.want)
			}
		})
	}
}
