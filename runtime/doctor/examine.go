package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"cedrun/runtime/host"
	"cedrun/runtime/plan"
	"cedrun/runtime/residency"
)

// Examine judges facts.
func Examine(f *Facts) *Report {
	e := &exam{Facts: f, report: &Report{OK: true}}
	e.group = "Processor"
	e.processor()
	e.quota()
	e.group = "Memory"
	e.memory()
	e.hugePages()
	e.locking()
	e.group = "Limits"
	e.container()
	e.processes()
	e.files()
	e.group = "GPU"
	e.driver()
	e.architectures()
	e.devices()
	e.cuda()
	e.toolkit()
	e.group = "Model"
	e.checkpoint()
	e.fit()
	e.fitOnDevices()
	e.disk()
	e.space()
	e.cache()
	e.group = "Server"
	e.port()
	return e.report
}

type exam struct {
	*Facts
	report *Report
	group  string
}

func (e *exam) say(s Status, name, text, do string) {
	e.report.add(Line{e.group, name, s, text, do})
}

func (e *exam) ok(name, format string, args ...any) {
	e.say(OK, name, fmt.Sprintf(format, args...), "")
}

// text reads a small file of the system; empty if there is none.
func (e *exam) text(name string) string {
	b, err := fs.ReadFile(e.Root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (e *exam) processor() {
	name := e.System
	if c := host.NewMeter(e.Root).Read(time.Now()).CPU; c != nil && c.Name != "" {
		name = c.Name
	}
	switch k := &e.Kernels; {
	case k.Err != nil:
		e.say(Fault, "kernels", k.Err.Error(), "unset CEDRUN_ISA, or set it to what this processor has")
	case k.ISA == "plain":
		e.say(Warning, "kernels", name+": no vector instructions that the kernels know; plain C++ is some twenty times slower",
			"use a processor with AVX2, AVX-512 or NEON, and let a virtual machine have them (its CPU model: host)")
	default:
		e.ok("kernels", "%s: %s", name, k.ISA)
	}
}

// quota compares the processors that there are with those that this process gets.
func (e *exam) quota() {
	online := e.Processors
	if c := host.NewMeter(e.Root).Read(time.Now()).CPU; c != nil && c.Count > 0 {
		online = c.Count
	}
	quota := math.Inf(1)
	for _, g := range plan.ControlGroups(e.Root, "cpu") {
		quota = min(quota, e.quotaOf(g))
	}
	text := fmt.Sprintf("%d of %d usable, %d threads", e.Processors, online, e.Threads)
	switch {
	case quota < float64(e.Processors):
		e.say(Warning, "processors", fmt.Sprintf("%s; a control group allows the time of %.3g", text, quota), "raise cpu.max (docker run --cpus N), or give --threads")
	case e.Processors < online:
		e.say(Warning, "processors", text+": the affinity mask leaves out others", "start without taskset or cpuset limits, if that is not on purpose")
	default:
		e.ok("processors", "%s", text)
	}
}

func (e *exam) quotaOf(g plan.ControlGroup) float64 {
	quota, period := e.text(path.Join(g.Dir, "cpu.cfs_quota_us")), e.text(path.Join(g.Dir, "cpu.cfs_period_us"))
	if g.V2 {
		quota, period, _ = strings.Cut(e.text(path.Join(g.Dir, "cpu.max")), " ")
	}
	q, err := strconv.ParseFloat(quota, 64)
	p, perr := strconv.ParseFloat(period, 64)
	if err != nil || perr != nil || q <= 0 || p <= 0 {
		return math.Inf(1) // max, -1, or no file
	}
	return q / p
}

// lowMemory is less than what any model but the smallest needs.
const lowMemory = 2 << 30

func (e *exam) memory() {
	m, free := host.NewMeter(e.Root).Read(time.Now()).Memory, plan.Available(e.Root)
	if m == nil {
		e.say(Warning, "memory", "/proc/meminfo cannot be read: what fits is not known", "mount /proc")
		return
	}
	text := fmt.Sprintf("%s free of %s", plan.GB(free), plan.GB(int64(m.Total)))
	if free < int64(m.Available) {
		text = fmt.Sprintf("%s free in this control group; the machine has %s of %s", plan.GB(free), plan.GB(int64(m.Available)), plan.GB(int64(m.Total)))
	}
	if free < lowMemory {
		e.say(Warning, "memory", text, "end what else runs, or raise the group's limit (docker run --memory)")
	} else {
		e.ok("memory", "%s", text)
	}
	used := m.SwapTotal - min(m.SwapFree, m.SwapTotal)
	switch {
	case m.SwapTotal == 0:
	case used > m.SwapTotal/10:
		e.say(Warning, "swap", fmt.Sprintf("%s of %s in use: memory was short, and weights may wait for the disk", plan.GB(int64(used)), plan.GB(int64(m.SwapTotal))), "end what else runs, or lock weights with --lock")
	default:
		e.ok("swap", "%s, %s used", plan.GB(int64(m.SwapTotal)), plan.GB(int64(used)))
	}
}

func (e *exam) hugePages() {
	if why := residency.HugePagesOff(e.Root); why != "" {
		e.say(Warning, "huge pages", why+": weights are read a tenth slower", "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, as root")
		return
	}
	e.ok("huge pages", "on request")
}

func (e *exam) locking() {
	switch need := e.Model.Weights.Always(); {
	case e.LockLimit == Unlimited:
		e.ok("locked memory", "unlimited")
	case need > 0 && e.LockLimit < uint64(need):
		e.say(Warning, "locked memory", fmt.Sprintf("at most %s, and every token reads %s: --lock will be refused", plan.GB(int64(e.LockLimit)), plan.GB(need)),
			"ulimit -l unlimited, LimitMEMLOCK=infinity in a systemd unit, or docker run --ulimit memlock=-1")
	default:
		e.ok("locked memory", "at most %s", plan.GB(int64(min(e.LockLimit, math.MaxInt64))))
	}
}

// container says what this process is locked in, and how much memory that leaves it.
func (e *exam) container() {
	kind := ""
	for _, x := range []struct{ file, kind string }{{".dockerenv", "Docker"}, {"run/.containerenv", "Podman"}} {
		if _, err := fs.Stat(e.Root, x.file); err == nil {
			kind = x.kind
		}
	}
	groups := e.text("proc/self/cgroup") + e.text("proc/1/cgroup")
	for _, x := range []struct{ part, kind string }{{"kubepods", "Kubernetes"}, {"/docker", "Docker"}, {"/lxc", "LXC"}} {
		if kind == "" && strings.Contains(groups, x.part) {
			kind = x.kind
		}
	}
	limit := int64(math.MaxInt64)
	for _, g := range plan.ControlGroups(e.Root, "memory") {
		name := "memory.limit_in_bytes"
		if g.V2 {
			name = "memory.max"
		}
		if n, err := strconv.ParseInt(e.text(path.Join(g.Dir, name)), 10, 64); err == nil && n < 1<<60 {
			limit = min(limit, n)
		}
	}
	text := "none"
	if kind != "" {
		text = kind
	}
	switch dense := e.Model.Weights.Always(); {
	case limit == math.MaxInt64:
		e.ok("container", "%s; no limit on memory", text)
	case dense > limit:
		e.say(Fault, "container", fmt.Sprintf("%s; memory is limited to %s, less than the %s that every token reads", text, plan.GB(limit), plan.GB(dense)),
			"raise the limit (docker run --memory, resources.limits.memory, MemoryMax)")
	default:
		e.ok("container", "%s; memory is limited to %s", text, plan.GB(limit))
	}
}

// spareProcesses are threads beside those that compute: of the Go runtime and of reads from disk.
const spareProcesses = 64

func (e *exam) processes() {
	room := int64(math.MaxInt64)
	for _, g := range plan.ControlGroups(e.Root, "pids") {
		most, err := strconv.ParseInt(e.text(path.Join(g.Dir, "pids.max")), 10, 64)
		now, nerr := strconv.ParseInt(e.text(path.Join(g.Dir, "pids.current")), 10, 64)
		if err == nil && nerr == nil {
			room = min(room, most-now)
		}
	}
	switch need := int64(e.Threads + spareProcesses); {
	case room == math.MaxInt64:
		e.ok("threads", "no limit")
	case room < need:
		e.say(Fault, "threads", fmt.Sprintf("this control group has room for %d more, and up to %d may be started", max(room, 0), need), "raise pids.max (docker run --pids-limit, TasksMax), or lower --threads")
	default:
		e.ok("threads", "room for %d more in this control group", room)
	}
}

const (
	spareFiles  = 32   // that the program itself needs
	connections = 1024 // of a busy server
)

func (e *exam) files() {
	need := uint64(e.Model.Shards + spareFiles)
	const do = "ulimit -n 65536, or LimitNOFILE=65536 in a systemd unit"
	switch {
	case e.FileLimit < need:
		e.say(Fault, "open files", fmt.Sprintf("at most %d, and this model has %d shards", e.FileLimit, e.Model.Shards), do)
	case e.FileLimit < need+connections:
		e.say(Warning, "open files", fmt.Sprintf("at most %d: a server takes one a connection", e.FileLimit), do)
	case e.FileLimit == Unlimited:
		e.ok("open files", "unlimited")
	default:
		e.ok("open files", "at most %d", e.FileLimit)
	}
}

func (e *exam) port() {
	if e.PortErr != nil {
		do := "give serve another --host or --port"
		if errors.Is(e.PortErr, syscall.EADDRINUSE) {
			do = "end what listens there, or give serve another --port"
		}
		e.say(Fault, "port", fmt.Sprintf("%s: %v", e.Address, e.PortErr), do)
		return
	}
	e.ok("port", "%s is free", e.Address)
}

// system names the operating system and the architecture.
func system() string { return runtime.GOOS + "/" + runtime.GOARCH }
