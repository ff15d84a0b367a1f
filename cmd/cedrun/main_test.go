package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	ced "cedrun/cuda"
)

var workDir string

// asProgram in the environment makes the test binary be cedrun.
const asProgram = "TEST_AS_CEDRUN"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" { // a test wants the program in a process of its own
		main()
	}
	os.Exit(func() int {
		for _, v := range os.Environ() { // a developer's settings must not change what is tested
			if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "CEDRUN_") {
				os.Unsetenv(name)
			}
		}
		dir, err := os.MkdirTemp("", "cedrun")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		workDir = dir
		os.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
		os.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
		os.Setenv("XDG_RUNTIME_DIR", filepath.Join(dir, "run"))
		return m.Run()
	}())
}

// result is what a command line did.
type result struct {
	status   int
	out, err string
}

func cedrun(t testing.TB, stdin string, args ...string) result {
	t.Helper()
	return cedrunIn(context.Background(), stdin, args...)
}

func cedrunIn(ctx context.Context, stdin string, args ...string) result {
	var out, errs bytes.Buffer
	status := run(ctx, append([]string{"cedrun"}, args...), strings.NewReader(stdin), &out, &errs)
	return result{status, out.String(), errs.String()}
}

// succeed runs a command line that must.
func succeed(t testing.TB, stdin string, args ...string) result {
	t.Helper()
	r := cedrun(t, stdin, args...)
	if r.status != 0 {
		t.Fatalf("cedrun %s: status %d\n%s", strings.Join(args, " "), r.status, r.err)
	}
	return r
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, unix.ENOSPC }

func TestACommandThatCannotWriteItsResultsFails(t *testing.T) {
	edge := testdata + "mini/edge"
	for _, args := range [][]string{
		{"--help"}, {"--version"},
		{"conform", "-m", edge, "--golden", edge + "/golden_numpy.safetensors", "--golden", edge + "/golden.safetensors"},
		{"logits", "-m", edge, "--ids", "1,2", "--out", filepath.Join(t.TempDir(), "x")},
		{"inspect", "-m", edge},
		{"verify", "-m", edge},
	} {
		var errs bytes.Buffer
		if status := run(context.Background(), append([]string{"cedrun"}, args...), strings.NewReader(""), fullDisk{}, &errs); status != exitError {
			t.Errorf("%v: status %d", args, status)
		}
		if got := errs.String(); !strings.Contains(got, "no space left on device") || strings.Count(got, "\n") != 1 {
			t.Errorf("%v: %q", args, got)
		}
	}
}

func TestWithoutArgumentsTheHelpIsShown(t *testing.T) {
	r := succeed(t, "")
	for _, want := range []string{"generate", "logits", "conform", "eval", "--version"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("the help lacks %q:\n%s", want, r.out)
		}
	}
}

func TestEveryCommandExplainsItself(t *testing.T) {
	for _, name := range []string{"generate", "logits", "conform", "eval"} {
		r := succeed(t, "", name, "--help")
		for _, want := range []string{"Examples:", "$CEDRUN_MODEL", "$CEDRUN_JSON", "--threads"} {
			if !strings.Contains(r.out, want) {
				t.Errorf("%s --help lacks %q", name, want)
			}
		}
	}
}

func TestVersion(t *testing.T) {
	if r := succeed(t, "", "--version"); !strings.HasPrefix(r.out, "cedrun version ") {
		t.Errorf("got %q", r.out)
	}
}

// Bad input gets exit status 1, nothing on stdout and one sentence that says what is wrong.
func TestBadInput(t *testing.T) {
	dir := small(t)
	file := func(name, content string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	with := func(command string, args ...string) []string { return append([]string{command, "-m", dir}, args...) }
	long := strings.Repeat("many words ", 20)
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"unknown command", []string{"genrate"}, `unknown command "genrate". Did you mean "generate"?`},
		{"unknown global flag", []string{"--modle", "x"}, "unknown flag --modle"},
		{"unknown flag", with("generate", "--promt", "x"), `Did you mean "--prompt"?`},
		{"flag of another command", []string{"doctor", "--backend", "cuda"}, "unknown flag --backend: other commands have it"},
		{"flag without a value", []string{"generate", "--prompt"}, "flag needs an argument: --prompt"},
		{"prompt as an argument", with("generate", "Hello"), `unexpected argument "Hello"`},
		{"flag after an argument", with("generate", "Hello", "--seed", "3"), "--seed stands after"},
		{"not a number", with("generate", "-p", "x", "--max-tokens", "many"), `invalid value "many" for flag --max-tokens: give an integer (`},
		{"beyond 64 bits", with("generate", "-p", "x", "--max-tokens", "99999999999999999999"), "for flag --max-tokens: it is too large"},
		{"not a switch", with("generate", "-p", "x", "--raw=maybe"), `invalid value "maybe" for flag --raw: give true or false`},
		{"not a time", []string{"serve", "--timeout", "soon"}, "for flag --timeout: give a time with its unit, as in 90s or 10m"},
		{"negative tokens", with("generate", "-p", "x", "--max-tokens", "-1"), "--max-tokens -1: use 0 or more"},
		{"negative threads", with("generate", "-p", "x", "--threads", "-1"), "--threads -1: use 1 to 1024, or 0 for one per core"},
		{"negative context", with("generate", "-p", "x", "--context", "-5"), "--context -5: use 1 or more"},
		{"context beyond the model", with("generate", "-p", "x", "--context", "5000"), "--context 5000: this model takes at most 4096"},
		{"negative top-k", with("generate", "-p", "x", "--top-k", "-1"), "--top-k -1: use 0 or more"},
		{"negative temperature", with("generate", "-p", "x", "--temperature", "-1"), "temperature is -1"},
		{"absurd temperature", with("generate", "-p", "x", "--temperature", "99"), "temperature is 99"},
		{"top-p of 0", with("generate", "-p", "x", "--top-p", "0"), "top_p is 0"},
		{"min-p of 1", with("generate", "-p", "x", "--min-p", "1"), "min_p is 1"},
		{"negative seed", with("generate", "-p", "x", "--seed", "-1"), `invalid value "-1" for flag --seed: give an integer of 0 or more`},
		{"empty stop string", with("generate", "-p", "x", "--stop", ""), "stop string"},
		{"prefill mode", with("generate", "-p", "x", "--prefill", "fast"), `prefill mode "fast": use exact, cone or replay`},
		{"back end", with("generate", "-p", "x", "--backend", "gpu"), "use auto, cpu, cuda or ref"},
		{"log level", with("generate", "-p", "x", "--log-level", "loud"), `log level "loud"`},
		{"effort 0", with("generate", "-p", "x", "--thinking", "--effort", "0"), "effort must be low, high, max or an integer from 1 to 100, not 0"},
		{"effort 101", with("generate", "-p", "x", "--thinking", "--effort", "101"), "effort must be"},
		{"effort abc", with("generate", "-p", "x", "--thinking", "--effort", "abc"), "effort must be"},
		{"effort without thinking", with("generate", "-p", "x", "--effort", "50"), "--effort needs --thinking"},
		{"empty prompt", with("generate", "-p", ""), "the prompt is empty"},
		{"empty prompt, raw", with("generate", "--raw", "-p", ""), "the prompt is empty"},
		{"empty stdin", with("generate"), "the prompt is empty"},
		{"two prompts", with("generate", "-p", "x", "--prompt-file", "y"), "--prompt and --prompt-file: give one"},
		{"raw and thinking", with("generate", "-p", "x", "--raw", "--thinking"), "--raw has no chat template"},
		{"no BOS in the template", with("generate", "-p", "x", "--no-bos"), "--no-bos needs --raw"},
		{"prompt beyond the context", with("generate", "-p", long, "--context", "100"), "the context holds 100: shorten the prompt; raise --context (this model takes up to 4096)"},
		{"prompt beyond the model", with("generate", "-p", strings.Repeat("x", 5000)), "the context holds 4096: shorten the prompt; this model takes no more"},
		{"text beyond the context", with("generate", "-p", "x", "--context", "100", "--max-tokens", "100"), "lower --max-tokens to"},
		{"no prompt file", with("generate", "--prompt-file", nowhere), "no such file"},
		{"no messages file", with("generate", "--messages", nowhere), "no such file"},
		{"messages not JSON", with("generate", "--messages", file("m.json", "hello")), "m.json"},
		{"messages complete", with("generate", "--messages", file("m.json", `[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]`)), "nothing to write"},
		{"no model", []string{"generate", "-m", nowhere, "-p", "x"}, "no such file"},
		{"model is a file", []string{"generate", "-m", file("model", "x"), "-p", "x"}, "is a file"},
		{"model without a tokenizer", []string{"generate", "-m", testdata + "mini/base", "-p", "x"}, "no tokenizer.json"},
		{"logits without output", with("logits", "--ids", "1"), "give --out"},
		{"logits without ids", with("logits", "--out", nowhere), "give the token ids"},
		{"logits of words", with("logits", "--out", nowhere, "--ids", "1,two"), `"two" is not a token id`},
		{"logits of negative ids", with("logits", "--out", nowhere, "--ids", "1,-2"), `"-2" is not a token id`},
		{"logits of nothing", with("logits", "--out", nowhere, "--ids", ""), "no token ids"},
		{"logits beyond the vocabulary", with("logits", "--out", nowhere, "--ids", "1,999"), "token 999 at position 1"},
		{"logits from beyond the end", with("logits", "--out", nowhere, "--ids", "1,2", "--from", "2"), "positions are 0 to 1"},
		{"logits decoding from beyond the end", with("logits", "--out", nowhere, "--ids", "1,2", "--decode-from", "3"), "there are 2 ids"},
		{"logits that replay does not compute", with("logits", "--out", nowhere, "--ids", strings.Repeat("7,", 30)+"7", "--prefill", "replay", "--from", "3"), "computes logits of this prompt from position 23 on; use --prefill exact"},
		{"logits that cone does not compute", with("logits", "--out", nowhere, "--ids", strings.Repeat("7,", 30)+"7", "--prefill", "cone", "--from", "3"), "use --prefill exact"},
		{"logits into a missing directory", with("logits", "--out", filepath.Join(nowhere, "x"), "--ids", "1"), "--out"},
		{"chunk of 0", with("logits", "--out", nowhere, "--ids", "1", "--chunk", "0"), "--chunk 0: use 1 or more"},
		{"conform without a model", []string{"conform"}, "give --model"},
		{"conform without goldens", with("conform"), "give --golden"},
		{"conform with a missing golden", with("conform", "--golden", nowhere), "--golden"},
		{"conform with a golden of no format", with("conform", "--golden", filepath.Join(dir, "model.safetensors")), "golden layers.0"},
		{"eval of nothing", with("eval"), "has no heldout.txt: give --text FILE, or --recall"},
		{"eval of both", with("eval", "--text", "x", "--recall"), "--text and --recall: give one of them"},
		{"eval of an empty text", with("eval", "--text", file("t", "")), "is empty"},
		{"eval of a missing text", with("eval", "--text", nowhere), "no such file"},
		{"eval with cases for text", with("eval", "--text", "x", "y"), "only --recall takes a file"},
		{"eval with a stride too long", with("eval", "--text", file("t", "words"), "--context", "8", "--stride", "8"), "use 1 to 7"},
		{"eval with an unknown mode", with("eval", "--text", file("t", "words"), "--prefill", "all"), "use exact, cone or replay"},
		{"eval without cases", with("eval", "--recall"), "give a file of cases"},
		{"eval with missing cases", with("eval", "--recall", nowhere), "no such file"},
		{"eval with broken cases", with("eval", "--recall", file("c.json", "{")), "recall cases"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := cedrun(t, "", c.args...)
			if r.status != exitError {
				t.Errorf("exit status %d, want %d", r.status, exitError)
			}
			if r.out != "" {
				t.Errorf("stdout %q, want nothing", r.out)
			}
			if !strings.Contains(r.err, c.want) {
				t.Errorf("stderr %q, want %q", r.err, c.want)
			}
			if strings.Count(strings.TrimSpace(r.err), "\n") > 0 || strings.Contains(r.err, "goroutine") {
				t.Errorf("more than one sentence: %q", r.err)
			}
		})
	}
}

func TestBackEndCUDASaysThatThisBuildHasNone(t *testing.T) {
	r := cedrun(t, "", "generate", "-m", small(t), "-p", "x", "--backend", "cuda")
	if r.status == 0 {
		t.Skip("this build has CUDA")
	}
	if !strings.Contains(r.err, "--backend cpu") {
		t.Errorf("stderr %q", r.err)
	}
}

func TestFlagsComeFromTheEnvironment(t *testing.T) {
	t.Setenv("CEDRUN_MODEL", small(t))
	t.Setenv("CEDRUN_MAX_TOKENS", "3")
	t.Setenv("CEDRUN_STOP", "a,b")
	r := succeed(t, "", "generate", "-p", "x", "--json")
	if !strings.Contains(r.out, `"new_tokens":3,`) {
		t.Errorf("CEDRUN_MAX_TOKENS was not read: %s", r.out)
	}
	t.Setenv("CEDRUN_THREADS", "many")
	want := `cedrun: invalid value "many" in CEDRUN_THREADS for flag --threads: give an integer (`
	if r := cedrun(t, "", "generate", "-p", "x"); r.status != exitError || !strings.HasPrefix(r.err, want) {
		t.Errorf("status %d, stderr %q", r.status, r.err)
	}
}

func TestAnEmptyVariableIsNotSet(t *testing.T) {
	for _, name := range []string{"BACKEND", "HOST", "PREFILL", "WARM", "THREADS", "RAW", "STOP"} {
		t.Setenv("CEDRUN_"+name, "")
	}
	succeed(t, "", "generate", "-m", small(t), "-p", "x", "--max-tokens", "2")
}

func TestWhatADeviceSaysGetsARemedy(t *testing.T) {
	fault := func(code, number int) error {
		return fmt.Errorf("step: %w", &ced.Error{Code: code, CUDA: number, What: "sync"})
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{fault(ced.EDEVICE, 700), "scripts/gpu-check.sh"},
		{fault(ced.ENOMEM, 2), "end what else is on the device"},
		{fmt.Errorf("%w; use --backend cpu", fault(ced.EDEVICE, 100)), ""},
		{fault(ced.EINVAL, 0), ""},
		{errors.New("no such file"), ""},
	} {
		if got := remedy(c.err); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%v: %q", c.err, got)
		}
	}
}
