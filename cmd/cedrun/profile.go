package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	ced "cedrun/cuda"
	"cedrun/runtime/engine"
	"cedrun/runtime/machine"
	"cedrun/runtime/model"
	"cedrun/runtime/plan"
	"cedrun/runtime/profile"
	"cedrun/runtime/sample"
)

func profileCommand(con *console) *cli.Command {
	return &cli.Command{
		Name:  "profile",
		Usage: "say where the time of a request goes, by layer and kernel",
		Description: "Runs a request and adds up, prefill and decode apart, the time of every kernel in every layer and of the host between\n" +
			"them. The rows of a phase and its unaccounted time sum to its steps exactly. The request is --prompt, --prompt-file or\n" +
			"--messages, or else --prompt-tokens random tokens; a short one before it, which is not recorded, warms up.\n" +
			"With --attach the time is that of a process that serves or generates, for --seconds.\n" +
			"On a device times of kernels are those of its events, around each; the request runs once before without them, which the\n" +
			"report says beside, for then decode steps are replayed as graphs. wait is the time in which it stood still until experts\n" +
			"were copied to it.\n" +
			"--trace writes every call for Perfetto (ui.perfetto.dev) or chrome://tracing. --roofline measures this machine's rates,\n" +
			"adds bytes, FLOPs and the share of the limit to the table, and draws kernels under their ceilings.\n\n" +
			"Examples:\n" +
			"  cedrun profile -m DIR\n" +
			"  cedrun profile -m DIR --prompt-tokens 4096 --tokens 64 --roofline roofline.svg\n" +
			"  cedrun profile -m DIR -p 'Why is the sky blue?' --trace trace.json --layers\n" +
			"  cedrun profile --attach 4711 --seconds 30",
		Flags: flags(modelFlags(), inputFlags(), []cli.Flag{
			withDefaultInt(intFlag(groupInput, "prompt-tokens", 0, 1, "", "a prompt of `N` random tokens"), "512, or half of what the model takes"),
			intFlag(groupInput, "tokens", 32, 1, "", "write `M` tokens after the prompt"),
			&cli.Uint64Flag{Category: groupInput, Name: "seed", Usage: "`SEED` of the random tokens", EnvVars: env("seed")},
			prefillFlag(model.Replay.String(), "replay"),
			intFlag(groupCompute, "chunk", 0, 0, "256", "`N` prompt tokens of a step"),
		}, engineFlags(), []cli.Flag{
			&cli.BoolFlag{Category: groupInput, Name: "attach", Usage: "profile the process `PID`; without PID the one cedrun that runs", DisableDefaultText: true},
			floatFlag(groupInput, "seconds", 10, "with --attach: for `N` seconds"),
			boolFlag(groupOutput, "layers", "list the kernels of every layer too"),
			stringFlag(groupOutput, "trace", "", "write a trace event `FILE.json` for Perfetto or Chrome"),
			stringFlag(groupOutput, "roofline", "", "measure the machine's rates, and write a roofline plot to `FILE.svg`"),
		}, outputFlags("print one JSON object: model, backend, limits, process, phases with a row per layer, part and kernel")),
		Action: con.action(1, con.profile),
	}
}

// withDefaultInt says what an integer is when it is not set.
func withDefaultInt(f *cli.IntFlag, text string) *cli.IntFlag {
	f.DefaultText = text
	return f
}

// profiling is a request that is recorded.
type profiling struct {
	*console
	files    *engine.Files
	inst     *engine.Instance
	recorder *profile.Recorder
	req      engine.Request
	limits   *profile.Limits    // nil: not asked for
	plain    *profile.Recording // of a device, without a trace
}

func (con *console) profile(c *cli.Context) error {
	if name := c.String("roofline"); name != "" && strings.ToLower(filepath.Ext(name)) != ".svg" {
		return fmt.Errorf("--roofline %s: the plot is an SVG file; give a name that ends in .svg", name)
	}
	for _, flag := range []string{"trace", "roofline"} {
		if name := c.String(flag); name != "" {
			if err := tryFile(name); err != nil {
				return fmt.Errorf("--%s: %w", flag, err)
			}
		}
	}
	switch {
	case c.Bool("attach"):
		return con.attach(c)
	case c.Args().Present():
		return fmt.Errorf("unexpected argument %q: the number of a process goes with --attach", c.Args().First())
	case c.IsSet("seconds"):
		return errors.New("--seconds is for --attach: a request of its own is profiled to its end")
	}
	mode, err := model.ParsePrefill(c.String("prefill"))
	if err != nil {
		return err
	}
	kind, err := con.backend(c)
	if err != nil {
		return err
	}
	f, err := con.openFiles(c)
	if err != nil {
		return err
	}
	p := &profiling{console: con, files: f, recorder: profile.NewRecorder()}
	p.req = engine.Request{Prefill: mode, MaxTokens: c.Int("tokens"), Sampling: sample.Params{Temperature: 1, TopP: 1, Seed: c.Uint64("seed")}}
	if err := p.readPrompt(c); err != nil {
		return closing(f, err)
	}
	setup := engine.Setup{
		Backend: kind, Threads: c.Int("threads"), Pin: c.Bool("pin"), Chunk: c.Int("chunk"), Context: len(p.req.Prompt) + p.req.MaxTokens,
		Trace: p.recorder.Trace(), Observe: p.recorder.Observe,
	}
	if p.inst, err = con.start(f, setup); err != nil {
		return closing(f, err)
	}
	return closing(p.inst, p.run(c))
}

// readPrompt encodes the prompt that was given, or invents one.
func (p *profiling) readPrompt(c *cli.Context) error {
	given := c.IsSet("prompt") || c.IsSet("prompt-file") || c.IsSet("messages")
	most := p.files.Config.MaxPositions - p.req.MaxTokens
	switch {
	case given && c.IsSet("prompt-tokens"):
		return errors.New("--prompt-tokens makes up a prompt: leave it out, or the prompt that was given")
	case given:
		if err := needTokenizer(p.files); err != nil {
			return err
		}
		ask, err := p.readAsk(c, true)
		if err != nil {
			return err
		}
		in, err := ask.encode(p.console, p.files)
		if err != nil {
			return err
		}
		p.req.Prompt = in.ids
	default:
		n := c.Int("prompt-tokens")
		if n == 0 {
			n = max(1, min(512, p.files.Config.MaxPositions/2, most))
		}
		p.req.Prompt = make([]int32, min(n, p.files.Config.MaxPositions+1))
		random := rand.New(rand.NewPCG(c.Uint64("seed"), uint64(n)))
		for i := range p.req.Prompt {
			p.req.Prompt[i] = int32(random.IntN(p.files.Config.VocabSize))
		}
	}
	if len(p.req.Prompt) > most {
		return fmt.Errorf("a prompt of %d tokens and --tokens %d do not fit together: this model takes %d", len(p.req.Prompt), p.req.MaxTokens, p.files.Config.MaxPositions)
	}
	return nil
}

func (p *profiling) run(c *cli.Context) error {
	p.show("warming up")
	if err := p.warmUp(c.Context); err != nil {
		p.clear()
		return p.interrupted(c, err)
	}
	probe, closeProbe, err := p.prober(c)
	if err != nil {
		p.clear()
		return err
	}
	defer closeProbe()
	if err := probe(); err != nil {
		return err
	}
	if p.inst.Setup.Backend == ced.CUDA {
		p.show("running the request without a trace")
		if p.plain, err = profile.Time(c.Context, p.recorder, p.inst, p.req); err != nil {
			p.clear()
			return p.interrupted(c, err)
		}
	}
	p.show("recording")
	rec, err := profile.Record(c.Context, p.recorder, p.inst, p.req)
	if err == nil {
		err = probe()
	}
	p.clear()
	if err != nil && (c.Context.Err() == nil || rec == nil || len(rec.Steps) == 0) {
		return p.interrupted(c, err)
	}
	if werr := p.write(c, rec); werr != nil || err == nil {
		return werr
	}
	return errInterrupted
}

func (p *profiling) interrupted(c *cli.Context, err error) error {
	if c.Context.Err() != nil {
		return errInterrupted
	}
	return err
}

// warmUp runs the beginning of the request.
func (p *profiling) warmUp(ctx context.Context) error {
	q := p.req
	q.Prompt, q.MaxTokens = q.Prompt[:min(len(q.Prompt), 2*p.inst.Setup.Chunk)], min(2, q.MaxTokens)
	g, err := p.inst.Submit(ctx, q)
	if err != nil {
		return err
	}
	r := g.Wait()
	if r.Finish == engine.FinishCancelled {
		return context.Cause(ctx)
	}
	return r.Err
}

// prober measures the machine's rates on threads of its own, if they are asked for; a second time to see whether the
// machine was quiet.
func (p *profiling) prober(c *cli.Context) (probe func() error, done func(), err error) {
	if c.String("roofline") == "" {
		return func() error { return nil }, func() {}, nil
	}
	s, err := ced.Open(p.inst.Setup.Backend, p.inst.Setup.Device, p.inst.Threads())
	if err != nil {
		return nil, nil, err
	}
	m, err := machine.NewProber(c.Context, s)
	if err != nil {
		s.Close()
		return nil, nil, err
	}
	probe = func() error {
		p.show("measuring this machine")
		if err := m.Probe(); err != nil {
			return err
		}
		p.limits = profile.NewLimits(m)
		return nil
	}
	return probe, func() {
		m.Close()
		s.Close()
	}, nil
}

// works are the bytes and FLOPs of the steps that were recorded: of the prompt if it is whole, and of every decode step.
func (p *profiling) works(rec *profile.Recording) profile.Works {
	cfg, n := p.files.Config, len(p.req.Prompt)
	out := profile.Works{profile.Prefill: {}, profile.Decode: {}}
	prefilled, at := 0, n
	for _, s := range rec.Steps {
		prefilled += s.Prefill
		for range s.Decode {
			out[profile.Decode].AddDecode(cfg, 1, at)
			at++
		}
	}
	if prefilled == n {
		out[profile.Prefill].AddPrompt(cfg, plan.Thresholds(model.NewPlan(cfg, p.req.Prefill, n)), n, p.inst.Setup.Chunk)
	}
	return out
}

// write prints the report and writes the files that were asked for.
func (p *profiling) write(c *cli.Context, rec *profile.Recording) error {
	subject := subjectOf(p.inst)
	subject.Mode = p.req.Prefill.String()
	r := profile.New(subject, rec, p.works(rec), p.limits)
	if p.plain != nil {
		r.Compare(p.plain)
	}
	return p.writeProfile(c, r, rec)
}

// writeProfile prints a report, and writes the files that flags ask for.
func (con *console) writeProfile(c *cli.Context, r *profile.Report, rec *profile.Recording) error {
	var err error
	if c.Bool("json") {
		err = con.printJSON(r)
	} else {
		err = r.Print(con.out, c.Bool("layers"))
	}
	if err != nil {
		return err
	}
	for _, x := range []struct {
		flag  string
		write func(io.Writer) error
	}{
		{"trace", func(w io.Writer) error { return r.WriteTrace(w, rec) }},
		{"roofline", r.WriteRoofline},
	} {
		if name := c.String(x.flag); name != "" {
			if err := writeFile(name, x.write); err != nil {
				return fmt.Errorf("--%s: %w", x.flag, err)
			}
		}
	}
	return nil
}

// tryFile says now what writing a file would fail with after minutes. Pipes and devices are not touched.
func tryFile(name string) error {
	info, err := os.Stat(name)
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return nil
	}
	f, operr := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o666)
	if operr != nil {
		return operr
	}
	if errors.Is(err, fs.ErrNotExist) {
		return errors.Join(f.Close(), os.Remove(name))
	}
	return f.Close()
}

// writeFile makes a file of what write writes; a file that failed does not stay, unless it is a device.
func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		err = write(f)
	}
	if err = closing(f, err); err != nil {
		if info != nil && info.Mode().IsRegular() {
			_ = os.Remove(name)
		}
		return err
	}
	return nil
}
