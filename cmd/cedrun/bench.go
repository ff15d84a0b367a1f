package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"cedrun/runtime/bench"
	"cedrun/runtime/engine"
	"cedrun/runtime/model"
)

func benchCommand(con *console) *cli.Command {
	lists := func(name, value, usage string) cli.Flag { return stringFlag(groupInput, name, value, usage) }
	return &cli.Command{
		Name:  "bench",
		Usage: "measure a model on this machine, against what the machine allows",
		Description: "Prefill and decode at each context, per prefill mode and batch, with the machine's read bandwidth and multiply rates\n" +
			"measured between the runs. Prompts are random tokens; decode starts on caches filled with random numbers, so a depth\n" +
			"costs its memory and no time. The table of each row says where the time went, part by part, and how far from the\n" +
			"limit each part is: the larger of its bytes over the bandwidth and its FLOPs over the multiply rate.\n\n" +
			"Columns, all shares of the time that was measured:\n" +
			"  of limit   the least time of all parts: of each the larger of bytes / read bandwidth and FLOPs / the faster of\n" +
			"             the BF16 and the F32 rate; 100 % cannot be bettered\n" +
			"  of read    bytes / read bandwidth\n" +
			"  of BF16    FLOPs / the BF16 rate; can pass 100 % where F32 multiplies faster, as on Sapphire Rapids\n" +
			"On a device the limits are the device's, times of kernels those of its events around each, and each run is made twice:\n" +
			"tok/s and ms are of steps without events, of which decode steps are replayed as graphs, the parts of the other.\n" +
			"--kernels adds worst and best runs, bytes, FLOPs and memory; --json and --csv have all of it. Ctrl-C prints what is\n" +
			"finished. Rates that vary by more than 30 % within a run are reported: something else ran.\n\n" +
			"Examples:\n" +
			"  cedrun bench -m DIR\n" +
			"  cedrun bench -m DIR --contexts 2048 --modes replay --batch 1,8 --kernels\n" +
			"  cedrun bench -m DIR --fill 1024,32768,131072 --json",
		Flags: flags(modelFlags(), []cli.Flag{
			withDefault(stringFlag(groupInput, "contexts", "512,2048", "prompts of `N,...` tokens, and decode after as many"), "512,2048; none with --fill"),
			lists("fill", "", "decode after `N,...` tokens, without such a prompt"),
			lists("modes", "exact,cone,replay", "prefill `MODES`; empty for decode alone"),
			lists("batch", "1", "decode of `B,...` sequences together; empty for prefill alone"),
			intFlag(groupInput, "repeat", 5, 1, "", "`N` runs of each case, in turn; the median counts"),
			intFlag(groupInput, "steps", 16, 1, "", "`N` decode steps of a run"),
			&cli.Uint64Flag{Category: groupInput, Name: "seed", Usage: "`SEED` of the random tokens", EnvVars: env("seed")},
		}, engineFlags(), []cli.Flag{
			intFlag(groupCompute, "chunk", 0, 0, "256", "`N` prompt tokens of a step"),
			boolFlag(groupOutput, "kernels", "list the kernels of each part, and all columns"),
			boolFlag(groupOutput, "csv", "print CSV: a line per row and per part of it"),
		}, outputFlags("print one JSON object: machine, interrupted, rows")),
		Action: con.action(0, con.bench),
	}
}

func (con *console) bench(c *cli.Context) error {
	o, err := con.benchOptions(c)
	if err != nil {
		return err
	}
	o.Setup.NoSelfTest, o.Setup.NoGraphs, o.Setup.HugePages = con.noSelfTest, con.noGraphs, con.hugePages
	o.Progress = func(what string, done, of int) { con.show("%s (%d of %d)", what, done+1, of) }
	o.Warn = func(what string) {
		if con.log.GetLevel() <= zerolog.WarnLevel {
			con.clear()
			fmt.Fprintln(con.err, "cedrun:", what)
		}
	}
	f, err := con.openFiles(c)
	if err != nil {
		return err
	}
	switch {
	case c.IsSet("contexts"):
	case len(o.Fill) > 0:
		o.Contexts = nil
	default:
		o.Contexts = fitting(o.Contexts, f.Config.MaxPositions, o.Steps)
	}
	setup, err := o.Sized(f.Config)
	if err != nil {
		return closing(f, err)
	}
	o.Setup = con.placed(f, setup)
	if err := con.warm(f, o.Setup); err != nil {
		return closing(f, err)
	}
	con.show("warming up")
	r, err := bench.Run(c.Context, f, o)
	con.clear()
	switch {
	case err != nil && c.Context.Err() == nil:
		return err
	case err != nil && (r == nil || len(r.Rows) == 0):
		return errInterrupted
	}
	if perr := con.printBench(c, r); perr != nil || err == nil {
		return perr
	}
	return errInterrupted
}

func (con *console) printBench(c *cli.Context, r *bench.Report) error {
	switch {
	case c.Bool("json"):
		return con.printJSON(r)
	case c.Bool("csv"):
		return r.CSV(con.out)
	}
	return r.Print(con.out, c.Bool("kernels"))
}

func (con *console) benchOptions(c *cli.Context) (o bench.Options, err error) {
	o = bench.Options{Repeat: c.Int("repeat"), Steps: c.Int("steps"), Seed: c.Uint64("seed")}
	if c.Bool("json") && c.Bool("csv") {
		return o, fmt.Errorf("--json and --csv: choose one")
	}
	o.Setup = engine.Setup{Threads: c.Int("threads"), Pin: c.Bool("pin"), Chunk: c.Int("chunk"), NoMap: c.Bool("no-map")}
	if o.Setup.Backend, err = con.backend(c); err != nil {
		return o, err
	}
	for _, x := range []struct {
		flag string
		dst  *[]int
	}{{"contexts", &o.Contexts}, {"fill", &o.Fill}, {"batch", &o.Batches}} {
		if *x.dst, err = numbers(c.String(x.flag)); err != nil {
			return o, fmt.Errorf("--%s: %w", x.flag, err)
		}
	}
	for _, name := range list(c.String("modes")) {
		m, err := model.ParsePrefill(name)
		if err != nil {
			return o, fmt.Errorf("--modes: %w", err)
		}
		if !slices.Contains(o.Modes, m) {
			o.Modes = append(o.Modes, m)
		}
	}
	return o, nil
}

// fitting are those of the default contexts that a model takes, or a quarter of what it does.
func fitting(contexts []int, limit, steps int) []int {
	out := slices.DeleteFunc(slices.Clone(contexts), func(n int) bool { return n > limit/2-steps })
	if len(out) == 0 && limit >= 4 {
		out = []int{limit / 4}
	}
	return out
}

// list splits at commas.
func list(s string) (out []string) {
	for _, x := range strings.Split(s, ",") {
		if x = strings.TrimSpace(x); x != "" {
			out = append(out, x)
		}
	}
	return out
}

// numbers reads positive numbers, each once, in ascending order.
func numbers(s string) (out []int, err error) {
	for _, x := range list(s) {
		n, err := strconv.Atoi(x)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q: give numbers from 1 on, with commas between", x)
		}
		out = append(out, n)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
