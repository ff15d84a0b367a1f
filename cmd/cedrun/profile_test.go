package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cedrun/runtime/profile"
)

func TestProfileAccountsForARequest(t *testing.T) {
	dir := t.TempDir()
	trace, plot := filepath.Join(dir, "t.json"), filepath.Join(dir, "r.svg")
	out := succeed(t, "", "profile", "-m", testdata+"mini/base", "--prompt-tokens", "40", "--tokens", "3", "--chunk", "16", "--json", "--trace", trace, "--roofline", plot).out
	var r profile.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Phases) != 2 || r.Phases[0].Tokens != 40 || r.Phases[0].Steps != 3 || r.Phases[1].Tokens != 2 || r.Limits == nil || r.Mode != "replay" {
		t.Fatalf("%+v", r)
	}
	for _, p := range r.Phases {
		sum, bytes := p.Unaccounted, 0.
		for _, x := range p.Rows {
			sum, bytes = sum+x.Took, bytes+x.Bytes
		}
		if sum != p.Took || bytes <= 0 {
			t.Errorf("%s: %v of %v in rows, %v bytes", p.Name, sum, p.Took, bytes)
		}
	}
	for name, begin := range map[string]string{trace: `{"displayTimeUnit"`, plot: "<svg "} {
		if b, err := os.ReadFile(name); err != nil || !strings.HasPrefix(string(b), begin) {
			t.Errorf("%s: %.40s, %v", name, b, err)
		}
	}
}

func TestProfilePrintsTablesOfAPrompt(t *testing.T) {
	out := succeed(t, "", "profile", "-p", "Once upon a time", "--tokens", "2", "--layers").out
	for _, want := range []string{"PREFILL: ", "DECODE: 1 tokens", "unaccounted", "LAYER PART", "expert_gemm"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestProfileRefusesWhatItCannotDo(t *testing.T) {
	for name, tc := range map[string]struct{ args, want string }{
		"two prompts":    {"-p x --prompt-tokens 5", "--prompt-tokens makes up a prompt"},
		"too long":       {"--prompt-tokens 99999999", "do not fit together: this model takes"},
		"no tokens":      {"--tokens 0", "--tokens 0: use 1 or more"},
		"mode":           {"--prefill fast", "use exact, cone or replay"},
		"a bitmap":       {"--roofline plot.png", "give a name that ends in .svg"},
		"no such folder": {"--prompt-tokens 4 --tokens 1 --trace /nonexistent/t.json", "--trace: open /nonexistent/t.json: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			r := cedrun(t, "", append([]string{"profile", "-m", testdata + "mini/base"}, strings.Fields(tc.args)...)...)
			if r.status != 1 || !strings.Contains(r.err, tc.want) || strings.Count(r.err, "\n") != 1 {
				t.Errorf("status %d, %q", r.status, r.err)
			}
		})
	}
}

func TestAnInterruptedProfileEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r := cedrunIn(ctx, "", "profile", "-m", testdata+"mini/base", "--tokens", "2"); r.status != exitInterrupted {
		t.Errorf("status %d, %q", r.status, r.err)
	}
}
