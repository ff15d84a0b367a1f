package top

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/google/go-cmp/cmp"

	"cedrun/runtime/golden"
	"cedrun/runtime/gpu"
	"cedrun/runtime/host"
	"cedrun/runtime/telemetry"
)

func ptr[T any](v T) *T { return &v }

// h200 is a GPU that offers everything.
func h200(index int) gpu.GPU {
	return gpu.GPU{
		Index: index, Name: "NVIDIA H200", PCI: fmt.Sprintf("00000000:%X9:00.0", index+1), Capability: ptr("9.0"), Persistence: ptr(true), DisplayActive: ptr(false),
		Temperature: ptr(uint32(54)), State: ptr("P0"), Power: ptr(412.3), PowerLimit: ptr(700.),
		Memory: &gpu.Memory{Total: 143771 << 20, Used: 92160 << 20}, Busy: ptr(uint32(97)), MemoryBusy: ptr(uint32(61)), ComputeMode: ptr("Default"), MIG: ptr(false),
		SMClock: ptr(uint32(1755)), SMClockMax: ptr(uint32(1980)), MemoryClock: ptr(uint32(3201)), MemoryClockMax: ptr(uint32(3201)), Held: []string{"power cap"},
		PCIe: &gpu.Link{Generation: ptr(5), Width: ptr(16), Send: ptr(1.05e9), Receive: ptr(9.8e8)}, NVLink: &gpu.Link{Width: ptr(18), Send: ptr(0.), Receive: ptr(0.)},
		ECC:       &gpu.ECC{Enabled: true, Corrected: ptr(uint64(0)), Uncorrected: ptr(uint64(0))},
		GPM:       &gpu.GPM{SM: ptr(.91), Occupancy: ptr(.4), Tensor: ptr(.34), DRAM: ptr(.61)},
		Processes: []gpu.Process{{PID: 4711, Name: "cedrun", Memory: ptr(uint64(92000 << 20))}},
	}
}

// views are what the golden screens show.
func views() map[string]*View {
	at := time.Date(2026, 11, 29, 22, 10, 25, 0, time.UTC)
	base := func() *View {
		return &View{
			At: at,
			Host: host.Reading{
				CPU:    &host.CPU{Count: 16, Busy: ptr(.63), Wait: ptr(.02), Steal: ptr(0.), Load: 11.25, Clocks: ptr(2700.)},
				Memory: &host.Memory{Total: 128 << 30, Available: 90 << 30, Cached: 70 << 30},
				Disks:  []host.Disk{{Name: "nvme0n1", Read: 2.31e9, Write: 1.2e6, Busy: .83}},
			},
			GPU: gpu.Reading{GPUs: []gpu.GPU{}, Fault: &gpu.Fault{Kind: gpu.NoLibrary, Text: "no NVIDIA driver library (libnvidia-ml.so.1): no driver is installed, or this container was started without GPUs (docker run --gpus all)"}},
		}
	}
	running := func(v *View) *View {
		rates := make([]*float64, 40)
		chosen, missed := make([]uint64, 40), make([]uint64, 40)
		for l := range rates {
			rates[l] = ptr(1 - float64(l*l%17)/400)
		}
		rates[23], rates[31], rates[0] = ptr(.62), ptr(0.), nil
		v.Processes = []telemetry.Endpoint{{PID: 4711}, {PID: 815}}
		v.Process = &host.Process{CPU: ptr(15.7), Resident: 61 << 30, Threads: 40}
		v.Rates = telemetry.Rates{
			Seconds: 1, Prefill: ptr(2112.4), Decode: ptr(41.26), PrefillShare: ptr(.41), DecodeShare: ptr(.78), Read: ptr(154.2e9), EngramRows: ptr(12345.), Experts: rates,
		}
		v.Snapshot = &telemetry.Snapshot{
			Version: 1, At: at, Process: telemetry.Process{PID: 4711, Command: "serve", Address: "http://127.0.0.1:8080"},
			Model: &telemetry.Model{
				Name: "/models/DeepSeek-V4.1-Flash", Backend: "cpu", Threads: 16, Layers: 40, Context: 65536, Slots: 8,
				Prefill: telemetry.Phase{Tokens: 120448, Steps: 480, Active: 15_468_700_000}, Decode: telemetry.Phase{Tokens: 3201, Steps: 800, Active: 13_900_000_000},
				Batch: 4, Depth: 31200, Running: 5, Waiting: 2,
				KV: []telemetry.Tier{
					{Name: "host", Tokens: 64, Pages: 8192, Used: 3300, Cached: 1200}, {Name: "snapshots", Used: 12, Cached: 12, Bytes: 420e6, Most: 2e9},
					{Name: "disk", Tokens: 64, Used: 52000, Cached: 52000, Bytes: 8.1e9, Most: 10e9, State: "on"},
				},
				Prefix: &telemetry.Prefix{Requests: 40, Hits: 30, Prompt: 150000, Found: 121500, Replayed: 12800, Loaded: 64000}, Engram: &telemetry.Engram{},
				Experts: &telemetry.Experts{Chosen: chosen, Missed: missed},
				Limit:   &telemetry.Limit{Read: 197.6e9, Multiply: 3e12},
			},
		}
		return v
	}
	all := map[string]*View{}
	all["machine"] = base()
	all["model"] = running(base())
	all["loading"] = base()
	all["loading"].Snapshot = &telemetry.Snapshot{Process: telemetry.Process{PID: 4711, Command: "generate"}}
	all["ended"] = base()
	all["ended"].Note = "telemetry: 4711.sock: the process has ended"

	v := running(base())
	v.Snapshot.At, v.Snapshot.Process.Started, v.Rates.Seconds = v.At, v.At.Add(-90*time.Second), 90
	all["first"] = v

	v = running(base())
	v.GPU = gpu.Reading{Driver: "570.86.15", CUDA: "12.8", GPUs: []gpu.GPU{h200(0)}}
	m := v.Snapshot.Model
	m.Backend, m.Threads, m.Graphs = "cuda", 1, &telemetry.Graphs{Captured: 8, Replayed: 3104, Plain: 8, Failed: 1}
	m.Experts.Count, m.Experts.OnDevice = 15360, 6940
	all["gpu"] = v

	v = running(base())
	v.GPU = gpu.Reading{Driver: "570.86.15", CUDA: "12.8", GPUs: []gpu.GPU{h200(0)}}
	m = v.Snapshot.Model
	m.Backend = "cuda"
	m.Experts.Count, m.Experts.OnDevice, m.Experts.ByCPU = 15360, 6940, true
	all["cpu-experts"] = v

	v = running(base())
	v.GPU = gpu.Reading{Driver: "570.86.15", CUDA: "12.8"}
	for i := range 8 {
		v.GPU.GPUs = append(v.GPU.GPUs, h200(i))
	}
	v.GPU.GPUs[2] = gpu.GPU{Index: 2, Name: "GPU 2", Faults: []string{"GPU 2: the GPU is lost (off the bus, or no longer reachable): see dmesg for its Xid error; reset it or reboot"}}
	all["gpus"] = v

	v = base()
	v.GPU = gpu.Reading{Driver: "580.95", CUDA: "13.0", GPUs: []gpu.GPU{{
		Name: "NVIDIA GB10", PCI: "0000000F:01:00.0", Persistence: ptr(true), Temperature: ptr(uint32(41)), State: ptr("P8"), Power: ptr(4.2), Unified: true,
		Memory: &gpu.Memory{Total: 119 << 30, Used: 8 << 30}, Busy: ptr(uint32(0)), ComputeMode: ptr("Default"), SMClock: ptr(uint32(208)), SMClockMax: ptr(uint32(3003)), Held: []string{"idle"},
	}}}
	all["unified"] = v

	v = base()
	v.Host = host.Reading{Disks: []host.Disk{}}
	v.GPU = gpu.Reading{Driver: "570.86.15", GPUs: []gpu.GPU{{Name: "NVIDIA H200", Faults: []string{"power: no permission: see who may open /dev/nvidiactl and /dev/nvidia0, or ask root", "NVML error 999"}}}}
	v = running(v)
	m = v.Snapshot.Model
	m.Prefix, m.Experts, m.Engram, m.Limit, m.KV, v.Process, v.Rates = nil, nil, nil, nil, nil, nil, telemetry.Rates{}
	m.Prefill.Active, m.Name = 0, strings.Repeat("/a very long directory", 8)
	all["unsupported"] = v
	return all
}

func TestScreensAtTwoSizes(t *testing.T) {
	for name, v := range views() {
		for _, s := range []Screen{{Width: 80, Height: 24, Keys: true, Every: time.Second}, {Width: 172, Height: 50, Every: 2 * time.Second}} {
			t.Run(fmt.Sprintf("%s-%d", name, s.Width), func(t *testing.T) {
				got := Render(v, s)
				golden.Check(t, fmt.Sprintf("%s-%d.txt", name, s.Width), got)
				lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
				if len(lines) > s.Height {
					t.Errorf("%d rows", len(lines))
				}
				for i, l := range lines {
					if lipgloss.Width(l) > s.Width || strings.HasSuffix(l, " ") {
						t.Errorf("row %d is %d wide: %q", i, lipgloss.Width(l), l)
					}
				}
			})
		}
	}
	golden.Check(t, "help-80.txt", Render(views()["model"], Screen{Width: 80, Height: 24, Help: true, Keys: true, Paused: true}))
	golden.Check(t, "ascii-80.txt", Render(views()["model"], Screen{Width: 80, ASCII: true}))
}

// Colours change nothing but colours, and without them no escape sequence is written.
func TestColoursAreOnlyColours(t *testing.T) {
	for name, v := range views() {
		for _, width := range []int{20, 80, 172} {
			plain, coloured := Render(v, Screen{Width: width}), Render(v, Screen{Width: width, Color: true})
			if strings.ContainsRune(plain, 0x1b) {
				t.Errorf("%s: an escape sequence without colours", name)
			}
			if !strings.ContainsRune(coloured, 0x1b) {
				t.Errorf("%s: no colour", name)
			}
			var bare []string
			for line := range strings.Lines(coloured) {
				bare = append(bare, strings.TrimRight(strip(line), " \n"))
			}
			if d := cmp.Diff(strings.TrimRight(plain, "\n"), strings.TrimRight(strings.Join(bare, "\n"), "\n")); d != "" {
				t.Errorf("%s at %d: %s", name, width, d)
			}
			for line := range strings.Lines(plain) {
				if w := lipgloss.Width(strings.TrimSuffix(line, "\n")); w > width {
					t.Errorf("%s: %d columns of %d: %q", name, w, width, line)
				}
			}
		}
	}
	if got := Render(views()["model"], Screen{Width: 80, ASCII: true}); strings.IndexFunc(got, func(r rune) bool { return r > 126 }) >= 0 {
		t.Errorf("not ASCII: %s", got)
	}
}

// strip removes SGR sequences.
func strip(s string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "\x1b[")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		_, s, _ = strings.Cut(after, "m")
	}
}

func TestWhatDoesNotFitCanBeScrolledTo(t *testing.T) {
	v := views()["gpus"]
	var seen []string
	for skip := range 40 {
		got := Render(v, Screen{Width: 80, Height: 12, Skip: skip})
		rows := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
		if len(rows) != 12 || !strings.HasPrefix(rows[0], "cedrun top") {
			t.Fatalf("skip %d: %d rows: %s", skip, len(rows), got)
		}
		seen = append(seen, rows[1:]...)
	}
	for _, want := range []string{"CPU ", "MODEL ", "experts "} {
		found := false
		for _, row := range seen {
			found = found || strings.HasPrefix(row, want)
		}
		if !found {
			t.Errorf("%q is never seen", want)
		}
	}
}

func TestTheStripShowsOneMissInAHundred(t *testing.T) {
	for _, p := range []paint{{}, {ascii: true}} {
		last := ""
		for _, r := range []float64{0, .3, .6, .9, .98, .995, 1} {
			cell := p.heat(&r)
			if cell == last || lipgloss.Width(cell) != 1 {
				t.Errorf("hit rate %v looks like the one below: %q", r, cell)
			}
			last = cell
		}
	}
}
