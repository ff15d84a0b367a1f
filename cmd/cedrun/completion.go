package main

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/urfave/cli/v2"
)

//go:embed completion.bash
var bashCompletion string

//go:embed completion.zsh
var zshCompletion string

// flagValues are the values of flags that take one of a few.
var flagValues = map[string]string{
	"backend":    "auto cpu cuda ref",
	"cache":      "snapshot replay off",
	"effort":     "low high max",
	"log-level":  "trace debug info warn error disabled",
	"huge-pages": "auto on off",
	"prefill":    "exact cone replay",
	"preset":     "bench-s bench-m layer",
	"warm":       "auto populate off",
}

func completionCommand(con *console) *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print a script that completes commands and flags in bash or zsh",
		ArgsUsage: "[bash|zsh]",
		Description: "Without an argument the script is for the shell that $SHELL names.\n\n" +
			"Examples:\n" +
			"  source <(cedrun completion bash)        # in ~/.bashrc, or by hand\n" +
			"  source <(cedrun completion zsh)         # in ~/.zshrc, after compinit\n" +
			"  cedrun completion zsh > ~/.zfunc/_cedrun",
		Flags:  []cli.Flag{logFlag()},
		Action: con.action(1, con.completion),
	}
}

// completed is a command as the scripts need it.
type completed struct {
	Name, Usage string
	Flags       []completedFlag
}

type completedFlag struct {
	Name, Usage string // Name with its dashes
	Values      string // what it takes, if that is one of a few
}

func (con *console) completion(c *cli.Context) error {
	shell := c.Args().First()
	if shell == "" {
		shell = filepath.Base(os.Getenv("SHELL"))
	}
	script := map[string]string{"bash": bashCompletion, "zsh": zshCompletion}[shell]
	if script == "" {
		return fmt.Errorf("no completion for the shell %q: give bash or zsh", shell)
	}
	t, err := template.New(shell).Funcs(template.FuncMap{"quoted": zshQuoted}).Parse(script)
	if err != nil {
		return err
	}
	var commands []completed
	for _, cmd := range c.App.Commands {
		if !cmd.Hidden {
			commands = append(commands, completed{cmd.Name, cmd.Usage, completedFlags(cmd)})
		}
	}
	if err := t.Execute(con.out, map[string]any{"Commands": commands, "Values": flagValues}); err != nil {
		return fmt.Errorf("write script: %w", err)
	}
	return nil
}

func completedFlags(cmd *cli.Command) []completedFlag {
	out := []completedFlag{{Name: "--help", Usage: "show help"}}
	for _, f := range cmd.Flags {
		doc, ok := f.(cli.DocGenerationFlag)
		if !ok {
			continue
		}
		usage := strings.ReplaceAll(doc.GetUsage(), "`", "")
		for _, n := range f.Names() {
			if len(n) > 1 && n != "help" {
				out = append(out, completedFlag{"--" + n, usage, flagValues[n]})
			}
		}
	}
	return out
}

// zshQuoted is name:usage as an element of a zsh array.
func zshQuoted(name, usage string) string {
	return "'" + strings.ReplaceAll(name+":"+strings.ReplaceAll(usage, ":", `\:`), "'", `'\''`) + "'"
}
