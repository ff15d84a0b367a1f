package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	ced "cedrun/cuda"
	"cedrun/runtime/engine"
	"cedrun/runtime/prompt"
)

// Groups of flags in the help.
const (
	groupModel   = "Model"
	groupInput   = "Input"
	groupSample  = "Sampling"
	groupCompute = "Computation"
	groupOutput  = "Output"
	groupConfig  = "Configuration"
)

// env is the variable that sets a flag. An empty one, as scripts and compose files leave them, is one that is not set; only
// --config takes an empty one, for no file.
func env(flag string) []string {
	name := "CEDRUN_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
	if value, set := os.LookupEnv(name); set && value == "" && flag != "config" {
		return nil
	}
	return []string{name}
}

func stringFlag(group, name, value, usage string, aliases ...string) *cli.StringFlag {
	return &cli.StringFlag{Category: group, Name: name, Aliases: aliases, Value: value, Usage: usage, EnvVars: env(name)}
}

func withDefault(f *cli.StringFlag, text string) *cli.StringFlag {
	f.DefaultText = text
	return f
}

func boolFlag(group, name, usage string) *cli.BoolFlag {
	return &cli.BoolFlag{Category: group, Name: name, Usage: usage, EnvVars: env(name), DisableDefaultText: true}
}

// intFlag is an integer of at least least. auto, if not empty, says what the program chooses when it is not set.
func intFlag(group, name string, value, least int, auto, usage string) *cli.IntFlag {
	return &cli.IntFlag{
		Category: group, Name: name, Value: value, DefaultText: auto, Usage: usage, EnvVars: env(name),
		Action: func(_ *cli.Context, n int) error {
			if n < least {
				return fmt.Errorf("--%s %d: use %d or more", name, n, least)
			}
			return nil
		},
	}
}

func floatFlag(group, name string, value float64, usage string) *cli.Float64Flag {
	return &cli.Float64Flag{Category: group, Name: name, Value: value, Usage: usage, EnvVars: env(name)}
}

func modelFlags() []cli.Flag {
	return []cli.Flag{
		withDefault(stringFlag(groupModel, "model", "", "checkpoint `DIR`: config.json, tokenizer.json and safetensors shards", "m"), "the embedded demo model"),
		boolFlag(groupModel, "no-map", "read weights into memory instead of mapping the files"),
		hugePagesFlag(),
		withDefault(stringFlag(groupModel, "cache-dir", "", "keep maps derived from the tokenizer, and which experts a GPU should hold first, in `DIR`"), "cedrun in the user's cache directory"),
	}
}

func computeFlags() []cli.Flag {
	return []cli.Flag{
		stringFlag(groupCompute, "backend", "auto", "compute on `BACKEND`: auto, cpu, cuda, or ref (slow, the specification's own arithmetic)"),
		deviceFlag(),
		expertMemoryFlag(),
		expertComputeFlag(),
		threadsFlag(),
		boolFlag(groupCompute, "pin", "bind each thread to a core of its own; for a machine that does nothing else"),
	}
}

func threadsFlag() cli.Flag {
	f := intFlag(groupCompute, "threads", 0, 0, "one per core", "use `N` CPU threads; results do not depend on it")
	f.Action = func(_ *cli.Context, n int) error {
		if n < 0 || n > ced.MaxThreads {
			return fmt.Errorf("--threads %d: use 1 to %d, or 0 for one per core", n, ced.MaxThreads)
		}
		return nil
	}
	return f
}

// openStream opens the stream that computeFlags ask for.
func (con *console) openStream(c *cli.Context, kind ced.Kind) (*ced.Stream, error) {
	if c.Bool("pin") {
		return ced.Open(kind, con.device, c.Int("threads"), ced.Pin)
	}
	return ced.Open(kind, con.device, c.Int("threads"))
}

// hugePagesFlag: weights in huge pages are read faster by a tenth or more. Mapped files are read into them at no cost;
// making room for gigabytes of anonymous ones takes seconds where memory is full of cached files.
func hugePagesFlag() cli.Flag {
	return stringFlag(groupModel, "huge-pages", "auto", "`MODE` of huge pages: auto (behind the KV cache, step buffers and mapped files that are not cached yet), on (and, with --no-map, behind weights, which load slower) or off")
}

// warmFlags say which weights are in memory before the first token.
func warmFlags() []cli.Flag {
	return []cli.Flag{
		stringFlag(groupModel, "warm", engine.WarmAuto.String(), "read mapped weights into memory first, as `MODE` says: auto (what every token uses, and the experts if all fit), populate (as much as fits, table rows too) or off"),
		boolFlag(groupModel, "lock", "keep in memory (mlock) what --warm reads; needs a limit as large (ulimit -l)"),
	}
}

// engineFlags are those of a command that starts an engine.
func engineFlags() []cli.Flag {
	return flags(warmFlags(), computeFlags(), []cli.Flag{
		boolFlag(groupCompute, "no-self-test", "start without trying every kernel, and a small model's known prompt, first (some milliseconds)"),
		noGraphsFlag(),
	})
}

func noGraphsFlag() cli.Flag {
	return boolFlag(groupCompute, "no-graphs", "enqueue decode steps on a GPU kernel by kernel instead of replaying captured ones: the same results, slower")
}

// prefillFlag has the default mode, or, if it depends, a text that says so.
func prefillFlag(mode, auto string) *cli.StringFlag {
	return withDefault(stringFlag(groupCompute, "prefill", mode,
		"`MODE` of prompts: exact (all layers, all tokens), cone (only what the last token depends on: the same bits) or replay (decoder layers on the last window only, as trained)"), auto)
}

func outputFlags(json string) []cli.Flag {
	return []cli.Flag{
		boolFlag(groupOutput, "json", json),
		logFlag(),
	}
}

func logFlag() cli.Flag {
	return stringFlag(groupOutput, "log-level", "warn", "messages on stderr from `LEVEL` on: trace, debug, info, warn, error or disabled")
}

func flags(groups ...[]cli.Flag) []cli.Flag { return slices.Concat(groups...) }

// effort reads --effort; 0 when it is not set.
func effort(c *cli.Context) (int, error) {
	if !c.IsSet("effort") {
		return 0, nil
	}
	n, err := prompt.ParseEffort(c.String("effort"))
	if err != nil {
		return 0, fmt.Errorf("--effort: %w", err)
	}
	return n, nil
}
