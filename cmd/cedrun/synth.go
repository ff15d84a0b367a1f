package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"cedrun/runtime/synth"
)

func synthCommand(con *console) *cli.Command {
	var list strings.Builder
	for _, p := range synth.Presets() {
		fmt.Fprintf(&list, "  %-8s %s\n", p.Name, p.What)
	}
	return &cli.Command{
		Name:  "synth",
		Usage: "write a checkpoint of random weights, to measure speed with",
		Description: "The directory is what a download would be: config, tokenizer, shards and index in the released format, with\n" +
			"magnitudes as measured on the release. The text that it writes is nonsense. The same preset and seed give the\n" +
			"same bytes. An interrupted run continues where it was when it is repeated.\n\n" +
			"Presets:\n" + list.String() + "\n" +
			"Examples:\n" +
			"  cedrun synth --preset bench-s --out DIR\n" +
			"  cedrun synth --preset layer --seed 7 --out DIR --json",
		Flags: flags(
			[]cli.Flag{
				stringFlag(groupInput, "preset", "", "the geometry's `NAME`: bench-s, bench-m or layer (required)"),
				&cli.Uint64Flag{Category: groupInput, Name: "seed", Value: 1, Usage: "`N` that all weights follow from", EnvVars: env("seed")},
				threadsFlag(),
				stringFlag(groupOutput, "out", "", "`DIR` to write: a new or empty one, or one to continue (required)", "o"),
			}, outputFlags("print one JSON object: preset, seed, dir, shards, shards_kept, tensors, bytes, seconds")),
		Action: con.action(0, con.synth),
	}
}

func (con *console) synth(c *cli.Context) error {
	o := synth.Options{Preset: c.String("preset"), Seed: c.Uint64("seed"), Dir: c.String("out"), Threads: c.Int("threads")}
	if o.Preset == "" || o.Dir == "" {
		return errors.New("synth needs --preset NAME and --out DIR; cedrun synth --help lists the presets")
	}
	bar := &bar{con: con}
	if con.errTerminal {
		o.Progress = bar.start
	}
	s, err := synth.Write(c.Context, o)
	bar.end()
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return con.printJSON(s)
	}
	_, err = fmt.Fprintf(con.out, "%s: %d tensors in %d shards (%d written, %d kept), %d bytes, %.1f s\n", s.Dir, s.Tensors, s.Shards, s.Shards-s.Kept, s.Kept, s.Bytes, s.Seconds)
	return err
}
