package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"cedrun/runtime/gpu"
	"cedrun/runtime/plan"
)

// shown is how many of many faults are lines of their own.
const shown = 5

// checkpoint repeats what the census found.
func (e *exam) checkpoint() {
	m := &e.Model
	r := m.Report
	if r == nil {
		return
	}
	name := m.Name
	if r.OK {
		text := name + ": whole, as far as headers tell"
		if c := r.Census; c != nil {
			text = fmt.Sprintf("%s: %d tensors, %s, whole as far as headers tell", name, c.Tensors, plan.GB(c.Bytes))
		}
		e.ok("checkpoint", "%s", text)
	}
	for i, f := range r.Faults {
		if i == shown {
			e.say(Fault, "checkpoint", fmt.Sprintf("%s: %d more faults", name, len(r.Faults)-shown), "cedrun verify -m "+m.Dir+" lists them all")
			break
		}
		e.say(Fault, "checkpoint", f, remedyFor(f, m.Dir))
	}
	if r.OK && r.Tokens == 0 {
		e.say(Warning, "tokenizer", "no tokenizer.json: this checkpoint takes token ids only, and serve refuses it", "download tokenizer.json beside the shards")
	}
}

// placement is where the model goes in what memory is free; nil without a config.
func (e *exam) placement() (*plan.Memory, plan.Setup) {
	c := e.Model.Config
	if c == nil {
		return nil, plan.Setup{}
	}
	w, have := e.Model.Weights, plan.Available(e.Root)
	s, err := plan.Setup{}.FillFor(c, w, e.Threads, have)
	if err != nil {
		return nil, plan.Setup{}
	}
	return plan.Place(c, w, s, e.Threads, have), s
}

// fit says whether the model goes into memory.
func (e *exam) fit() {
	p, s := e.placement()
	if p == nil {
		return
	}
	c := e.Model.Config
	var short *plan.FitError
	if err := plan.Fit(c, p.Weights, s, e.Threads, p.Have); errors.As(err, &short) {
		e.say(Fault, "fit", fmt.Sprintf("one sequence of %d tokens needs %s of memory (%s) and has %s", s.Context, plan.GB(short.Need), short.What, plan.GB(short.Have)), short.Remedy)
		return
	}
	switch over := p.OnDisk(); {
	case p.Have == 0:
		e.ok("fit", "%s are needed, experts apart; what is free is not known", plan.GB(p.Need()))
	case p.ExpertsHeld < p.Weights.Experts:
		e.say(Warning, "fit", fmt.Sprintf("%.0f %% of the experts fit into memory; tokens wait for %s on disk", 100*p.ExpertShare, plan.GB(over)),
			"free memory, or use a fast disk; cedrun plan -m "+e.Model.Dir+" predicts the speed")
	default:
		e.ok("fit", "%s are needed, experts apart, and %s are free; all experts fit", plan.GB(p.Need()), plan.GB(p.Have))
	}
}

// fitOnDevices says where a model's experts go on each CUDA device, with all of its memory.
func (e *exam) fitOnDevices() {
	c := e.Model.Config
	if c == nil {
		return
	}
	for i, dev := range e.CUDA.Devices {
		if slices.ContainsFunc(e.GPU.GPUs, func(g gpu.GPU) bool { return g.Unified && g.Name == dev.Name }) {
			continue // it has the memory that the line before is about
		}
		name, w, free := "fit on CUDA "+strconv.Itoa(i), e.Model.Weights, plan.Available(e.Root)
		s, d, err := plan.Setup{}.FillOn(c, w, plan.Device{Name: dev.Name, Total: dev.Memory, Free: dev.Memory}, 0)
		var short *plan.FitError
		if errors.As(err, &short) {
			e.say(Warning, name, fmt.Sprintf("one sequence of %d tokens needs %s (%s) and the device has %s", s.Context, plan.GB(short.Need), short.What, plan.GB(short.Have)), short.Remedy)
			continue
		}
		if err != nil {
			continue
		}
		if d.ExpertsHost == 0 {
			e.ok(name, "%s are needed of %s; all experts have room", plan.GB(d.Need()), plan.GB(dev.Memory))
			continue
		}
		room := fmt.Sprintf("%.0f %% of the experts have room", 100*d.ExpertShare)
		if _, err := plan.HostOf(d, c, w, s, free); err != nil {
			e.say(Warning, name, fmt.Sprintf("%s; for the others all %s must lie in page-locked memory of the host, which has %s", room, plan.GB(d.ExpertsHost), plan.GB(free)),
				"--expert-compute cpu: then the CPU computes the others, in the mapped files")
			continue
		}
		e.ok(name, "%s; the others are read from page-locked memory of the host, %s, or, with --expert-compute cpu, computed by the CPU", room, plan.GB(d.ExpertsHost))
	}
}

// slowDisk is what a SATA disk gives; experts from anything slower take seconds a token.
const slowDisk = 1e9

func (e *exam) disk() {
	if e.DiskErr != nil {
		e.say(Fault, "disk", e.DiskErr.Error(), "see dmesg for errors of the disk")
		return
	}
	d := e.Disk
	if d == nil {
		return
	}
	if len(d.Speeds) == 0 {
		e.ok("disk", "%s", d.Note)
		return
	}
	text, best := "", 0.
	for i, s := range d.Speeds {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%.2f GB/s at depth %d", s.Bandwidth/1e9, s.Depth)
		best = max(best, s.Bandwidth)
	}
	if d.Latency > 0 {
		text += fmt.Sprintf(", %.0f us a 4 KiB row", 1e6*d.Latency)
	}
	if d.Note != "" {
		text += "; " + d.Note
	}
	if p, _ := e.placement(); p != nil && p.Have > 0 && p.ExpertsHeld < p.Weights.Experts && best < slowDisk {
		e.say(Warning, "disk", text+"; experts that do not fit into memory come from it", "move the model to an NVMe disk")
		return
	}
	e.ok("disk", "%s", text)
}

// littleSpace is room for maps, logs and traces.
const littleSpace = 1 << 30

func (e *exam) space() {
	m := &e.Model
	if m.Dir == "" || m.Free < 0 {
		return
	}
	if m.Free < littleSpace {
		e.say(Warning, "free space", fmt.Sprintf("%s on the model's file system", plan.GB(m.Free)), "free some, if caches or downloads are to go there")
		return
	}
	e.ok("free space", "%s on the model's file system", plan.GB(m.Free))
}

func (e *exam) cache() {
	switch c := &e.Cache; {
	case c.Err != nil:
		e.say(Warning, "cache", fmt.Sprintf("%v: maps of the tokenizer are made at every start", c.Err), "make it writable, or give --cache-dir DIR")
	case c.Dir != "":
		e.ok("cache", "%s can be written", c.Dir)
	}
}

// remedyFor tells files that this user may not read from those that are not whole.
func remedyFor(fault, dir string) string {
	if strings.HasSuffix(fault, syscall.EACCES.Error()) {
		return "let this user read the files: chmod -R u+rX " + dir + " as their owner, or run as their owner"
	}
	return "download what is wrong again; cedrun verify -m " + dir + " --deep checks every byte"
}
