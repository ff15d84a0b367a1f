package top

import (
	"fmt"
	"strings"

	"cedrun/runtime/gpu"
)

// details of a GPU: as much as fits.
const (
	gpuLine  = iota + 1 // one row
	gpuTable            // nvidia-smi's two rows
	gpuFull             // and clocks, links, counters, processes
)

// gpus draws the pane of the GPUs in nvidia-smi's order and units.
func (p paint) gpus(r gpu.Reading, detail int) []string {
	title := p.title("GPU")
	if r.Driver != "" {
		title += "   driver " + r.Driver
	}
	if r.CUDA != "" {
		title += "   CUDA " + r.CUDA
	}
	out := []string{}
	if r.Fault != nil {
		out = append(out, wrap("GPU  "+r.Fault.Text, "     ")...)
		out[0] = p.title("GPU") + out[0][3:]
		return out
	}
	if len(r.GPUs) == 0 {
		return append(out, title, "  the driver knows no GPU")
	}
	out = append(out, title)
	if detail > gpuLine {
		out = append(out, p.dim("  #  Name                 Persistence-M  Bus-Id            Disp.A  MIG  Unc. ECC"),
			p.dim("     Fan  Temp  Perf  Pwr:Usage/Cap           Memory-Usage  GPU-Util  Compute M."))
	}
	for i := range r.GPUs {
		out = append(out, p.gpu(&r.GPUs[i], detail)...)
	}
	return out
}

func (p paint) gpu(g *gpu.GPU, detail int) (out []string) {
	power := or(g.Power, "%.0fW") + " / " + or(g.PowerLimit, "%.0fW")
	util := or(g.Busy, "%d%%")
	if g.Busy != nil {
		util = p.level(float64(*g.Busy)/100, fmt.Sprintf("%8s", util))
	} else {
		util = fmt.Sprintf("%8s", util)
	}
	memory := none
	if m := g.Memory; m != nil {
		memory = fmt.Sprintf("%dMiB / %dMiB", m.Used>>20, m.Total>>20)
	}
	if detail == gpuLine {
		line := fmt.Sprintf(" %2d  %-20.20s %4s %4s %13s %23s %s", g.Index, g.Name, or(g.Temperature, "%dC"), or(g.State, "%s"), power, memory, strings.TrimLeft(util, " "))
		if len(g.Faults) > 0 && nameless(g) {
			line = fmt.Sprintf(" %2d  %s", g.Index, p.bad(g.Faults[0]))
		}
		if out = append(out, line); len(g.Faults) > 0 && !nameless(g) {
			out = append(out, p.bad("     "+g.Faults[0]))
		}
		return out
	}
	if len(g.Faults) > 0 && nameless(g) {
		out = append(out, fmt.Sprintf(" %2d  %s", g.Index, g.Name))
		return append(out, p.faults(g)...)
	}
	ecc := none
	if e := g.ECC; e != nil {
		if ecc = "Off"; e.Enabled {
			ecc = or(e.Uncorrected, "%d")
		}
		if e.Uncorrected != nil && *e.Uncorrected > 0 {
			ecc = p.bad(fmt.Sprintf("%8s", ecc))
		}
	}
	out = append(out,
		fmt.Sprintf(" %2d  %-20.20s %13s  %-16.16s  %6s  %3s  %8s", g.Index, g.Name, onOff(g.Persistence), orText(g.PCI), onOff(g.DisplayActive), onOff(g.MIG), ecc),
		fmt.Sprintf("     %-4s %4s  %4s  %13s  %21s  %s  %10s", or(g.Fan, "%d%%"), or(g.Temperature, "%dC"), or(g.State, "%s"), power, memory, util, or(g.ComputeMode, "%s")))
	if g.Unified {
		out = append(out, "     unified memory: that of the system, shared with the processors")
	}
	if detail == gpuFull {
		out = append(out, p.more(g)...)
	} else if g.Held != nil && slowed(g.Held) {
		out = append(out, "     clocks held by: "+p.as(styleWarn, strings.Join(g.Held, ", ")))
	}
	return append(out, p.faults(g)...)
}

// nameless is a GPU that answered nothing.
func nameless(g *gpu.GPU) bool { return g.Name == fmt.Sprintf("GPU %d", g.Index) }

func (p paint) faults(g *gpu.GPU) (out []string) {
	for _, f := range g.Faults {
		for _, line := range wrap("     "+f, "     ") {
			out = append(out, p.bad(line))
		}
	}
	return out
}

// slowed tells reasons that cost speed from those of a GPU at rest.
func slowed(reasons []string) bool {
	for _, r := range reasons {
		if r != "idle" && r != "application clocks" {
			return true
		}
	}
	return false
}

// more are the rows that nvidia-smi does not have on its first page.
func (p paint) more(g *gpu.GPU) (out []string) {
	held := "nothing"
	switch {
	case g.Held == nil:
		held = none
	case len(g.Held) > 0:
		held = strings.Join(g.Held, ", ")
		if slowed(g.Held) {
			held = p.as(styleWarn, held)
		}
	}
	out = append(out, fmt.Sprintf("     clocks  SM %s / %s MHz   memory %s / %s MHz   held by: %s",
		or(g.SMClock, "%d"), or(g.SMClockMax, "%d"), or(g.MemoryClock, "%d"), or(g.MemoryClockMax, "%d"), held))
	pcie, nvlink := none, none
	if l := g.PCIe; l != nil {
		pcie = fmt.Sprintf("gen %s x%s  tx %s  rx %s", or(l.Generation, "%d"), or(l.Width, "%d"), bps(l.Send), bps(l.Receive))
	}
	if l := g.NVLink; l != nil {
		nvlink = fmt.Sprintf("x%s  tx %s  rx %s", or(l.Width, "%d"), bps(l.Send), bps(l.Receive))
	}
	out = append(out, "     PCIe    "+pcie, "     NVLink  "+nvlink)
	counters := none
	if c := g.GPM; c != nil {
		counters = fmt.Sprintf("DRAM %s   tensor %s   SM %s   occupancy %s", percent(c.DRAM), percent(c.Tensor), percent(c.SM), percent(c.Occupancy))
	}
	out = append(out, "     active  "+counters)
	for _, q := range g.Processes {
		memory := none
		if q.Memory != nil {
			memory = fmt.Sprintf("%dMiB", *q.Memory>>20)
		}
		out = append(out, fmt.Sprintf("     PID %-9d %-30.30s %12s", q.PID, orText(clean(q.Name)), memory))
	}
	return out
}

func orText(s string) string {
	if s == "" {
		return none
	}
	return s
}
