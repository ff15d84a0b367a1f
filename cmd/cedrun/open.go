package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"cedrun/runtime/checkpoint"
	"cedrun/runtime/engine"
	"cedrun/runtime/plan"
	"cedrun/runtime/residency"
	"cedrun/testdata/demo"
)

// source is the checkpoint that --model names.
func source(c *cli.Context) (engine.Source, error) {
	if dir := c.String("model"); dir != "" {
		return engine.Source{Dir: dir}, nil
	}
	fsys, ok := demo.FS()
	if !ok {
		return engine.Source{}, errors.New("no embedded model in this build: give --model DIR")
	}
	return engine.Source{FS: fsys}, nil
}

// openFiles opens the checkpoint that --model names.
func (con *console) openFiles(c *cli.Context) (*engine.Files, error) {
	src, err := source(c)
	if err != nil {
		return nil, err
	}
	cache := c.String("cache-dir")
	if cache == "" && src.FS == nil {
		if dir, err := os.UserCacheDir(); err == nil {
			cache = filepath.Join(dir, "cedrun")
		}
	}
	began := time.Now()
	f, err := engine.OpenFiles(src, checkpoint.Options{NoMap: c.Bool("no-map"), HugePages: con.hugePages, HugeCopies: con.hugeCopies}, cache)
	if err != nil {
		return nil, err
	}
	con.log.Info().Str("model", src.Name()).Stringer("census", f.Report).Bool("mapped", f.Checkpoint.Mapped()).
		Str("prompts", f.Profile.Name).Int64("us", time.Since(began).Microseconds()).Msg("checkpoint opened")
	if f.Profile.Warning != "" {
		con.log.Warn().Msg(f.Profile.Warning)
	}
	if err := f.Checkpoint.MapRefused(); err != nil {
		con.log.Warn().Err(err).Msg("the shards cannot be mapped: weights are read into memory")
	}
	return f, nil
}

// start starts an engine on opened files, after it has said what that will take.
func (con *console) start(f *engine.Files, setup engine.Setup) (*engine.Instance, error) {
	setup.NoGraphs = con.noGraphs
	setup = con.placed(f, setup)
	p, err := f.Plan(setup)
	if err != nil {
		return nil, err
	}
	con.log.Info().Int64("weights", p.Weights).Int64("read", p.Read).Int64("kv", p.Buffers.KV).Int64("windows", p.Buffers.Windows).Int64("snapshots", p.Buffers.Snapshots).Int64("step", p.Buffers.Step).
		Int("kv_tokens", p.KVTokens).Int64("available", p.Available).Stringer("backend", setup.Backend).Msg("plan, in bytes")
	if d := p.Device; d != nil {
		con.log.Info().Str("device", d.Device.Name).Int64("free", d.Device.Free).Int64("weights", d.Weights).Int64("kv", d.KV+d.Windows).Int64("step", d.Step+d.Streams).
			Int64("graphs_believed", d.Graphs).Int64("reserve", d.Reserve).Int64("experts", d.Experts).Int64("experts_host", d.ExpertsHost).Msg("plan of the device, in bytes")
	}
	if err := p.Check(); err != nil {
		return nil, err
	}
	if p.Shortage != "" {
		con.log.Warn().Msg(p.Shortage)
	}
	setup.NoSelfTest, setup.HugePages = con.noSelfTest, con.hugePages
	if setup.Warn == nil {
		setup.Warn = func(text string) { con.log.Warn().Msg(text) }
	}
	if err := con.warm(f, setup); err != nil {
		return nil, err
	}
	setup.Capturing = func(done, of int) { con.show("capturing decode steps: %d of %d", done+1, of) }
	i, err := engine.Start(f, setup)
	con.clear()
	if err != nil {
		return nil, err
	}
	if c := i.Captured; c.Steps > 0 {
		con.log.Info().Int("batch_sizes", c.Steps).Int64("bytes", c.Bytes).Int64("us", c.Took.Microseconds()).Msg("decode steps captured")
		if d := p.Device; d != nil && c.Bytes > d.Graphs+d.Reserve {
			con.log.Warn().Msgf("captured decode steps take %s of device memory, more than the %s that were believed and in reserve: if the device runs out of memory, use --no-graphs or a smaller batch", plan.GB(c.Bytes), plan.GB(d.Graphs+d.Reserve))
		}
	}
	if u := i.Counters().Model.Slots; u != nil {
		con.log.Info().Int("slots", u.Slots).Int("experts", u.Experts).Int("bytes", u.Bytes).Str("first", u.First).Msg("experts on the device")
		if u.ByHost {
			con.log.Info().Int("experts", u.Experts-u.Slots).Int("threads", i.Threads()).Int("expert_memory", i.Setup.ExpertBytes).
				Msg("the CPU computes the other experts: results have the bits of this --expert-memory, and steps are not captured")
		}
	}
	if t := i.SelfTest; t.Warning != "" {
		con.log.Warn().Msg(t.Warning)
	} else {
		con.log.Info().Int64("us", t.Took.Microseconds()).Bool("model", t.Model).Bool("skipped", setup.NoSelfTest).Msg("self-test")
	}
	return i, nil
}

// warm brings weights into memory, as the flags say, and shows how it gets on.
func (con *console) warm(f *engine.Files, setup engine.Setup) error {
	o := con.warming
	o.Report = func(done, total int64) {
		con.show("reading weights: %s of %s", plan.GB(done), plan.GB(total))
	}
	began := time.Now()
	w, err := f.Warm(con.ctx, setup, o)
	con.clear()
	if con.ctx.Err() != nil {
		return errInterrupted
	}
	if err != nil {
		return err
	}
	con.log.Info().Stringer("mode", o.Mode).Int64("read", w.Read).Int64("locked", w.Locked).Bool("experts", w.Experts).
		Int64("us", time.Since(began).Microseconds()).Msg("weights in memory")
	return nil
}

// readWarming reads what flags say about pages.
func (con *console) readWarming(c *cli.Context) (err error) {
	con.ctx = c.Context
	switch mode := c.String("huge-pages"); mode {
	case "", "off":
	case "auto", "on":
		con.hugePages, con.hugeCopies = true, mode == "on"
		if why := residency.HugePagesOff(os.DirFS("/")); why != "" && mode == "on" {
			con.log.Warn().Msg("--huge-pages on: there are none: " + why)
		}
	default:
		return fmt.Errorf("--huge-pages %q: use auto, on or off", mode)
	}
	con.warming.Lock = c.Bool("lock")
	if name := c.String("warm"); name != "" {
		if con.warming.Mode, err = engine.ParseWarm(name); err != nil {
			return fmt.Errorf("--warm %w", err)
		}
	}
	return nil
}

// tokenizerOf insists on a tokenizer.
func needTokenizer(f *engine.Files) error {
	if f.Tokenizer == nil {
		return fmt.Errorf("%s has no tokenizer.json, so it can neither read nor write text; cedrun logits takes token ids", f.Source.Name())
	}
	return nil
}

// wait gathers what a request samples until it ends.
func wait(g *engine.Generation) ([]int32, error) {
	var ids []int32
	for {
		t, ok := g.Next(context.Background()) // the request's own context ends it
		if !ok {
			break
		}
		ids = append(ids, t.ID)
	}
	r := g.Result()
	if r.Finish == engine.FinishCancelled {
		return nil, errInterrupted
	}
	return ids, r.Err
}

// closing closes c after a command ended with err, and reports the first of both errors.
func closing(c io.Closer, err error) error {
	if cerr := c.Close(); err == nil {
		return cerr
	}
	return err
}
