package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"cedrun/testdata/demo"
)

// generated runs generate --json and reads the object it prints.
func generated(t *testing.T, stdin string, args ...string) output {
	t.Helper()
	r := succeed(t, stdin, append([]string{"generate", "--json"}, args...)...)
	d := json.NewDecoder(strings.NewReader(r.out))
	d.DisallowUnknownFields()
	var o output
	if err := d.Decode(&o); err != nil {
		t.Fatalf("%v in %s", err, r.out)
	}
	if _, err := d.Token(); err != io.EOF {
		t.Errorf("more than one JSON value: %s", r.out)
	}
	return o
}

func TestTheEmbeddedModelWritesTextWithoutAnyFlag(t *testing.T) {
	if _, ok := demo.FS(); !ok {
		t.Fatal("the demo model is not embedded: testdata/demo has no config.json")
	}
	for _, stdin := range []string{"", "In the beginning\n"} {
		if r := succeed(t, stdin, "generate"); len(r.out) < 100 || !utf8.ValidString(r.out) {
			t.Errorf("stdin %q: wrote %q", stdin, r.out)
		}
	}
}

// ended is a text as it is streamed: its last line ends.
func ended(text string) string {
	if text == "" {
		return ""
	}
	return strings.TrimSuffix(text, "\n") + "\n"
}

func TestGenerateStreamsWhatJSONReports(t *testing.T) {
	m := []string{"-m", small(t), "-p", "Hello", "--raw", "--max-tokens", "40", "--seed", "7"}
	plain := succeed(t, "", append([]string{"generate"}, m...)...)
	o := generated(t, "", m...)
	if plain.out != ended(o.Text) || o.Text == "" || plain.err != "" {
		t.Errorf("streamed %q (stderr %q), JSON has %q", plain.out, plain.err, o.Text)
	}
	if !utf8.ValidString(o.Text) {
		t.Errorf("%q is not valid UTF-8", o.Text)
	}
	s := o.Stats
	if len(o.TokenIDs) != s.NewTokens || s.PromptTokens != 6 || s.Prefill.Tokens != 6 {
		t.Errorf("%d ids, stats %+v", len(o.TokenIDs), s)
	}
	if o.Finish == "length" && (s.NewTokens != 40 || s.Decode.Tokens != 39) {
		t.Errorf("stats %+v of 40 tokens", s)
	}
	if s.Prefill.Active <= 0 || s.Decode.Active < s.Prefill.Active {
		t.Errorf("active parameters %d in prefill, %d in decode", s.Prefill.Active, s.Decode.Active)
	}
	if o.Backend != "cpu" || o.Prefill != "replay" || o.Threads < 1 || o.Model != small(t) {
		t.Errorf("%+v", o)
	}
}

// Scripts rely on these names.
func TestKeysOfTheJSONOutput(t *testing.T) {
	r := succeed(t, "", "generate", "--json", "-m", small(t), "-p", "Hello", "--max-tokens", "2")
	var got map[string]any
	if err := json.Unmarshal([]byte(r.out), &got); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		of   any
		want []string
	}{
		{got, []string{"backend", "finish", "model", "prefill", "stats", "text", "threads", "token_ids"}},
		{got["stats"], []string{"decode", "new_tokens", "prefill", "prompt_tokens"}},
		{got["stats"].(map[string]any)["decode"], []string{"active_parameters", "seconds", "tokens", "tokens_per_second"}},
	} {
		if keys := slices.Sorted(maps.Keys(c.of.(map[string]any))); !slices.Equal(keys, c.want) {
			t.Errorf("keys %v, want %v", keys, c.want)
		}
	}
	if strings.Count(r.out, "\n") != 1 {
		t.Errorf("not one line: %q", r.out)
	}
}

func TestTheSameInputAndSeedGiveTheSameText(t *testing.T) {
	base := []string{"-m", small(t), "-p", "Hello", "--max-tokens", "24", "--temperature", "1"}
	a := generated(t, "", append(base, "--seed", "1", "--threads", "1")...)
	b := generated(t, "", append(base, "--seed", "1", "--threads", "2")...)
	c := generated(t, "", append(base, "--seed", "2")...)
	if !slices.Equal(a.TokenIDs, b.TokenIDs) {
		t.Errorf("two threads changed the text: %v and %v", a.TokenIDs, b.TokenIDs)
	}
	if slices.Equal(a.TokenIDs, c.TokenIDs) {
		t.Errorf("another seed gave the same %v", a.TokenIDs)
	}
}

func TestBannedTokensAreNeverWritten(t *testing.T) {
	o := generated(t, "", "-m", small(t), "--raw", "-p", "x", "--max-tokens", "400", "--temperature", "5", "--top-p", "1")
	image := int32(259 + slices.Index(control, "<｜deepseek_image｜>"))
	for _, id := range o.TokenIDs {
		if id <= 2 || id == image {
			t.Fatalf("token %d was written", id)
		}
	}
	if strings.Contains(o.Text, "end▁of▁sentence") {
		t.Errorf("EOS in the text: %q", o.Text)
	}
}

func TestPromptSources(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.txt")
	if err := os.WriteFile(path, []byte("Hello\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	m := []string{"-m", small(t), "--max-tokens", "8"}
	want := generated(t, "", append(m, "-p", "Hello")...)
	for name, o := range map[string]output{
		"file":             generated(t, "", append(m, "--prompt-file", path)...),
		"file -":           generated(t, "Hello\n", append(m, "--prompt-file", "-")...),
		"stdin":            generated(t, "Hello", m...),
		"messages":         generated(t, `[{"role": "user", "content": "Hello"}]`, append(m, "--messages", "-")...),
		"messages, object": generated(t, `{"messages": [{"role": "user", "content": "Hello"}], "thinking": false}`, append(m, "--messages", "-")...),
	} {
		if !slices.Equal(o.TokenIDs, want.TokenIDs) || o.Stats.PromptTokens != want.Stats.PromptTokens {
			t.Errorf("%s: %d prompt tokens, %v; want %d, %v", name, o.Stats.PromptTokens, o.TokenIDs, want.Stats.PromptTokens, want.TokenIDs)
		}
	}
}

func TestPromptLengths(t *testing.T) {
	m := []string{"-m", small(t), "-p", "Hello", "--max-tokens", "0"}
	for _, c := range []struct {
		name string
		args []string
		want int
	}{
		{"template: BOS, user, text, assistant, end of thinking", nil, 5 + 4},
		{"raw: BOS and text", []string{"--raw"}, 5 + 1},
		{"raw without BOS", []string{"--raw", "--no-bos"}, 5},
		{"control tokens in the text are text", []string{"--raw", "-p", "</think>"}, 8 + 1},
	} {
		o := generated(t, "", append(m, c.args...)...)
		if o.Stats.PromptTokens != c.want || o.Stats.NewTokens != 0 || o.Text != "" || o.Finish != "length" {
			t.Errorf("%s: %d prompt tokens, want %d; %+v", c.name, o.Stats.PromptTokens, c.want, o)
		}
	}
	thinking := generated(t, "", append(m, "--thinking", "--effort", "low")...)
	if thinking.Stats.PromptTokens <= 9 {
		t.Errorf("thinking adds nothing to the prompt: %d tokens", thinking.Stats.PromptTokens)
	}
}

func TestDefaultsFitWhateverTheContext(t *testing.T) {
	m := []string{"generate", "-m", small(t), "--raw", "--json", "--temperature", "0", "-p"}
	for _, args := range [][]string{
		{"x", "--context", "3"},                            // room for one token
		{strings.Repeat("x", 100), "--context", "128"},     // less than the default of 512
		{strings.Repeat("x", 4090), "--prefill", "replay"}, // close to the model's end
		{strings.Repeat("x", 50), "--context", "51", "--seed", "1", "--no-bos"},
	} {
		succeed(t, "", append(m, args...)...)
	}
}

func TestStopStringsEndTheText(t *testing.T) {
	m := []string{"-m", small(t), "--raw", "-p", "Hello", "--max-tokens", "60", "--seed", "3"}
	whole := []rune(generated(t, "", m...).Text)
	if len(whole) < 20 {
		t.Fatalf("too short to cut: %q", string(whole))
	}
	stop := string(whole[10:13])
	want, _, _ := strings.Cut(string(whole), stop)
	o := generated(t, "", append(m, "--stop", "not in there, surely", "--stop", stop)...)
	if o.Text != want || o.Finish != "stop" || o.StopString != stop {
		t.Errorf("text %q finish %s stop %q, want %q", o.Text, o.Finish, o.StopString, want)
	}
	if r := succeed(t, "", append([]string{"generate"}, append(m, "--stop", stop)...)...); r.out != ended(want) {
		t.Errorf("streamed %q, want %q", r.out, want)
	}
}

func TestAStopStringMayHoldAComma(t *testing.T) {
	var o, p output
	m := []string{"-m", small(t), "--raw", "-p", "Hello", "--max-tokens", "60", "--seed", "3"}
	o = generated(t, "", m...)
	first := string([]rune(o.Text)[0])
	p = generated(t, "", append(m, "--stop", first+",no such text")...)
	if p.Text != o.Text {
		t.Errorf("%q was split at its comma: %q", first+",no such text", p.Text)
	}
}

func TestReasoningIsKeptOutOfAPipe(t *testing.T) {
	m := []string{"-m", small(t), "-p", "Hello", "--thinking", "--max-tokens", "20"}
	o := generated(t, "", m...)
	r := succeed(t, "", append([]string{"generate", "--log-level", "disabled"}, m...)...)
	if r.out != ended(o.Text) || !strings.HasPrefix(r.err, o.Reasoning) || o.Reasoning == "" {
		t.Errorf("stdout %q, stderr %q; want %q and %q", r.out, r.err, o.Text, o.Reasoning)
	}
}

func TestStatsArePrintedByPhase(t *testing.T) {
	r := succeed(t, "", "generate", "-m", small(t), "-p", "Hello", "--max-tokens", "5", "--stats")
	lines := strings.Split(strings.TrimSpace(r.err), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "prefill ") || !strings.HasPrefix(lines[1], "decode ") || !strings.HasSuffix(lines[1], "active parameters per token") {
		t.Errorf("stderr %q", r.err)
	}
}

// cancelling stops a command after some bytes, as Ctrl-C would.
type cancelling struct {
	got    []byte
	after  int
	cancel context.CancelFunc
}

func (c *cancelling) Write(b []byte) (int, error) {
	c.got = append(c.got, b...)
	if len(c.got) >= c.after {
		c.cancel()
	}
	return len(b), nil
}

func TestInterruptKeepsWhatWasWritten(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	out, errs := &cancelling{after: 10, cancel: cancel}, &bytes.Buffer{}
	args := []string{"cedrun", "generate", "-m", small(t), "--raw", "-p", "Hello", "--max-tokens", "4000", "--stats", "--seed", "3", "--temperature", "1.5"}
	status := run(ctx, args, strings.NewReader(""), out, errs)
	if status != exitInterrupted {
		t.Errorf("exit status %d, want %d", status, exitInterrupted)
	}
	if len(out.got) < 10 || !utf8.Valid(out.got) {
		t.Errorf("stdout %q", out.got)
	}
	for _, want := range []string{"prefill ", "decode ", "interrupted"} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("stderr lacks %q: %q", want, errs)
		}
	}
}

func TestInterruptBeforeTheFirstToken(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r := cedrunIn(ctx, "", "generate", "-m", small(t), "-p", "Hello"); r.status != exitInterrupted {
		t.Errorf("exit status %d, stderr %q", r.status, r.err)
	}
}

func TestBackEndsAndModesRun(t *testing.T) {
	for _, args := range [][]string{
		{"--backend", "ref"}, {"--backend", "cpu"}, {"--backend", "auto"}, {"--no-map"},
		{"--prefill", "exact"}, {"--prefill", "cone"}, {"--prefill", "replay"},
	} {
		generated(t, "", append([]string{"-m", small(t), "-p", "Hello", "--max-tokens", "3"}, args...)...)
	}
}

func TestFit(t *testing.T) {
	for _, c := range []struct {
		name                        string
		prompt, max                 int
		given                       bool
		context, most               int
		wantContext, wantMax, error int
	}{
		{name: "all defaults", prompt: 10, most: 1 << 20, wantContext: 8192, wantMax: 512},
		{name: "small model", prompt: 10, most: 100, wantContext: 100, wantMax: 90},
		{name: "long prompt", prompt: 9000, most: 1 << 20, wantContext: 9512, wantMax: 512},
		{name: "long prompt, small model", prompt: 9000, most: 9001, wantContext: 9001, wantMax: 1},
		{name: "many tokens", prompt: 10, max: 9000, given: true, most: 1 << 20, wantContext: 9010, wantMax: 9000},
		{name: "small context", prompt: 10, context: 20, most: 100, wantContext: 20, wantMax: 10},
		{name: "nothing to write", prompt: 10, given: true, most: 100, wantContext: 100},
		{name: "prompt fills the model", prompt: 100, most: 100, error: 1},
		{name: "prompt fills the context", prompt: 20, context: 20, most: 100, error: 1},
		{name: "too many tokens", prompt: 10, max: 91, given: true, most: 100, error: 1},
		{name: "too large a context", prompt: 10, context: 101, most: 100, error: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			context, maxTokens, err := fit(c.prompt, c.max, c.given, c.context, c.most)
			if (err != nil) != (c.error == 1) || context != c.wantContext || maxTokens != c.wantMax {
				t.Errorf("context %d, max %d, %v; want %d, %d", context, maxTokens, err, c.wantContext, c.wantMax)
			}
		})
	}
}
