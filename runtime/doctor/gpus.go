package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cedrun/runtime/gpu"
	"cedrun/runtime/plan"
)

// graver is a fault in a build with CUDA, and lesser in one without, which runs on the CPU whatever the GPU does.
func (e *exam) graver(lesser Status) Status {
	if len(e.Build.Archs) > 0 {
		return Fault
	}
	return lesser
}

func (e *exam) driver() {
	g := &e.GPU
	if f := g.Fault; f != nil {
		text, do, _ := strings.Cut(f.Text, ": ")
		status := Warning
		if f.Kind == gpu.NoLibrary {
			status = OK
		}
		if status = e.graver(status); status == OK {
			text, do = text+": none is needed by a build without CUDA", ""
		}
		e.say(status, "driver", text, do)
		return
	}
	if needs, why := e.driverNeeded(); needs != "" && older(g.Driver, needs) {
		e.say(Fault, "driver", fmt.Sprintf("%s is too old: %s needs %s", g.Driver, why, needs), "update the NVIDIA driver, or use --backend cpu")
		return
	}
	e.ok("driver", "%s, up to CUDA %s; NVML sees %d GPUs", unknown(g.Driver), unknown(g.CUDA), len(g.GPUs))
}

func unknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// driverNeeded is the oldest driver that runs the kernels of this build: their fat binary is compressed in a way that
// drivers before 550 cannot read, and each major version of CUDA has its own.
func (e *exam) driverNeeded() (version, why string) {
	if len(e.Build.Archs) == 0 {
		return "", ""
	}
	switch major, _, _ := strings.Cut(e.Build.CUDA, "."); major {
	case "11", "12":
		return "550", "this build, of CUDA " + e.Build.CUDA + ","
	default:
		return "580", "this build, of CUDA " + e.Build.CUDA + ","
	}
}

// older compares dotted versions; one that cannot be read is not.
func older(have, want string) bool {
	a, b := strings.Split(have, "."), strings.Split(want, ".")
	for i := range b {
		x, xerr := 0, error(nil)
		if i < len(a) {
			x, xerr = strconv.Atoi(a[i])
		}
		y, yerr := strconv.Atoi(b[i])
		if xerr != nil || yerr != nil || x > y {
			return false
		}
		if x < y {
			return true
		}
	}
	return false
}

func (e *exam) architectures() {
	b := &e.Build
	if len(b.Archs) == 0 {
		if len(e.GPU.GPUs) > 0 {
			e.say(Warning, "architectures", "this build has no CUDA kernels: it leaves the GPUs alone and runs on the CPU", "build with make cuda to use them")
			return
		}
		e.ok("architectures", "none: this build runs on the CPU")
		return
	}
	e.ok("architectures", "%s, of CUDA %s", strings.Join(b.Archs, ", "), b.CUDA)
}

// runs reports whether embedded code runs on a device of compute capability major.minor. Machine code runs on its own
// major version from its minor one on, that of an a variant on exactly its own; compute_ code is compiled by the driver
// for any later device.
func runs(arch, capability string) bool {
	major, minor, ok := strings.Cut(capability, ".")
	have, err := strconv.Atoi(major)
	haveMinor, merr := strconv.Atoi(minor)
	if !ok || err != nil || merr != nil {
		return false
	}
	kind, digits, _ := strings.Cut(arch, "_")
	plain := strings.TrimRight(digits, "af")
	n, err := strconv.Atoi(plain)
	if err != nil {
		return false
	}
	switch {
	case strings.HasSuffix(digits, "a"):
		return have == n/10 && haveMinor == n%10
	case kind == "compute" && !strings.HasSuffix(digits, "f"):
		return 10*have+haveMinor >= n
	}
	return have == n/10 && haveMinor >= n%10
}

// hot are reasons for low clocks that mean trouble rather than thrift.
var hot = []string{"hardware slowdown", "thermal", "hardware thermal", "power brake"}

func (e *exam) devices() {
	for i := range e.GPU.GPUs {
		g := &e.GPU.GPUs[i]
		name := "GPU " + strconv.Itoa(g.Index)
		before := len(e.report.Lines)
		for _, f := range g.Faults {
			text, do, _ := strings.Cut(f, ": ")
			if at, rest, ok := strings.Cut(do, ": "); ok { // what was asked, what is wrong, what to do
				text, do = text+": "+at, rest
			}
			e.say(e.graver(Warning), name, g.Name+": "+text, do)
		}
		switch {
		case len(e.Build.Archs) == 0:
		case g.Capability == nil:
			e.say(Warning, name, g.Name+" does not say its compute capability: whether kernels run on it shows at the start", "update the NVIDIA driver")
		case !slices.ContainsFunc(e.Build.Archs, func(a string) bool { return runs(a, *g.Capability) }):
			e.say(Fault, name, fmt.Sprintf("%s has compute capability %s, and this build has kernels for %s only (driver %s, CUDA %s)",
				g.Name, *g.Capability, strings.Join(e.Build.Archs, ", "), unknown(e.GPU.Driver), e.Build.CUDA),
				"build with that architecture (make cuda), choose another GPU (CUDA_VISIBLE_DEVICES), or use --backend cpu")
		}
		if h := slices.IndexFunc(g.Held, func(s string) bool { return slices.Contains(hot, s) }); h >= 0 {
			e.say(Warning, name, fmt.Sprintf("%s: clocks are held back: %s", g.Name, strings.Join(g.Held, ", ")), "look at its cooling and its power supply")
		}
		if c := g.ECC; c != nil && c.Uncorrected != nil && *c.Uncorrected > 0 {
			e.say(Warning, name, fmt.Sprintf("%s: %d uncorrected memory errors since the driver was loaded", g.Name, *c.Uncorrected), "reset the GPU; if they come back, have it replaced")
		}
		if len(e.report.Lines) == before {
			e.ok(name, "%s%s", g.Name, e.describe(g))
		}
	}
}

func (e *exam) describe(g *gpu.GPU) (s string) {
	if g.Capability != nil {
		s += ", compute capability " + *g.Capability
	}
	if m := g.Memory; m != nil {
		free := plan.GB(int64(m.Total - min(m.Used+m.Reserved, m.Total)))
		if s += fmt.Sprintf(", %s free of %s", free, plan.GB(int64(m.Total))); g.Unified {
			s += " (the system's)"
		}
	}
	return s
}

// driverless reports whether the line on the driver has said that there is none.
func (e *exam) driverless() bool {
	f := e.GPU.Fault
	return f != nil && (f.Kind == gpu.NoLibrary || f.Kind == gpu.NoDriver)
}

// cuda lists what --device may name.
func (e *exam) cuda() {
	if err := e.CUDA.Err; err != nil && !e.driverless() {
		e.say(Fault, "CUDA", err.Error(), "mend the driver, or use --backend cpu")
	}
	for i, d := range e.CUDA.Devices {
		text := fmt.Sprintf("%s, compute capability %s, %d multiprocessors, %s", d.Name, d.Capability, d.Processors, plan.GB(d.Memory))
		if d.Bandwidth > 0 {
			text += fmt.Sprintf(" at up to %s/s", plan.GB(int64(d.Bandwidth)))
		}
		if d.Simulated {
			text += ", simulated"
		}
		e.ok("CUDA device "+strconv.Itoa(i), "%s", text)
	}
}

func (e *exam) toolkit() {
	t, have := &e.Toolkit, e.GPU.CUDA
	switch {
	case t.Path == "":
		e.ok("toolkit", "no nvcc: only make cuda needs one")
	case t.Version == "":
		e.say(Warning, "toolkit", t.Path+" does not say its version", "install the CUDA toolkit anew, or set CUDA_HOME")
	case have != "" && older(have, t.Version):
		e.say(Warning, "toolkit", fmt.Sprintf("CUDA %s at %s is newer than the driver, which runs up to CUDA %s: what it builds may not start", t.Version, t.Path, have),
			"update the NVIDIA driver, or build with an older toolkit")
	default:
		e.ok("toolkit", "CUDA %s at %s", t.Version, t.Path)
	}
}
