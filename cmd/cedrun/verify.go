package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"cedrun/runtime/verify"
)

func verifyCommand(con *console) *cli.Command {
	return &cli.Command{
		Name:  "verify",
		Usage: "say whether a downloaded checkpoint is whole",
		Description: "Holds the files, tensors, dtypes and shapes of a checkpoint against its config, in seconds whatever its size.\n" +
			"--deep also reads every byte: it looks for NaN codes, scales of 0xFF, infinite and NaN values, and takes the\n" +
			"SHA-256 of every file. Digests are compared with --digests, or else with what the Hugging Face client noted in\n" +
			"the directory when it downloaded the files. One report lists every fault; the exit status is 1 if there is one.\n\n" +
			"Examples:\n" +
			"  cedrun verify -m DIR\n" +
			"  cedrun verify -m DIR --deep\n" +
			"  cedrun verify -m DIR --deep --digests SHA256SUMS --json",
		Flags: flags([]cli.Flag{
			withDefault(stringFlag(groupModel, "model", "", "checkpoint `DIR`: config.json, tokenizer.json and safetensors shards", "m"), "the embedded demo model"),
			boolFlag(groupInput, "deep", "read every byte of the weights"),
			stringFlag(groupInput, "digests", "", "with --deep: compare with the digests in `FILE`, as sha256sum writes them"),
			intFlag(groupCompute, "threads", 0, 0, "2", "with --deep: read `N` files at a time"),
		}, outputFlags("print the report as JSON")),
		Action: con.action(0, con.verify),
	}
}

func (con *console) verify(c *cli.Context) error {
	m, err := locate(c)
	if err != nil {
		return err
	}
	if m.bare {
		return fmt.Errorf("--model %s is a file: give the directory that holds it and the safetensors shards", m.name)
	}
	o := verify.Options{Deep: c.Bool("deep"), Workers: c.Int("threads")}
	if name := c.String("digests"); name != "" {
		if !o.Deep {
			return errors.New("--digests needs --deep: a digest takes reading every byte")
		}
		data, err := os.ReadFile(name)
		if err == nil {
			o.Digests, err = verify.ParseDigests(name, data)
		}
		if err != nil {
			return fmt.Errorf("--digests: %w", err)
		}
	}
	bar := &bar{con: con}
	if con.errTerminal {
		o.Progress = bar.start
	}
	s := verify.Subject{Name: m.name, Dir: m.dir}
	if m.dir == "" {
		s.FS = m.fsys
	}
	r, err := verify.Run(c.Context, s, o)
	bar.end()
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = con.printJSON(r)
	} else {
		err = r.Print(con.out)
	}
	if err == nil && !r.OK {
		faults := "1 fault"
		if n := len(r.Faults); n > 1 {
			faults = fmt.Sprint(n, " faults")
		}
		err = fmt.Errorf("%s is not whole: %s", m.name, faults)
	}
	return err
}

// bar draws the progress of bytes read on a terminal.
type bar struct {
	con *console
	all *mpb.Progress
	bar *mpb.Bar
}

func (b *bar) start(total int64) func(n int64) {
	b.all = mpb.New(mpb.WithOutput(b.con.err), mpb.WithWidth(40))
	b.bar = b.all.AddBar(total, mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.CountersKibiByte("% .1f / % .1f")),
		mpb.AppendDecorators(decor.AverageSpeed(decor.SizeB1024(0), "% .1f "), decor.AverageETA(decor.ET_STYLE_GO)))
	return func(n int64) { b.bar.IncrInt64(n) }
}

func (b *bar) end() {
	if b.bar != nil {
		b.bar.Abort(true)
		b.all.Wait()
	}
}
