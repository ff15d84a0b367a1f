package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	ced "cedrun/cuda"
	"cedrun/runtime/model"
	"cedrun/runtime/plan"
)

// readGPU reads what the plan is for: --gpu, or the device of the back end. Without either it is the CPU.
func (con *console) readGPU(c *cli.Context, w *wish) (err error) {
	if name := c.String("gpu"); name != "" {
		g, err := plan.FindGPU(name)
		if err != nil && c.String("gpu-memory") != "" {
			var memory int64
			if memory, err = plan.ParseSize(c.String("gpu-memory")); err != nil {
				return fmt.Errorf("--gpu-memory: %w", err)
			}
			g, err = plan.OtherGPU(name, memory)
		}
		if err != nil {
			return fmt.Errorf("--gpu %w", err)
		}
		w.gpu, w.device = &g, g.Device()
	}
	if w.backend == ced.CUDA && (w.gpu == nil || c.String("backend") == "cuda") {
		d, err := ced.DeviceInfo(con.device)
		if err != nil {
			return err
		}
		w.device = plan.Device{Name: d.Name, Total: d.Total, Free: d.Free, Unified: d.Unified}
		if g, known := plan.KnownGPU(d.Name); w.gpu == nil && known {
			w.gpu = &g
		} else if w.gpu == nil {
			w.gpu = &plan.GPU{Name: d.Name, Memory: d.Total}
		}
	}
	for flag, dst := range map[string]*int64{"gpu-memory": &w.device.Free, "expert-memory": &w.experts} {
		text := c.String(flag)
		if text == "" {
			continue
		}
		if w.gpu == nil {
			return fmt.Errorf("--%s %s: there is no GPU to plan for: give --gpu NAME", flag, text)
		}
		if *dst, err = plan.ParseSize(text); err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		}
	}
	w.device.Total = max(w.device.Total, w.device.Free)
	return nil
}

// planOnGPU places weights and caches in the memories of device and host, and predicts speed from the GPU's rates.
func (con *console) planOnGPU(c *cli.Context, w *wish) error {
	weights := plan.CountWeights(w.config)
	fail := func(err error) error {
		var misfit *plan.FitError
		if !errors.As(err, &misfit) {
			return fmt.Errorf("%s with --context %d --batch %d: %w", w.source.Name(), w.setup.Context, w.setup.Slots, err)
		}
		return fmt.Errorf("%s with --context %d --batch %d %w", w.source.Name(), w.setup.Context, w.setup.Slots, err)
	}
	setup, d, err := w.wish.FillOn(w.config, weights, w.device, w.experts)
	if err != nil {
		return fail(err)
	}
	w.setup = setup
	memory, err := plan.HostOf(d, w.config, weights, w.setup, w.have)
	if err != nil {
		return fail(err)
	}
	r := &planReport{
		Model: w.source.Name(), Backend: ced.CUDA.String(), PrefillMode: w.mode.String(), Context: w.setup.Context, Batch: w.setup.Slots,
		Memory: memory, Device: d, GPU: w.gpu, Need: d.Need(), OnDisk: memory.OnDisk(),
	}
	if w.gpu.Known() {
		w.predictOnGPU(r)
	}
	if c.Bool("json") {
		return con.printJSON(r)
	}
	return r.print(con.out)
}

// predictOnGPU fills in what follows from the rates of a GPU.
func (w *wish) predictOnGPU(r *planReport) {
	prompt := max(w.setup.Context-1, 1)
	thresholds := plan.Thresholds(model.NewPlan(w.config, w.mode, prompt))
	m := &plan.Machine{GPU: w.gpu, OverBus: 1 - r.Device.ExpertShare}
	r.Kernels = plan.Rates(m, w.config, w.setup.Slots, prompt)
	r.Prefill = r.Memory.PromptSpeed(m, w.config, thresholds, prompt, w.setup.Chunk)
	for _, at := range positions(w.setup.Context) {
		r.Decode = append(r.Decode, decodeAt{at, r.Memory.DecodeSpeed(m, w.config, w.setup.Slots, at)})
	}
}

func (r *planReport) printDevice(p *lines) {
	d, m := r.Device, r.Memory
	p.line("%s: %d x %d tokens, %s prefill, backend %s, %s", r.Model, r.Batch, r.Context, r.PrefillMode, r.Backend, d.Device.Name)
	p.line("")
	p.line("In the memory of the GPU")
	p.cache(d.KV, d.KVTokens, d.KVGrows)
	p.row("windows", d.Windows, "%d sequences", r.Batch)
	p.row("step buffers", d.Step+d.Streams, "and workspaces of kernels")
	p.row("weights", d.Weights, "all but routed experts and Engram tables")
	p.row("experts", d.Experts, "%.3g %% of %s", 100*d.ExpertShare, plan.GB(m.Weights.Experts))
	p.row("captured steps", d.Graphs, "believed, not measured; batch sizes: %d", d.Captured)
	p.row("reserve", d.Reserve, "for the driver")
	p.row("memory", d.Device.Free, "free; %s", growth(d.KVFit, d.KVGrows, ", with fewest experts"))
	p.line("In host memory")
	if d.HostExperts {
		p.row("experts", d.ExpertsHost, "mapped: computed by the CPU, with bits of their own for each --expert-memory")
	} else {
		p.row("experts", d.ExpertsHost, "page-locked: all, read over the bus where the GPU has them not")
	}
	p.row("rows", m.Buffers.Step, "of a step, for the CPU")
	p.row("kept windows", m.Buffers.Kept, "page-locked, for a step that is run again")
	p.row("snapshots", m.Buffers.Snapshots, "at most")
	p.row("program", m.Buffers.Program, "")
	p.row("table rows", m.Rows-m.Weights.Embedding, "mapped; Engram")
	if m.Have > 0 {
		p.row("memory", m.Have, "free")
	} else {
		p.line("  give --host-memory to see whether it is enough")
	}
	if r.OnDisk > 0 {
		p.line("On disk, read when used")
		p.row("experts", m.Weights.Experts-m.ExpertsHeld, "of those that the CPU computes; the speeds below leave that out")
		p.row("table rows", r.OnDisk-(m.Weights.Experts-m.ExpertsHeld), "Engram")
	}
	if !r.GPU.Known() {
		p.line("")
		p.line("No speed is predicted: the rates of %s are not known. --gpu names others, one like it perhaps.", r.GPU.Name)
		return
	}
	r.printSpeed(p)
	p.line("Nothing was measured: kernels are taken to reach %.0f %% of what copies and products reach on a %s.", 100*plan.Reach, r.GPU.Name)
	p.line("A decode step by kernel, predicted")
	r.printKernels(p)
	switch {
	case d.HostExperts:
		p.line("Speeds are those of --expert-compute device, which reads the other experts over the bus: how fast the CPU of that host computes them is not known.")
	case d.ExpertsHost > 0:
		p.line("Experts are taken to be chosen uniformly: real choices are skewed, so fewer are read over the bus.")
	}
}
