package main

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// shell runs a script in a shell that this machine may have.
func shell(t *testing.T, name, script string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skip("this machine lacks the shell:", err)
	}
	var errs bytes.Buffer
	cmd := exec.Command(path, "-c", script)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil || errs.Len() > 0 {
		t.Fatalf("%s: %v\n%s", name, err, errs.String())
	}
	return string(out)
}

func TestBashCompletes(t *testing.T) {
	script := succeed(t, "", "completion", "bash").out
	for _, c := range []struct {
		words string
		want  []string
	}{
		{"cedrun gen", []string{"generate"}},
		{"cedrun completion ''", []string{"bash", "zsh"}},
		{"cedrun generate --top", []string{"--top-k", "--top-p"}},
		{"cedrun generate --prefill ''", []string{"cone", "exact", "replay"}},
		{"cedrun tokenize --dec", []string{"--decode"}},
		{"cedrun generate --model ''", nil}, // a directory
	} {
		out := shell(t, "bash", script+"\nCOMP_WORDS=("+c.words+"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _cedrun; echo \"${COMPREPLY[@]}\"\n")
		got := strings.Fields(out)
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.words, got, c.want)
		}
	}
}

func TestZshTakesTheScript(t *testing.T) {
	script := succeed(t, "", "completion", "zsh").out
	out := shell(t, "zsh", "autoload -U compinit && compinit -D -u\n"+script+"\necho $_comps[cedrun]\n")
	if strings.TrimSpace(out) != "_cedrun" {
		t.Errorf("registered %q", out)
	}
}

func TestTheShellIsTheUsersOwn(t *testing.T) {
	t.Setenv("SHELL", "/usr/bin/zsh")
	if r := succeed(t, "", "completion"); !strings.HasPrefix(r.out, "#compdef cedrun") {
		t.Errorf("%.40q", r.out)
	}
}

// Whatever flag takes one of a few values is a flag, and its help names them.
func TestCompletedValuesAreThoseOfTheHelp(t *testing.T) {
	known := map[string]string{}
	for _, c := range newApp(newConsole(nil, nil, nil)).Commands {
		for _, f := range c.Flags {
			if doc, ok := f.(cli.DocGenerationFlag); ok {
				known[f.Names()[0]] = doc.GetUsage()
			}
		}
	}
	for name, values := range flagValues {
		for _, v := range strings.Fields(values) {
			if !strings.Contains(known[name], v) {
				t.Errorf("--%s does not name %s: %q", name, v, known[name])
			}
		}
	}
}

// Every command says in one voice what it does, and shows how.
func TestHelpReadsAsOneVoice(t *testing.T) {
	for _, c := range newApp(newConsole(nil, nil, nil)).Commands {
		if c.Usage == "" || c.Usage != strings.ToLower(c.Usage[:1])+c.Usage[1:] || strings.HasSuffix(c.Usage, ".") {
			t.Errorf("%s: usage %q", c.Name, c.Usage)
		}
		_, examples, found := strings.Cut(c.Description, "Examples:\n")
		if !found || !strings.Contains(examples, "cedrun "+c.Name) {
			t.Errorf("%s: no examples", c.Name)
		}
		for _, f := range c.Flags {
			doc, ok := f.(cli.DocGenerationFlag)
			if usage := doc.GetUsage(); !ok || usage == "" || strings.HasSuffix(usage, ".") {
				t.Errorf("%s --%s: usage %q", c.Name, f.Names()[0], usage)
			}
		}
	}
}
