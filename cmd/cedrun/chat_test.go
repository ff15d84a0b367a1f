package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/peterh/liner"

	"cedrun/testdata/demo"
)

// plainText biases the test model, which writes any bytes, to a and b, so that what it writes is one token per byte.
var plainText = []string{"--temperature", "1", "--logit-bias", "100=100", "--logit-bias", "101=100"}

func chatArgs(t *testing.T, args ...string) []string {
	return slices.Concat([]string{"chat", "-m", small(t), "--max-tokens", "6"}, plainText, args)
}

func TestChatAnswersEachLineOfAPipe(t *testing.T) {
	r := succeed(t, "Hello\n\nand more \\\nto come\r\n//etc", chatArgs(t)...)
	answers := strings.Split(strings.TrimSuffix(r.out, "\n"), "\n")
	if len(answers) != 3 || r.err != "" {
		t.Fatalf("stdout %q, stderr %q", r.out, r.err)
	}
	for _, a := range answers {
		if !regexp.MustCompile(`^[ab]{6}$`).MatchString(a) {
			t.Errorf("answer %q", a)
		}
	}
}

func TestChatTalksWithTheEmbeddedModel(t *testing.T) {
	if _, ok := demo.FS(); !ok {
		t.Fatal("the demo model is not embedded: testdata/demo has no config.json")
	}
	if r := succeed(t, "In the beginning\n", "chat", "--max-tokens", "8"); strings.TrimSpace(r.out) == "" || r.err != "" {
		t.Errorf("stdout %q, stderr %q", r.out, r.err)
	}
}

// saved is the conversation that a chat with these lines leaves.
func saved(t *testing.T, lines string, args ...string) (messages []struct{ Role, Content, ReasoningContent string }, r result) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "chat.json")
	r = succeed(t, lines+"\n/save "+path+"\n", chatArgs(t, args...)...)
	var file struct {
		Messages []struct {
			Role, Content    string
			ReasoningContent string `json:"reasoning_content"`
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	for _, m := range file.Messages {
		messages = append(messages, struct{ Role, Content, ReasoningContent string }(m))
	}
	return messages, r
}

func TestChatRemembersTheConversation(t *testing.T) {
	got, r := saved(t, "Hello\n//etc\n one \\\ntwo", "--system", "Be brief.")
	answers := strings.Fields(r.out)
	want := []string{"system: Be brief.", "user: Hello", "assistant: " + answers[0], "user: /etc", "assistant: " + answers[1], "user:  one \ntwo", "assistant: " + answers[2]}
	var have []string
	for _, m := range got {
		have = append(have, m.Role+": "+m.Content)
	}
	if !slices.Equal(have, want) {
		t.Errorf("%q, want %q", have, want)
	}
}

// The conversation that was saved, with another question, has the same answer from generate as from the chat itself:
// a chat is nothing but its messages. Exact prefill, so that what was reused has the bits of what is computed anew.
func TestAChatIsItsMessages(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "1.json"), filepath.Join(dir, "2.json")
	r := succeed(t, "Hello\nagain\n/save "+first+"\nand again\n/save "+second+"\n", chatArgs(t, "--prefill", "exact")...)
	answers := strings.Fields(r.out)
	r = succeed(t, "/load "+first+"\nand again\n", chatArgs(t, "--prefill", "exact")...)
	if got := strings.TrimSpace(r.out); got != answers[2] {
		t.Errorf("loaded and asked again: %q, was %q", got, answers[2])
	}
	r = succeed(t, "and again\n", chatArgs(t, "--prefill", "exact", "--messages", first)...)
	if got := strings.TrimSpace(r.out); got != answers[2] {
		t.Errorf("begun with the file: %q, was %q", got, answers[2])
	}
	data, err := os.ReadFile(second)
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]any
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	messages := file["messages"].([]any)
	file["messages"] = messages[:len(messages)-1] // the question without its answer
	question, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	o := generated(t, string(question), slices.Concat([]string{"-m", small(t), "--max-tokens", "6", "--messages", "-", "--prefill", "exact"}, plainText)...)
	if o.Text != answers[2] {
		t.Errorf("generate answers %q, the chat %q", o.Text, answers[2])
	}
}

var reusedLine = regexp.MustCompile(`reused +(\d+) tokens of the prompt's (\d+)\n`)

// reuse reads the pairs (reused, prompt) from printed statistics.
func reuse(t *testing.T, printed string) (out [][2]int) {
	t.Helper()
	for _, m := range reusedLine.FindAllStringSubmatch(printed, -1) {
		reused, _ := strconv.Atoi(m[1])
		prompt, _ := strconv.Atoi(m[2])
		out = append(out, [2]int{reused, prompt})
	}
	return out
}

// Behaviours 39 and 66: the history renders to the tokens that are in the KV cache, each at its position, so that a
// turn computes the last token of the answer before, its EOS, and what is new.
func TestAChatKeepsItsKVBetweenTurns(t *testing.T) {
	for _, mode := range []string{"exact", "cone", "replay"} {
		r := succeed(t, "Hello\nagain\nand again\n/reset\nHello\n", chatArgs(t, "--stats", "--prefill", mode)...)
		// BOS, user, Hello, assistant, </think> are 9; an answer has 6; EOS, user, assistant, </think> are 4 more.
		want := [][2]int{{0, 9}, {14, 24}, {29, 43}, {0, 9}}
		if got := reuse(t, r.err); !slices.Equal(got, want) {
			t.Errorf("%s: (reused, prompt) %v, want %v\n%s", mode, got, want, r.err)
		}
	}
}

// What the tokenizer would not choose, here halves of characters, and what is not shown, newlines around an answer, stays
// as the model wrote it.
func TestAChatKeepsTheModelsOwnTokens(t *testing.T) {
	for name, b := range map[string]int{"the first byte of three": 0xE6, "newline": '\n'} {
		also := fmt.Sprintf("%d=100", 3+b) // with a and b
		r := succeed(t, "Hello\nagain\nand again\n", chatArgs(t, "--stats", "--logit-bias", also)...)
		if got, want := reuse(t, r.err), [][2]int{{0, 9}, {14, 24}, {29, 43}}; !slices.Equal(got, want) {
			t.Errorf("%s: (reused, prompt) %v, want %v; stdout %q", name, got, want, r.out)
		}
	}
}

// Reasoning that the template drops from the history cannot be reused; --keep-reasoning keeps both.
func TestChatWithReasoning(t *testing.T) {
	lines := "Hello\nagain\n"
	thinking := []string{"--thinking", "--effort", "7", "--stats", "--max-tokens", "12", "--log-level", "error"} // all of it reasoning
	dropped := reuse(t, succeed(t, lines, chatArgs(t, thinking...)...).err)
	kept := reuse(t, succeed(t, lines, chatArgs(t, append(thinking, "--keep-reasoning")...)...).err)
	if len(dropped) != 2 || len(kept) != 2 || dropped[1][0] != 0 || kept[1][0] != kept[0][1]+11 {
		t.Errorf("(reused, prompt) %v, with the reasoning kept %v", dropped, kept)
	}
	got, _ := saved(t, "Hello", thinking...)
	if len(got) != 2 || got[1].ReasoningContent == "" {
		t.Errorf("reasoning was not saved: %+v", got)
	}
}

func TestChatCommandsThatFail(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "no", "where")
	for _, c := range []struct{ line, want string }{
		{"/save", "/save needs a file"}, {"/load", "/load needs a file"}, {"/load " + nowhere, "no such file"},
		{"/save " + nowhere, "there are no messages yet"}, {"/stats", "no answer yet"}, {"/stats now", `/stats takes nothing after it, not "now"`},
		{"/quit", "unknown command /quit: /help lists them"},
	} {
		r := cedrun(t, c.line+"\nHello\n", chatArgs(t)...)
		if r.status != exitError || !strings.Contains(r.err, c.want) || strings.Count(r.err, "\n") != 1 || r.out != "" {
			t.Errorf("%s: status %d, stdout %q, stderr %q", c.line, r.status, r.out, r.err)
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--messages", nowhere}, "--messages"},
		{[]string{"--messages", nowhere, "--system", "x"}, "--system and --messages: give one"},
		{[]string{"--effort", "low"}, "--effort needs --thinking"},
		{[]string{"--context", "9999"}, "this model takes at most 4096"},
		{[]string{"--stop", ""}, "stop string"},
	} {
		if r := cedrun(t, "Hello\n", chatArgs(t, c.args...)...); r.status != exitError || !strings.Contains(r.err, c.want) {
			t.Errorf("%v: status %d, stderr %q", c.args, r.status, r.err)
		}
	}
}

func TestAFullContextIsSaid(t *testing.T) {
	r := cedrun(t, "Hello\nthis does not fit any more\n", chatArgs(t, "--context", "20")...)
	if r.status != exitError || !strings.Contains(r.err, "the context holds 20: /reset begins a new one, --context makes room") || len(strings.Fields(r.out)) != 1 {
		t.Errorf("status %d, stdout %q, stderr %q", r.status, r.out, r.err)
	}
}

// typist types lines in place of a person.
type typist struct {
	lines   []any // string or error
	history []string
	closed  bool
}

func (p *typist) Prompt(string) (string, error) {
	if len(p.lines) == 0 {
		return "", io.EOF
	}
	next := p.lines[0]
	p.lines = p.lines[1:]
	if err, ok := next.(error); ok {
		return "", err
	}
	return next.(string), nil
}

func (p *typist) AppendHistory(line string) { p.history = append(p.history, line) }

func (p *typist) Close() error {
	p.closed = true
	return nil
}

// typing runs a chat at a terminal; signals come from the channel.
func typing(t *testing.T, p *typist, out io.Writer, signals chan os.Signal, args ...string) (errs string, err error) {
	t.Helper()
	var stderr bytes.Buffer
	con := newConsole(strings.NewReader(""), out, &stderr)
	con.edit = func() editor { return p }
	con.interrupts = func() (<-chan os.Signal, func()) { return signals, func() {} }
	err = newApp(con).RunContext(context.Background(), append([]string{"cedrun"}, args...))
	if !p.closed {
		t.Error("the terminal was not given back")
	}
	return stderr.String(), err
}

func TestAPersonSeesErrorsAndGoesOn(t *testing.T) {
	var out bytes.Buffer
	p := &typist{lines: []any{"/nonsense", "/load nowhere.json", liner.ErrPromptAborted, "", "Hello", "/help", "/stats", "/exit", "never read"}}
	errs, err := typing(t, p, &out, nil, chatArgs(t)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"unknown command /nonsense", "nowhere.json: no such file"} {
		if !strings.Contains(errs, want) {
			t.Errorf("stderr lacks %q: %q", want, errs)
		}
	}
	for _, want := range []string{"context of 4096 tokens\n/help lists", "/exit or Ctrl-D ends the chat.", "/save FILE    write", "reused        0 tokens of the prompt's 9"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("stdout lacks %q: %q", want, out.String())
		}
	}
	if len(p.lines) != 1 || !slices.Equal(p.history, []string{"/nonsense", "/load nowhere.json", "Hello", "/help", "/stats", "/exit"}) {
		t.Errorf("left %v, history %q", p.lines, p.history)
	}
}

// signalling sends a signal once some text has been written.
type signalling struct {
	buf     bytes.Buffer
	after   string
	signals chan os.Signal
	signal  os.Signal
}

func (s *signalling) Write(b []byte) (int, error) {
	n, err := s.buf.Write(b)
	if s.signal != nil && strings.Contains(s.buf.String(), s.after) {
		s.signals <- s.signal
		s.signal = nil
	}
	return n, err
}

// Ctrl-C stops the answer, not the program: what was written stays, is remembered, and its KV is reused.
func TestCtrlCStopsTheAnswerOnly(t *testing.T) {
	signals := make(chan os.Signal, 1)
	out := &signalling{after: "ends.\na", signals: signals, signal: os.Interrupt}
	path := filepath.Join(t.TempDir(), "chat.json")
	p := &typist{lines: []any{"Hello", "/stats", "again", "/stats", "/save " + path}}
	// Only "a", so that its coming can be waited for, until Ctrl-C.
	errs, err := typing(t, p, out, signals, "chat", "-m", small(t), "--logit-bias", "100=100", "--max-tokens", "3000", "--log-level", "error")
	if err != nil {
		t.Fatalf("%v, stderr %q", err, errs)
	}
	_, text, _ := strings.Cut(out.buf.String(), "ends.\n")
	answer, _, _ := strings.Cut(text, "\n")
	if answer == "" || len(answer) >= 3000 || strings.Trim(answer, "a") != "" {
		t.Fatalf("answer of %d bytes", len(answer))
	}
	got := reuse(t, out.buf.String())
	if len(got) != 2 || got[1][0] < 9+len(answer)-1 || got[1][1] != 9+len(answer)+4+len("again") {
		t.Errorf("(reused, prompt) %v after an answer of %d tokens", got, len(answer))
	}
	data, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(data), `"`+answer+`"`) {
		t.Errorf("the stopped answer was not remembered: %v", err)
	}
}

func TestSIGTERMEndsTheChat(t *testing.T) {
	signals := make(chan os.Signal, 1)
	out := &signalling{after: "ends.\na", signals: signals, signal: syscall.SIGTERM}
	p := &typist{lines: []any{"Hello", "never read"}}
	if _, err := typing(t, p, out, signals, "chat", "-m", small(t), "--logit-bias", "100=100", "--max-tokens", "3000"); err != errInterrupted || len(p.lines) != 1 {
		t.Errorf("%v, %d lines left", err, len(p.lines))
	}
}
