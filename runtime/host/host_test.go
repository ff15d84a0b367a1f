package host

import (
	"os"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func files(m map[string]string) fstest.MapFS {
	f := fstest.MapFS{}
	for name, text := range m {
		f[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return f
}

func p[T any](v T) *T { return &v }

func TestRatesAreThoseSinceTheLastReading(t *testing.T) {
	root := files(map[string]string{
		"proc/stat":              "cpu 100 0 100 800 0 0 0 0 0 0\ncpu0 50 0 50 400 0 0 0 0 0 0\ncpu1 50 0 50 400 0 0 0 0 0 0\nintr 1\n",
		"proc/loadavg":           "1.25 0.50 0.10 1/100 7\n",
		"proc/cpuinfo":           "processor : 0\nmodel name\t: A CPU\ncpu MHz\t\t: 2000.0\n\nprocessor : 1\ncpu MHz : 3000.0\n",
		"proc/meminfo":           "MemTotal: 1000 kB\nMemAvailable: 600 kB\nCached: 300 kB\nSwapTotal: 10 kB\nSwapFree: 4 kB\n",
		"proc/diskstats":         " 259 0 nvme0n1 10 0 1000 5 20 0 2000 5 0 100 10\n 259 1 nvme0n1p1 1 0 1 1 1 0 1 1 0 1 1\n 7 0 loop0 1 0 1 1 1 0 1 1 0 1 1\n",
		"sys/block/nvme0n1/size": "1\n",
		"proc/42/stat":           "42 (a) b) c) S 1 1 1 0 -1 0 0 0 0 0 150 50 0 0 20 0 7 0 1 1 1\n",
		"proc/42/status":         "Name: x\nVmRSS:\t 128 kB\n",
	})
	m := NewMeter(root)
	at := time.Unix(100, 0)
	first := m.Read(at)
	if first.CPU.Busy != nil || len(first.Disks) != 1 || first.Disks[0] != (Disk{Name: "nvme0n1"}) {
		t.Errorf("first %+v %+v", first, first.CPU)
	}
	if got := m.Process(42, at); *got != (Process{nil, 128 << 10, 7}) {
		t.Errorf("%+v", got)
	}
	root["proc/stat"].Data = []byte("cpu 160 0 100 830 5 0 0 5 0 0\ncpu0 100 0 50 400 0 0 0 0 0 0\ncpu1 60 0 50 430 5 0 0 5 0 0\n")
	root["proc/diskstats"].Data = []byte(" 259 0 nvme0n1 10 0 5000 5 20 0 4000 5 0 1100 10\n")
	root["proc/42/stat"].Data = []byte("42 (a) b) c) S 1 1 1 0 -1 0 0 0 0 0 350 150 0 0 20 0 7 0 1 1 1\n")
	at = at.Add(2 * time.Second)
	want := Reading{
		At:     at,
		CPU:    &CPU{"A CPU", 2, p(.6), p(.05), p(.05), []float64{1, .2}, 1.25, p(2500.)},
		Memory: &Memory{1000 << 10, 600 << 10, 300 << 10, 10 << 10, 4 << 10},
		Disks:  []Disk{{"nvme0n1", 1024000, 512000, .5}},
	}
	if d := cmp.Diff(want, m.Read(at)); d != "" {
		t.Error(d)
	}
	if got := m.Process(42, at); got.CPU == nil || *got.CPU != 1.5 {
		t.Errorf("%+v", got)
	}
	if got := m.Process(43, at); got != nil {
		t.Errorf("no such process: %+v", got)
	}
}

func TestAMachineWithoutProcHasNoFigures(t *testing.T) {
	for name, root := range map[string]fstest.MapFS{
		"nothing": {},
		"nonsense": files(map[string]string{
			"proc/stat": "cpu\ncpu x y z\n\x00", "proc/meminfo": "MemTotal:\nMemTotal: -1 kB\n", "proc/diskstats": "1 2\n", "proc/cpuinfo": "cpu MHz", "proc/1/stat": ") x",
		}),
	} {
		m := NewMeter(root)
		if r := m.Read(time.Unix(1, 0)); r.CPU != nil || r.Memory != nil || len(r.Disks) != 0 || m.Process(1, r.At) != nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestThisMachineIsRead(t *testing.T) {
	m := NewMeter(os.DirFS("/"))
	m.Read(time.Now())
	r := m.Read(time.Now())
	if r.CPU == nil || r.CPU.Count < 1 || r.Memory == nil || r.Memory.Available > r.Memory.Total {
		t.Skipf("no /proc here: %+v", r)
	}
	if p := m.Process(os.Getpid(), time.Now()); p == nil || p.Resident == 0 {
		t.Errorf("%+v", p)
	}
}
