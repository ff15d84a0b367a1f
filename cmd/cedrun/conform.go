package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
	"cedrun/runtime/conform"
	"cedrun/runtime/engine"
)

func conformCommand(con *console) *cli.Command {
	return &cli.Command{
		Name:  "conform",
		Usage: "compare the forward pass with goldens",
		Description: "Runs a checkpoint on the inputs of golden files, sub-layer by sub-layer and end to end, and holds each tensor to\n" +
			"its rule: ref must be equal bit for bit, other back ends must stay within the tolerance of each operator and\n" +
			"agree with themselves for every chunking and mode. Goldens of parts that this build lacks (drafts, vision) are\n" +
			"counted as not built. The exit status is 1 when a rule is broken.\n\n" +
			"Examples:\n" +
			"  cedrun conform -m testdata/mini/base --backend ref\n" +
			"  cedrun conform -m DIR --golden a.safetensors --golden b.safetensors --json",
		Flags: flags(modelFlags(),
			[]cli.Flag{&cli.StringSliceFlag{
				Category: groupInput, Name: "golden", EnvVars: env("golden"),
				Usage: "`FILE` in the conformance format; repeatable (default: golden*.safetensors of the model's directory)",
			}}, computeFlags(), outputFlags("print every comparison as JSON")),
		Action: con.action(0, con.conform),
	}
}

func (con *console) conform(c *cli.Context) error {
	dir := c.String("model")
	if dir == "" {
		return errors.New("give --model DIR: the embedded demo model has no goldens")
	}
	kind, err := con.backend(c)
	if err != nil {
		return err
	}
	f, err := con.openFiles(c)
	if err != nil {
		return err
	}
	goldens, names, err := openGoldens(c, dir)
	if err != nil {
		return closing(f, err)
	}
	r, err := con.conformWith(c, f, kind, goldens)
	for _, g := range goldens {
		err = closing(g, err)
	}
	if err = closing(f, err); err != nil {
		return err
	}
	r.Model, r.Golden = dir, strings.Join(names, ", ")
	if c.Bool("json") {
		err = con.printJSON(r)
	} else {
		r.Print(con.out)
	}
	if err == nil && !r.OK() {
		err = fmt.Errorf("%s does not conform on backend %s: %s", dir, r.Backend, broken(r))
	}
	return err
}

func (con *console) conformWith(c *cli.Context, f *engine.Files, kind ced.Kind, goldens []*checkpoint.Checkpoint) (*conform.Report, error) {
	sizes, err := conform.Sizes(f.Config, goldens...)
	if err != nil {
		return nil, err
	}
	on := con.placed(f, engine.Setup{
		Backend: kind, Threads: c.Int("threads"), Slots: sizes.Slots, Context: sizes.Context, Chunk: sizes.StepRows, Outputs: sizes.StepRows, NoGraphs: !sizes.Graphs,
	})
	s, err := con.openStream(c, on.Backend)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return conform.Run(c.Context, conform.Subject{
		Stream: s, Checkpoint: f.Checkpoint, Config: f.Config, Rows: f.Rows(), ExpertBytes: on.ExpertBytes, HostExperts: on.HostExperts,
	}, goldens...)
}

func openGoldens(c *cli.Context, dir string) (files []*checkpoint.Checkpoint, names []string, err error) {
	names = c.StringSlice("golden")
	if len(names) == 0 {
		if names, err = filepath.Glob(filepath.Join(dir, "golden*.safetensors")); err != nil || len(names) == 0 {
			return nil, nil, fmt.Errorf("no golden*.safetensors in %s: give --golden FILE", dir)
		}
	}
	for _, n := range names {
		g, err := checkpoint.OpenFile(n, checkpoint.Options{NoMap: c.Bool("no-map")})
		if err != nil {
			for _, f := range files {
				_ = f.Close()
			}
			return nil, nil, fmt.Errorf("--golden: %w", err)
		}
		files = append(files, g)
	}
	return files, names, nil
}

func broken(r *conform.Report) string {
	n := 0
	for _, l := range r.Lines {
		if !l.OK {
			n++
		}
	}
	switch {
	case n > 0:
		return fmt.Sprintf("%d of %d comparisons broke their rule", n, len(r.Lines))
	case len(r.Unread) > 0:
		return fmt.Sprintf("%d golden tensors are unknown to this build", len(r.Unread))
	}
	return "nothing was compared"
}
