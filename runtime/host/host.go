// Package host reads how busy this machine's processors, memory and disks are, from Linux's /proc. What it does not find
// there is nil.
package host

import (
	"bufio"
	"bytes"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Reading is the machine at one moment; rates are those since the reading before.
type Reading struct {
	At     time.Time `json:"at"`
	CPU    *CPU      `json:"cpu"`
	Memory *Memory   `json:"memory"`
	Disks  []Disk    `json:"disks"`
}

// CPU is the processors' time. Busy is nil in a first reading.
type CPU struct {
	Name   string    `json:"name,omitempty"`
	Count  int       `json:"count"`
	Busy   *float64  `json:"busy"`    // of all, 0 to 1
	Wait   *float64  `json:"io_wait"` // idle while a disk was read
	Steal  *float64  `json:"steal"`   // given to other virtual machines
	Each   []float64 `json:"each"`    // busy, by processor
	Load   float64   `json:"load"`    // of the last minute
	Clocks *float64  `json:"mhz"`     // mean
}

// Memory in bytes.
type Memory struct {
	Total     uint64 `json:"total"`
	Available uint64 `json:"available"`
	Cached    uint64 `json:"cached"` // files
	SwapTotal uint64 `json:"swap_total"`
	SwapFree  uint64 `json:"swap_free"`
}

// Disk is a whole block device.
type Disk struct {
	Name  string  `json:"name"`
	Read  float64 `json:"read_bps"` // bytes per second
	Write float64 `json:"write_bps"`
	Busy  float64 `json:"busy"` // of the time some request was under way
}

// Process is a process on this machine.
type Process struct {
	CPU      *float64 `json:"cpu"`      // processors' worth; nil in a first reading
	Resident uint64   `json:"resident"` // bytes in memory
	Threads  int      `json:"threads"`
}

// Meter reads a machine again and again. It is for one goroutine at a time.
type Meter struct {
	root fs.FS
	at   time.Time
	cpu  []ticks // all, then each
	disk map[string]diskCount
	pids map[int]pidCount
}

type ticks struct{ busy, wait, steal, total uint64 }
type diskCount struct{ read, written, busy uint64 }
type pidCount struct {
	at    time.Time
	ticks uint64
}

const (
	sector = 512 // bytes, whatever the device's are
	hertz  = 100 // clock ticks per second: USER_HZ on every platform that Go knows
)

// NewMeter reads below root, which holds proc and sys.
func NewMeter(root fs.FS) *Meter {
	return &Meter{root: root, disk: map[string]diskCount{}, pids: map[int]pidCount{}}
}

// Read reads everything.
func (m *Meter) Read(now time.Time) Reading {
	r := Reading{At: now, CPU: m.readCPU(), Memory: m.readMemory(), Disks: m.readDisks(now.Sub(m.at).Seconds())}
	m.at = now
	return r
}

// lines of a file below root; none if it cannot be read.
func (m *Meter) lines(name string) func(func(string) bool) {
	b, _ := fs.ReadFile(m.root, name)
	return func(yield func(string) bool) {
		for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
			if !yield(s.Text()) {
				return
			}
		}
	}
}

func number(s string) uint64 {
	n, _ := strconv.ParseUint(s, 10, 64)
	return n
}

func (m *Meter) readCPU() *CPU {
	var now []ticks
	for line := range m.lines("proc/stat") {
		f := strings.Fields(line)
		if len(f) < 9 || !strings.HasPrefix(f[0], "cpu") {
			continue
		}
		var t ticks
		for i, x := range f[1:9] { // user nice system idle iowait irq softirq steal
			n := number(x)
			t.total += n
			switch i {
			case 3:
			case 4:
				t.wait = n
			case 7:
				t.steal = n
			default:
				t.busy += n
			}
		}
		now = append(now, t)
	}
	if len(now) == 0 {
		return nil
	}
	c := &CPU{Count: len(now) - 1, Each: []float64{}}
	if len(m.cpu) == len(now) {
		for i, t := range now {
			was := m.cpu[i]
			share := func(a, b uint64) float64 {
				if t.total <= was.total || b < a {
					return 0
				}
				return min(1, float64(b-a)/float64(t.total-was.total))
			}
			busy, wait, steal := share(was.busy, t.busy), share(was.wait, t.wait), share(was.steal, t.steal)
			if i == 0 {
				c.Busy, c.Wait, c.Steal = &busy, &wait, &steal
			} else {
				c.Each = append(c.Each, busy)
			}
		}
	}
	m.cpu = now
	for line := range m.lines("proc/loadavg") {
		first, _, _ := strings.Cut(line, " ")
		c.Load, _ = strconv.ParseFloat(first, 64)
	}
	m.readClocks(c)
	return c
}

func (m *Meter) readClocks(c *CPU) {
	sum, n := 0., 0
	for line := range m.lines("proc/cpuinfo") {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "model name":
			c.Name = value
		case "cpu MHz":
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				sum, n = sum+v, n+1
			}
		}
	}
	if n > 0 {
		sum /= float64(n)
		c.Clocks = &sum
	}
}

func (m *Meter) readMemory() *Memory {
	var r Memory
	for line := range m.lines("proc/meminfo") {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n := number(f[1]) << 10
		switch f[0] {
		case "MemTotal:":
			r.Total = n
		case "MemAvailable:":
			r.Available = n
		case "Cached:":
			r.Cached = n
		case "SwapTotal:":
			r.SwapTotal = n
		case "SwapFree:":
			r.SwapFree = n
		}
	}
	if r.Total == 0 {
		return nil
	}
	return &r
}

// virtual are block devices without a disk of their own.
var virtual = []string{"loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd"}

func (m *Meter) readDisks(seconds float64) []Disk {
	out := []Disk{}
	now := map[string]diskCount{}
	for line := range m.lines("proc/diskstats") {
		f := strings.Fields(line)
		if len(f) < 13 || slices.ContainsFunc(virtual, func(p string) bool { return strings.HasPrefix(f[2], p) }) {
			continue
		}
		if _, err := fs.Stat(m.root, "sys/block/"+f[2]); err != nil { // a partition
			continue
		}
		c := diskCount{number(f[5]), number(f[9]), number(f[12])}
		now[f[2]] = c
		d := Disk{Name: f[2]}
		if was, ok := m.disk[f[2]]; ok && seconds > 0 && c.read >= was.read && c.written >= was.written && c.busy >= was.busy {
			d.Read, d.Write = float64(c.read-was.read)*sector/seconds, float64(c.written-was.written)*sector/seconds
			d.Busy = min(1, float64(c.busy-was.busy)/1000/seconds)
		}
		out = append(out, d)
	}
	m.disk = now
	return out
}

// Process reads a process; nil if there is none.
func (m *Meter) Process(pid int, now time.Time) *Process {
	b, err := fs.ReadFile(m.root, "proc/"+strconv.Itoa(pid)+"/stat")
	if err != nil {
		delete(m.pids, pid)
		return nil
	}
	s := string(b)
	f := strings.Fields(s[strings.LastIndexByte(s, ')')+1:]) // the name before may hold anything
	if len(f) < 18 {
		return nil
	}
	p := &Process{Threads: int(number(f[17]))}
	used := number(f[11]) + number(f[12])
	if was, ok := m.pids[pid]; ok && used >= was.ticks && now.After(was.at) {
		share := float64(used-was.ticks) / hertz / now.Sub(was.at).Seconds()
		p.CPU = &share
	}
	m.pids[pid] = pidCount{now, used}
	for line := range m.lines("proc/" + strconv.Itoa(pid) + "/status") {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmRSS:" {
			p.Resident = number(f[1]) << 10
		}
	}
	return p
}
