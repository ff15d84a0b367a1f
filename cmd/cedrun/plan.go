package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	ced "cedrun/cuda"
	"cedrun/runtime/config"
	"cedrun/runtime/engine"
	"cedrun/runtime/machine"
	"cedrun/runtime/model"
	"cedrun/runtime/plan"
)

func planCommand(con *console) *cli.Command {
	return &cli.Command{
		Name:  "plan",
		Usage: "say what a model will take and how fast it will be, before it is loaded",
		Description: "Memory and speed follow from config.json, a second of measuring this machine's kernels on synthetic weights of\n" +
			"the model's shapes, and, where experts do not fit, its disk. No weight is read; the shards need not be there.\n" +
			"If the wish does not fit, the exit status is 1 and the message says what would.\n\n" +
			"With --gpu, or with --backend cuda, it is planned for a GPU, and speed follows from the GPU's rates: nothing is measured.\n\n" +
			"Examples:\n" +
			"  cedrun plan -m DIR\n" +
			"  cedrun plan -m DIR --context 131072 --batch 4\n" +
			"  cedrun plan -m DIR --host-memory 64GiB --json\n" +
			"  cedrun plan -m DIR --gpu h200 --host-memory 512GiB --batch 16",
		Flags: flags(
			[]cli.Flag{withDefault(stringFlag(groupModel, "model", "", "checkpoint `DIR`: config.json, and the shards if the disk is to be measured", "m"), "the embedded demo model")},
			[]cli.Flag{
				intFlag(groupCompute, "context", 0, 1, "8192, or what the model takes", "room for `N` tokens of prompt and text in every sequence"),
				intFlag(groupCompute, "batch", 1, 1, "", "`B` sequences at a time"),
				withDefault(stringFlag(groupCompute, "host-memory", "", "plan for this `SIZE` of free memory: bytes, or with a unit as in 24GiB or 24GB"), "what is free now"),
				withDefault(stringFlag(groupCompute, "kv-host", "", "and a prefix cache of `SIZE` as serve keeps it: one half for snapshots, the other for pages; 0 = none"), "what serve takes if no flag says: 1/16 of free memory, at most 4GiB"),
				withDefault(stringFlag(groupCompute, "gpu", "", "plan for a GPU of `NAME`, as in h200, a100 or rtx-4090; an unknown one lists them. With --gpu-memory any name, or a compute capability as in 9.0: no speed is predicted then"), "the CPU, or the device with --backend cuda"),
				withDefault(stringFlag(groupCompute, "gpu-memory", "", "of which this `SIZE` is free"), "nearly all, or what is free now"),
				prefillFlag(model.Replay.String(), "replay"),
				noGraphsFlag(),
			}, computeFlags(), outputFlags("print one JSON object: model, setup, memory, device, gpu, kernels, disk, prefill, decode")),
		Action: con.action(0, con.plan),
	}
}

// wish is what the flags of plan ask for.
type wish struct {
	source  engine.Source
	config  *config.Config
	wish    plan.Setup // as flags say
	setup   plan.Setup // zeros filled in
	mode    model.Prefill
	backend ced.Kind
	threads int
	have    int64

	gpu     *plan.GPU // nil: the CPU
	device  plan.Device
	experts int64 // bytes for experts on it; 0 = what is free
}

func (con *console) plan(c *cli.Context) error {
	w, err := con.readWish(c)
	if err != nil {
		return err
	}
	if w.gpu != nil {
		err := con.planOnGPU(c, w)
		if asked := c.String("gpu")+c.String("gpu-memory") != ""; asked || !isMisfit(err) || !con.leavesDevice(err) {
			return err
		}
		w.gpu, w.backend, w.wish.HostExperts = nil, ced.CPU, false
		if err := w.fill(c); err != nil {
			return err
		}
	}
	s, err := con.openStream(c, w.backend)
	if err != nil {
		return err
	}
	defer s.Close()
	w.threads = s.Threads()
	weights := plan.CountWeights(w.config)
	if err := plan.Fit(w.config, weights, w.setup, w.threads, w.have); err != nil {
		return fmt.Errorf("%s with --context %d --batch %d %w", w.source.Name(), w.setup.Context, w.setup.Slots, err)
	}
	if w.setup, err = w.wish.FillFor(w.config, weights, w.threads, w.have); err != nil {
		return err
	}
	memory := plan.Place(w.config, weights, w.setup, w.threads, w.have)
	con.show("measuring this machine")
	report, err := w.predict(s, memory)
	con.clear()
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return con.printJSON(report)
	}
	return report.print(con.out)
}

func (con *console) readWish(c *cli.Context) (w *wish, err error) {
	w = &wish{threads: c.Int("threads")}
	if w.source, err = source(c); err != nil {
		return nil, err
	}
	if w.mode, err = model.ParsePrefill(c.String("prefill")); err != nil {
		return nil, err
	}
	if c.String("gpu") == "" || c.String("backend") == ced.CUDA.String() { // else of none here
		if w.backend, err = con.backend(c); err != nil {
			return nil, err
		}
	}
	if w.config, err = readConfig(w.source); err != nil {
		return nil, err
	}
	w.wish = plan.Setup{Context: c.Int("context"), Slots: c.Int("batch"), NoGraphs: c.Bool("no-graphs")}
	if w.wish.HostExperts, err = expertsByHost(c); err != nil {
		return nil, err
	}
	if err := con.readGPU(c, w); err != nil {
		return nil, err
	}
	w.have = plan.Available(os.DirFS("/"))
	if text := c.String("host-memory"); text != "" {
		if w.have, err = plan.ParseSize(text); err != nil {
			return nil, fmt.Errorf("--host-memory: %w", err)
		}
	} else if w.gpu != nil && w.backend != ced.CUDA {
		w.have = 0 // of the machine that the GPU is in: not known
	}
	return w, w.fill(c)
}

// fill fills zeros in, and adds the prefix cache that serve would keep beside the texts.
func (w *wish) fill(c *cli.Context) (err error) {
	w.wish.KVTokens, w.wish.Snapshots = 0, 0
	if w.setup, err = w.wish.Fill(w.config); err != nil {
		return err
	}
	host, err := sizeFlag(c, "kv-host", plan.DefaultCache(w.have))
	if err != nil {
		return err
	}
	cache := plan.HostCache(host, c.IsSet("kv-host"))
	weights, texts := plan.CountWeights(w.config), w.setup.KVTokens
	onHost := func(x plan.Cache) bool {
		return plan.Fit(w.config, weights, x.In(w.setup, w.config, texts), w.threads, w.have) == nil
	}
	place := func(x plan.Cache) (plan.Setup, *plan.OnDevice, error) {
		wish := w.wish
		wish.KVTokens, wish.Snapshots = x.In(wish, w.config, texts).KVTokens, x.Snapshots
		return wish.FillOn(w.config, weights, w.device, w.experts)
	}
	onDevice := func(x plan.Cache) bool {
		_, _, err := place(x)
		return err == nil
	}
	if w.gpu != nil {
		cache = plan.DeviceCache(host, w.device.Free, c.IsSet("kv-host"))
		onHost = func(x plan.Cache) bool {
			s, d, err := place(x)
			if err == nil {
				_, err = plan.HostOf(d, w.config, weights, s, w.have)
				return err == nil
			}
			return true // what the device lacks the host cannot give
		}
	}
	cache = cache.Shrink(onDevice, onHost)
	w.setup = cache.In(w.setup, w.config, texts)
	w.wish.KVTokens, w.wish.Snapshots = w.setup.KVTokens, w.setup.Snapshots
	return nil
}

// readConfig reads the geometry of a checkpoint whose shards may be missing.
func readConfig(src engine.Source) (*config.Config, error) {
	if src.FS == nil {
		path := filepath.Join(src.Dir, "config.json")
		if st, err := os.Stat(src.Dir); err == nil && !st.IsDir() {
			path = src.Dir // a config alone
		}
		c, err := config.Load(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s has no config.json: give a checkpoint's directory", src.Dir)
		}
		return c, err
	}
	data, err := fs.ReadFile(src.FS, "config.json")
	if err != nil {
		return nil, fmt.Errorf("%s: read config.json: %w", src.Name(), err)
	}
	return config.Parse(data)
}

// predict measures the machine and answers.
func (w *wish) predict(s *ced.Stream, memory *plan.Memory) (*planReport, error) {
	prompt := max(w.setup.Context-1, 1)
	thresholds := plan.Thresholds(model.NewPlan(w.config, w.mode, prompt))
	var calls []plan.Call
	gather := func(c plan.Call, _ float64) { calls = append(calls, c) }
	streamed := 0.
	plan.Decode(w.config, w.setup.Slots, prompt, func(c plan.Call, n float64) {
		streamed += n * c.Bytes()
		gather(c, n)
	})
	plan.Prompt(w.config, thresholds, prompt, w.setup.Chunk, gather)
	m := &plan.Machine{}
	var err error
	if m.Costs, err = machine.Costs(s, w.config, calls, streamed); err != nil {
		return nil, err
	}
	if memory.OnDisk() > 0 && w.source.FS == nil {
		if m.Disk, err = machine.Disk(w.source.Dir, w.threads); err != nil {
			return nil, err
		}
	}
	r := &planReport{
		Model: w.source.Name(), Backend: w.backend.String(), Threads: w.threads, PrefillMode: w.mode.String(),
		Context: w.setup.Context, Batch: w.setup.Slots, Memory: memory, Need: memory.Need(), OnDisk: memory.OnDisk(),
		Kernels: plan.Rates(m, w.config, w.setup.Slots, prompt), Disk: m.Disk,
		Prefill: memory.PromptSpeed(m, w.config, thresholds, prompt, w.setup.Chunk),
	}
	for _, at := range positions(w.setup.Context) {
		r.Decode = append(r.Decode, decodeAt{at, memory.DecodeSpeed(m, w.config, w.setup.Slots, at)})
	}
	return r, nil
}

// positions are where decode is predicted: early, and at the end of the context.
func positions(context int) []int {
	const early = 256
	if context <= 2*early {
		return []int{context - 1}
	}
	return []int{early, context - 1}
}

type decodeAt struct {
	Position int `json:"position"`
	plan.Speed
}

// planReport is the JSON of a plan.
type planReport struct {
	Model       string         `json:"model"`
	Backend     string         `json:"backend"`
	Threads     int            `json:"threads"`
	PrefillMode string         `json:"prefill_mode"`
	Context     int            `json:"context"`
	Batch       int            `json:"batch"`
	Need        int64          `json:"need"` // bytes that should be in memory
	OnDisk      int64          `json:"on_disk"`
	Memory      *plan.Memory   `json:"memory"` // of the host
	Device      *plan.OnDevice `json:"device,omitempty"`
	GPU         *plan.GPU      `json:"gpu,omitempty"` // whose rates are taken
	Disk        plan.Disk      `json:"disk"`
	// Speed; not there for a GPU whose rates are not known.
	Kernels []plan.Rate `json:"kernels,omitempty"` // shares of a decode step
	Prefill plan.Speed  `json:"prefill,omitzero"`  // of a prompt that fills the context
	Decode  []decodeAt  `json:"decode,omitempty"`  // all sequences together
}

func (r *planReport) print(out io.Writer) error {
	m, w := r.Memory, r.Memory.Weights
	p := &lines{w: out}
	if r.Device != nil {
		r.printDevice(p)
		return p.err
	}
	p.line("%s: %d x %d tokens, %s prefill, backend %s, %d threads", r.Model, r.Batch, r.Context, r.PrefillMode, r.Backend, r.Threads)
	p.line("")
	p.line("In memory")
	p.cache(m.Buffers.KV, m.KVTokens, m.KVGrows)
	p.row("windows", m.Buffers.Windows, "%d sequences", r.Batch)
	p.row("kept windows", m.Buffers.Kept, "for a step that is run again")
	p.row("snapshots", m.Buffers.Snapshots, "at most")
	p.row("step buffers", m.Buffers.Step+m.Buffers.Program, "and the program itself")
	p.row("dense weights", w.Dense, "mapped; every token reads them")
	p.row("head", w.Head, "mapped; once per sampled token")
	p.row("experts", m.ExpertsHeld, "mapped; %.3g %% of %s", 100*m.ExpertShare, plan.GB(w.Experts))
	p.row("table rows", m.Rows, "mapped; embedding and Engram")
	if r.OnDisk > 0 {
		p.line("On disk, read when used")
		p.row("experts", w.Experts-m.ExpertsHeld, "%.3g %% of them", 100*(1-m.ExpertShare))
		p.row("table rows", w.Embedding+w.Engram-m.Rows, "embedding and Engram")
	}
	p.row("not used", w.Idle, "draft blocks and vision")
	if m.Have > 0 {
		p.row("memory", m.Have, "free; %s needed, experts apart; %s", plan.GB(r.Need), growth(m.KVFit, m.KVGrows, ""))
	}
	r.printSpeed(p)
	p.line("A decode step by kernel, measured now")
	r.printKernels(p)
	if r.OnDisk > 0 {
		if r.Disk.Bandwidth > 0 {
			p.line("Disk: %.2f GB/s, %.0f us a row; %s", r.Disk.Bandwidth/1e9, 1e6*r.Disk.Latency, r.Disk.Note)
		} else {
			p.line("Disk: %s; the speeds above leave it out and are upper bounds", r.Disk.Note)
		}
		p.line("Experts are taken to be chosen uniformly: real choices are skewed, so the cache does better.")
	}
	return p.err
}

func (r *planReport) printSpeed(p *lines) {
	p.line("")
	p.line("Predicted speed")
	p.line("  prefill %10s tok/s   a prompt of %.0f tokens in %s%s", rate(r.Prefill.Rate), r.Prefill.Tokens, span(r.Prefill.Compute+r.Prefill.Disk+r.Prefill.Bus), waiting(r.Prefill))
	for _, d := range r.Decode {
		p.line("  decode  %10s tok/s   after %d tokens%s%s", rate(d.Rate), d.Position, r.each(d.Rate), waiting(d.Speed))
	}
}

func (r *planReport) printKernels(p *lines) {
	for _, k := range r.Kernels {
		gbs := ""
		if k.Bandwidth > 0 {
			gbs = fmt.Sprintf("%8.2f GB/s", k.Bandwidth/1e9)
		}
		p.line("  %-27s %9.3f ms  %4.1f %%  %s", k.Name, 1e3*k.Seconds, 100*k.Share, gbs)
	}
}

// each is a sequence's share of a rate.
func (r *planReport) each(all float64) string {
	if r.Batch == 1 {
		return ""
	}
	return fmt.Sprintf(", %s for each sequence", rate(all/float64(r.Batch)))
}

// rate writes tokens a second in four digits, or all before the point.
func rate(x float64) string {
	if x >= 1000 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.4g", x)
}

// span writes a time to three digits or whole seconds.
func span(seconds float64) string {
	if seconds < 100 {
		return fmt.Sprintf("%.3g s", seconds)
	}
	return time.Duration(int64(seconds) * int64(time.Second)).String()
}

// waiting says how much of a time the disk takes.
func waiting(s plan.Speed) string {
	if s.Bus > 0 {
		return fmt.Sprintf(", %.0f %% of it reading %s over the bus", 100*s.Bus/(s.Disk+s.Compute+s.Bus), plan.GB(int64(s.BusBytes)))
	}
	if s.Disk == 0 {
		return ""
	}
	return fmt.Sprintf(", %.0f %% of it waiting for %s from disk", 100*s.Disk/(s.Disk+s.Compute), plan.GB(int64(s.DiskBytes)))
}

// lines writes until the first error.
type lines struct {
	w   io.Writer
	err error
}

func (p *lines) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// cache is the line of the KV cache.
func (p *lines) cache(bytes int64, tokens int, grows bool) {
	if grows {
		p.row("KV cache", bytes, "%d tokens", tokens)
	}
}

// growth says how many tokens a KV cache could have, and on which condition.
func growth(fit int64, grows bool, when string) string {
	if !grows {
		return "the KV cache is the windows, which do not grow with tokens"
	}
	return fmt.Sprintf("the KV cache could grow to %d tokens%s", fit, when)
}

// row is a line of the memory table, left out when there is nothing.
func (p *lines) row(name string, bytes int64, note string, args ...any) {
	if bytes == 0 {
		return
	}
	p.line("  %-15s %9s   %s", name, plan.GB(bytes), fmt.Sprintf(note, args...))
}
