package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	nv "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/google/go-cmp/cmp"

	"cedrun/runtime/config"
	"cedrun/runtime/golden"
	"cedrun/runtime/gpu"
	"cedrun/runtime/plan"
	"cedrun/runtime/verify"
)

const gib = 1 << 30

func p[T any](v T) *T { return &v }

// set makes a file of the system.
func set(f *Facts, name, text string) {
	f.Root.(fstest.MapFS)[name] = &fstest.MapFile{Data: []byte(text)}
}

// released counts the release's weights, which takes a while.
var released = sync.OnceValues(func() (*config.Config, plan.Weights) {
	c, err := config.Load("../../testdata/release/config.json")
	if err != nil {
		panic(err)
	}
	return c, plan.CountWeights(c)
})

// healthy is a machine that lacks nothing, with the released model and a build without CUDA.
func healthy(t testing.TB) *Facts {
	t.Helper()
	c, weights := released()
	f := &Facts{
		Root: fstest.MapFS{}, System: "linux/amd64", Processors: 2, Threads: 2, Kernels: Kernels{ISA: "avx512"}, LockLimit: Unlimited, FileLimit: 65536,
		Cache: Place{Dir: "cache"}, GPU: gpu.Reading{Fault: &gpu.Fault{Kind: gpu.NoLibrary, Text: "no NVIDIA driver library (libnvidia-ml.so.1): no driver"}},
		Model: Model{
			Name: "models/v41", Dir: "models/v41", Config: c, Weights: weights, Shards: 48, Size: 510 * gib, Free: 100 * gib,
			Report: &verify.Report{OK: true, Tokens: 129280, Census: &verify.Census{Tensors: 93514, Bytes: 510 * gib}},
		},
		Disk:    &Disk{Speeds: []Speed{{1, 3e9}, {8, 6.5e9}, {32, 7e9}}, Latency: 80e-6, Note: "O_DIRECT"},
		Address: "127.0.0.1:8080",
	}
	set(f, "proc/cpuinfo", "processor : 0\nmodel name : A CPU\n")
	set(f, "proc/stat", "cpu 1 0 1 8 0 0 0 0 0 0\ncpu0 1 0 1 4 0 0 0 0 0 0\ncpu1 1 0 1 4 0 0 0 0 0 0\n")
	set(f, "proc/meminfo", meminfo(768, 700))
	set(f, "proc/self/cgroup", "0::/a\n")
	set(f, "sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
	set(f, "sys/fs/cgroup/a/cpu.max", "max 100000\n")
	set(f, "sys/fs/cgroup/a/memory.max", "max\n")
	set(f, "sys/fs/cgroup/a/pids.max", "max\n")
	return f
}

func meminfo(total, free int) string {
	return fmt.Sprintf("MemTotal: %d kB\nMemAvailable: %d kB\nSwapTotal: %d kB\nSwapFree: %d kB\n", total<<20, free<<20, 8<<20, 8<<20)
}

// gpus gives the machine two of them, and the program kernels for a Hopper.
func gpus(f *Facts) {
	f.Build = Build{Archs: []string{"sm_80", "sm_89", "sm_90a", "compute_90"}, CUDA: "12.4"}
	f.GPU = gpu.Reading{Driver: "570.86.15", CUDA: "12.8", GPUs: []gpu.GPU{
		{Index: 0, Name: "NVIDIA H100 80GB HBM3", Capability: p("9.0"), Memory: &gpu.Memory{Total: 80 * gib, Used: gib}, Held: []string{"idle"}, ECC: &gpu.ECC{Uncorrected: p(uint64(0))}},
		{Index: 1, Name: "NVIDIA GB10", Capability: p("12.1"), Unified: true, Memory: &gpu.Memory{Total: 128 * gib, Used: gib}},
	}}
	f.CUDA.Devices = []Device{
		{Name: "NVIDIA H100 80GB HBM3", Capability: "9.0", Processors: 132, Memory: 80 * gib, Bandwidth: 3.35e12},
		{Name: "NVIDIA GB10", Capability: "12.1", Processors: 48, Memory: 128 * gib},
	}
}

func TestAHealthyMachineIsFit(t *testing.T) {
	for name, change := range map[string]func(*Facts){"cpu": func(*Facts) {}, "cuda": gpus} {
		f := healthy(t)
		change(f)
		r := Examine(f)
		for _, l := range r.Lines {
			if l.Status != OK || l.Do != "" || l.Text == "" {
				t.Errorf("%s: %+v", name, l)
			}
		}
		if !r.OK || r.Warnings+r.Faults != 0 {
			t.Errorf("%s: %d warnings, %d faults", name, r.Warnings, r.Faults)
		}
		var b bytes.Buffer
		if err := r.Print(&b, nil); err != nil {
			t.Fatal(err)
		}
		golden.Check(t, name+".txt", b.String())
	}
}

// Whatever is wrong is one line, with what to do, and everything else stays as it is.
func TestWhatIsWrongIsALineWithWhatToDo(t *testing.T) {
	fault := func(kind gpu.Kind, text string) func(*Facts) {
		return func(f *Facts) { f.GPU = gpu.Reading{Fault: &gpu.Fault{Kind: kind, Text: text}} }
	}
	both := func(a, b func(*Facts)) func(*Facts) { return func(f *Facts) { a(f); b(f) } }
	lost := func(f *Facts) {
		f.GPU.GPUs[0].Faults = []string{"temperature: the GPU is lost (off the bus, or no longer reachable): see dmesg for its Xid error; reset it or reboot"}
	}
	for name, tc := range map[string]struct {
		change func(*Facts)
		line   string // its name
		status Status
		text   string // part of it
		do     string
	}{
		"an instruction set that there is not": {func(f *Facts) { f.Kernels.Err = errors.New("CEDRUN_ISA=neon: not supported") }, "kernels", Fault, "CEDRUN_ISA=neon", "unset CEDRUN_ISA"},
		"no vectors":                           {func(f *Facts) { f.Kernels.ISA = "plain" }, "kernels", Warning, "A CPU: no vector instructions", "AVX2, AVX-512 or NEON"},
		"a quota (v2)":                         {func(f *Facts) { set(f, "sys/fs/cgroup/a/cpu.max", "150000 100000\n") }, "processors", Warning, "the time of 1.5", "docker run --cpus"},
		"a quota (v1)": {func(f *Facts) {
			set(f, "proc/self/cgroup", "3:cpu,cpuacct:/x\n")
			set(f, "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "50000\n")
			set(f, "sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n")
		}, "processors", Warning, "the time of 0.5", "cpu.max"},
		"an affinity mask": {func(f *Facts) { f.Processors, f.Threads = 1, 1 }, "processors", Warning, "1 of 2 usable, 1 threads: the affinity mask", "taskset"},
		"no /proc":         {func(f *Facts) { delete(f.Root.(fstest.MapFS), "proc/meminfo") }, "memory", Warning, "cannot be read", "mount /proc"},
		"swap in use": {func(f *Facts) {
			set(f, "proc/meminfo", strings.Replace(meminfo(768, 700), "SwapFree: 8388608", "SwapFree: 1000", 1))
		}, "swap", Warning, "8.6 GB of 8.6 GB in use", "--lock"},
		"no huge pages": {func(f *Facts) { set(f, "sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n") }, "huge pages", Warning, "says never", "echo madvise"},
		"locked memory": {func(f *Facts) { f.LockLimit = 8 << 20 }, "locked memory", Warning, "at most 8.4 MB, and every token reads", "ulimit -l unlimited"},
		"no room for threads": {func(f *Facts) {
			set(f, "sys/fs/cgroup/a/pids.max", "100\n")
			set(f, "sys/fs/cgroup/a/pids.current", "90\n")
		}, "threads", Fault, "room for 10 more", "--pids-limit"},
		"few files":                      {func(f *Facts) { f.FileLimit = 1024 }, "open files", Warning, "at most 1024: a server", "ulimit -n"},
		"too few files":                  {func(f *Facts) { f.FileLimit = 64 }, "open files", Fault, "at most 64, and this model has 48 shards", "ulimit -n"},
		"experts on disk":                {func(f *Facts) { set(f, "proc/meminfo", meminfo(256, 200)) }, "fit", Warning, "of the experts fit into memory", "cedrun plan -m models/v41"},
		"a disk that fails":              {func(f *Facts) { f.DiskErr = errors.New("x.safetensors cannot be read at byte 5: input/output error") }, "disk", Fault, "input/output error", "dmesg"},
		"a full disk":                    {func(f *Facts) { f.Model.Free = 5e8 }, "free space", Warning, "500 MB on", "free some"},
		"a cache that cannot be written": {func(f *Facts) { f.Cache.Err = errors.New("mkdir cache: read-only file system") }, "cache", Warning, "read-only file system: maps", "--cache-dir"},
		"a shard that is missing": {func(f *Facts) {
			f.Model.Report = &verify.Report{Faults: []string{"model-00002.safetensors is missing"}}
		}, "checkpoint", Fault, "model-00002", "cedrun verify -m models/v41"},
		"a shard that this user may not read": {func(f *Facts) {
			f.Model.Report = &verify.Report{Faults: []string{"config.json: open config.json: permission denied"}}
		}, "checkpoint", Fault, "permission denied", "chmod -R u+rX models/v41"},
		"no tokenizer":           {func(f *Facts) { f.Model.Report.Tokens = 0 }, "tokenizer", Warning, "no tokenizer.json", "download"},
		"a port in use":          {func(f *Facts) { f.PortErr = syscall.EADDRINUSE }, "port", Fault, "127.0.0.1:8080: address already in use", "--port"},
		"nvcc without a version": {func(f *Facts) { f.Toolkit.Path = "bin/nvcc" }, "toolkit", Warning, "does not say its version", "CUDA_HOME"},
		// A build without CUDA runs whatever the GPU does.
		"cpu build, a GPU":          {func(f *Facts) { gpus(f); f.Build = Build{} }, "architectures", Warning, "no CUDA kernels", "make cuda"},
		"cpu build, no driver":      {fault(gpu.NoDriver, "the NVIDIA kernel driver is not loaded: run modprobe nvidia"), "driver", Warning, "not loaded", "modprobe"},
		"cpu build, other versions": {fault(gpu.Mismatch, "different versions: reboot"), "driver", Warning, "different versions", "reboot"},
		// One with CUDA does not.
		"no library":              {both(gpus, fault(gpu.NoLibrary, "no NVIDIA driver library: this machine has no driver")), "driver", Fault, "no NVIDIA driver library", "no driver"},
		"no driver":               {both(gpus, fault(gpu.NoDriver, "the NVIDIA kernel driver is not loaded: run modprobe nvidia")), "driver", Fault, "not loaded", "modprobe"},
		"versions do not match":   {both(gpus, fault(gpu.Mismatch, "the library and the driver have different versions: reboot")), "driver", Fault, "different versions", "reboot"},
		"no permission":           {both(gpus, fault(gpu.NoPermission, "NVML: no permission: see who may open /dev/nvidiactl")), "driver", Fault, "NVML", "/dev/nvidiactl"},
		"an old driver":           {both(gpus, func(f *Facts) { f.GPU.Driver = "535.104.05" }), "driver", Fault, "535.104.05 is too old: this build, of CUDA 12.4, needs 550", "update"},
		"an old driver, CUDA 13":  {both(gpus, func(f *Facts) { f.Build.CUDA = "13.0" }), "driver", Fault, "needs 580", "update"},
		"a GPU without kernels":   {both(gpus, func(f *Facts) { f.GPU.GPUs[0].Name, f.GPU.GPUs[0].Capability = "Tesla V100", p("7.0") }), "GPU 0", Fault, "Tesla V100 has compute capability 7.0, and this build has kernels for sm_80, sm_89, sm_90a, compute_90 only (driver 570.86.15, CUDA 12.4)", "--backend cpu"},
		"a GPU that does not say": {both(gpus, func(f *Facts) { f.GPU.GPUs[1].Capability = nil }), "GPU 1", Warning, "does not say its compute capability", "update"},
		"a lost GPU":              {both(gpus, lost), "GPU 0", Fault, "temperature: the GPU is lost", "see dmesg"},
		"a hot GPU":               {both(gpus, func(f *Facts) { f.GPU.GPUs[0].Held = []string{"hardware thermal"} }), "GPU 0", Warning, "hardware thermal", "cooling"},
		"memory errors":           {both(gpus, func(f *Facts) { f.GPU.GPUs[0].ECC.Uncorrected = p(uint64(3)) }), "GPU 0", Warning, "3 uncorrected", "reset"},
		"a driver CUDA refuses":   {both(gpus, func(f *Facts) { f.CUDA = CUDA{Err: errors.New("libcuda.so.1: no")} }), "CUDA", Fault, "libcuda.so.1: no", "--backend cpu"},
		"a toolkit that is newer": {both(gpus, func(f *Facts) { f.Toolkit = Toolkit{"/opt/nvcc", "13.0"} }), "toolkit", Warning, "CUDA 13.0 at /opt/nvcc is newer than the driver, which runs up to CUDA 12.8", "older toolkit"},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy(t)
			tc.change(f)
			r := Examine(f)
			var bad []Line
			for _, l := range r.Lines {
				if l.Status != OK {
					bad = append(bad, l)
				}
			}
			if len(bad) != 1 {
				t.Fatalf("%d lines that are not ok, want one: %+v", len(bad), bad)
			}
			l := bad[0]
			if l.Name != tc.line || l.Status != tc.status || !strings.Contains(l.Text, tc.text) || !strings.Contains(l.Do, tc.do) {
				t.Errorf("%+v, want %s of %s: %s -> %s", l, tc.status, tc.line, tc.text, tc.do)
			}
			if r.OK != (tc.status != Fault) {
				t.Errorf("ok is %v", r.OK)
			}
		})
	}
}

func TestAMissingDriverIsSaidOnce(t *testing.T) {
	f := healthy(t)
	gpus(f)
	f.GPU = gpu.Reading{Fault: &gpu.Fault{Kind: gpu.NoLibrary, Text: "no NVIDIA driver library: this machine has no driver"}}
	f.CUDA = CUDA{Err: errors.New("no NVIDIA driver: no libcuda.so.1 for this machine was found")}
	r := Examine(f)
	said := 0
	for _, l := range r.Lines {
		if l.Status == Fault {
			said++
		}
	}
	if said != 1 || r.OK {
		t.Errorf("%d faults in %+v", said, r.Lines)
	}
}

// From what the management library answers to a line.
func TestWhatNVMLAnswersIsALine(t *testing.T) {
	for answer, want := range map[nv.Return]string{
		nv.ERROR_LIBRARY_NOT_FOUND: "no NVIDIA driver library", nv.ERROR_DRIVER_NOT_LOADED: "kernel driver is not loaded", nv.ERROR_LIB_RM_VERSION_MISMATCH: "have different versions",
		nv.ERROR_NO_PERMISSION: "NVML", nv.ERROR_GPU_IS_LOST: "NVML", nv.ERROR_UNKNOWN: "NVML",
	} {
		for _, cuda := range []bool{false, true} {
			f := healthy(t)
			status := Warning
			if answer == nv.ERROR_LIBRARY_NOT_FOUND {
				status = OK
			}
			if cuda {
				gpus(f)
				status = Fault
			}
			f.GPU = gpu.Over(&mock.Interface{InitFunc: func() nv.Return { return answer }}, f.Root).Read()
			found := false
			for _, l := range Examine(f).Lines {
				if l.Name != "driver" {
					continue
				}
				found = true
				if l.Status != status || !strings.Contains(l.Text, want) || l.Do == "" && status != OK && answer != nv.ERROR_UNKNOWN {
					t.Errorf("NVML %d, CUDA %v: %+v, want %s of %q", answer, cuda, l, status, want)
				}
			}
			if !found {
				t.Errorf("NVML %d: no line on the driver", answer)
			}
		}
	}
}

// One lack can show in several places.
func TestWhatIsWrongInSeveralPlaces(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Facts)
		want   []string // status and name
	}{
		"hardly any memory": {func(f *Facts) { set(f, "proc/meminfo", meminfo(4, 1)) }, []string{"warning memory", "fault fit"}},
		"a container that is too small": {func(f *Facts) {
			set(f, ".dockerenv", "")
			set(f, "sys/fs/cgroup/a/memory.max", "4294967296\n")
			set(f, "sys/fs/cgroup/a/memory.current", "0\n")
		}, []string{"fault container", "fault fit"}},
		"a lost GPU in a cpu build": {func(f *Facts) {
			gpus(f)
			f.Build, f.GPU.GPUs[0].Faults = Build{}, []string{"power: the GPU is lost: reboot"}
		}, []string{"warning architectures", "warning GPU 0"}},
		"experts from a slow disk": {func(f *Facts) {
			set(f, "proc/meminfo", meminfo(256, 200))
			f.Disk.Speeds = []Speed{{1, 1e8}, {8, 1.2e8}, {32, 1.2e8}}
		}, []string{"warning fit", "warning disk"}},
		"many faults of a checkpoint": {func(f *Facts) {
			f.Model.Report, f.Model.Config = &verify.Report{Faults: strings.Split("a b c d e f g", " ")}, nil
		}, slices.Repeat([]string{"fault checkpoint"}, shown+1)},
		"nothing is known": {func(f *Facts) { *f = Facts{Root: fstest.MapFS{}, FileLimit: Unlimited, LockLimit: Unlimited} }, []string{"warning memory", "warning huge pages", "ok driver"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy(t)
			tc.change(f)
			var got []string
			for _, l := range Examine(f).Lines {
				if line := string(l.Status) + " " + l.Name; l.Status != OK || slices.Contains(tc.want, line) {
					got = append(got, line)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestContainersAreNamed(t *testing.T) {
	for want, change := range map[string]func(*Facts){
		"none; no limit":   func(*Facts) {},
		"Docker; no limit": func(f *Facts) { set(f, ".dockerenv", "") },
		"Podman; no limit": func(f *Facts) { set(f, "run/.containerenv", "") },
		"Kubernetes; memory is limited to": func(f *Facts) {
			set(f, "proc/self/cgroup", "0::/kubepods/pod1\n")
			set(f, "sys/fs/cgroup/kubepods/memory.max", "600000000000\n")
		},
		"LXC; no limit": func(f *Facts) { set(f, "proc/1/cgroup", "0::/lxc/box\n") },
	} {
		f := healthy(t)
		change(f)
		found := slices.ContainsFunc(Examine(f).Lines, func(l Line) bool { return l.Name == "container" && strings.HasPrefix(l.Text, want) })
		if !found {
			t.Errorf("no container %q", want)
		}
	}
}

func TestCodeRunsOnTheDevicesItWasBuiltFor(t *testing.T) {
	for _, tc := range []struct {
		arch, capability string
		want             bool
	}{
		{"sm_80", "8.0", true}, {"sm_80", "8.6", true}, {"sm_89", "8.6", false}, {"sm_80", "9.0", false}, {"sm_90a", "9.0", true}, {"sm_90a", "9.1", false},
		{"sm_100", "10.0", true}, {"sm_100", "10.3", true}, {"sm_120", "12.1", true}, {"sm_100", "12.0", false}, {"sm_100f", "10.3", true}, {"sm_100f", "12.0", false},
		{"compute_90", "12.1", true}, {"compute_90", "8.9", false}, {"compute_90a", "10.0", false}, {"compute_90a", "9.0", true}, {"compute_100f", "10.3", true},
		{"sm_80", "8", false}, {"sm_80", "x.y", false}, {"what", "8.0", false}, {"sm_", "8.0", false},
	} {
		if got := runs(tc.arch, tc.capability); got != tc.want {
			t.Errorf("%s on %s: %v", tc.arch, tc.capability, got)
		}
	}
}

func TestVersionsAreComparedByTheirNumbers(t *testing.T) {
	for _, tc := range []struct {
		have, want string
		older      bool
	}{{"535.104.05", "550", true}, {"550.54.14", "550", false}, {"1000.1", "550", false}, {"12.4", "12.10", true}, {"12", "12.0", false}, {"12", "12.1", true}, {"", "550", false}, {"R550", "550", false}} {
		if got := older(tc.have, tc.want); got != tc.older {
			t.Errorf("%q before %q: %v", tc.have, tc.want, got)
		}
	}
}

func TestReportsFitEightyColumns(t *testing.T) {
	f := healthy(t)
	gpus(f)
	f.GPU.Driver, f.LockLimit, f.PortErr = "535.1", 1, syscall.EADDRINUSE
	r := Examine(f)
	var b bytes.Buffer
	if err := r.Print(&b, func(s Status, text string) string { return text }); err != nil {
		t.Fatal(err)
	}
	for _, l := range strings.Split(b.String(), "\n") {
		if len(l) > pageWidth {
			t.Errorf("%d columns: %s", len(l), l)
		}
	}
	golden.Check(t, "faults.txt", b.String())
	out, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(out, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, &back); diff != "" {
		t.Error(diff)
	}
}

func TestThisMachineIsLookedAt(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	const dir = "../../testdata/mini/base"
	o := Options{
		Model: verify.Subject{Name: "mini", Dir: dir}, CacheDir: filepath.Join(t.TempDir(), "a/b"), Address: ln.Addr().String(), DiskTime: time.Millisecond,
		Kernels: Kernels{ISA: "avx2"}, Threads: 1,
	}
	f, err := Gather(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if f.Processors < 1 || f.Model.Config == nil || !f.Model.Report.OK || f.Model.Shards < 1 || f.Model.Free < 0 || f.Cache.Err != nil || f.Disk == nil || !errors.Is(f.PortErr, syscall.EADDRINUSE) {
		t.Errorf("%+v", f)
	}
	r := Examine(f)
	if i := slices.IndexFunc(r.Lines, func(l Line) bool { return l.Name == "port" }); r.OK || r.Lines[i].Status != Fault {
		t.Errorf("%+v", r.Lines)
	}
	if err := os.WriteFile(filepath.Join(o.CacheDir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o.CacheDir = filepath.Join(o.CacheDir, "file/below")
	if f, err = Gather(context.Background(), o); err != nil || f.Cache.Err == nil {
		t.Errorf("a cache below a file: %v, %v", f.Cache.Err, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Gather(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestTheToolkitIsFound(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("CUDA_HOME", dir)
	t.Setenv("PATH", "")
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	nvcc := filepath.Join(dir, "bin/nvcc")
	for script, want := range map[string]string{
		"echo 'Cuda compilation tools, release 12.4, V12.4.131'": "12.4", "echo what": "", "exit 3": "",
	} {
		if err := os.WriteFile(nvcc, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		if got := findToolkit(context.Background()); got != (Toolkit{nvcc, want}) {
			t.Errorf("%s: %+v, want %q", script, got, want)
		}
	}
}

func TestADiskIsReadAtEveryDepth(t *testing.T) {
	dir := t.TempDir()
	if d, err := measure(context.Background(), dir, time.Millisecond, 0); err != nil || len(d.Speeds) != 0 || !strings.Contains(d.Note, "no shard") {
		t.Errorf("an empty directory: %+v, %v", d, err)
	}
	shard := filepath.Join(dir, "model.safetensors")
	if err := os.WriteFile(shard, bytes.Repeat([]byte("weights\n"), 3*readBytes/8), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, where := range []string{dir, memoryDir(t, shard)} {
		d, err := measure(context.Background(), where, 40*time.Millisecond, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Speeds) != len(depths) || d.Latency <= 0 || d.Note == "" {
			t.Errorf("%+v", d)
		}
		for i, s := range d.Speeds {
			if s.Depth != depths[i] || s.Bandwidth <= 0 {
				t.Errorf("%+v", s)
			}
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := measure(ctx, dir, time.Millisecond, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := os.Chmod(shard, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := measure(context.Background(), dir, time.Millisecond, 0); os.Getuid() != 0 && err == nil {
		t.Error("a shard that may not be read was read")
	}
}

// memoryDir holds a copy of a file on a file system without direct reads, where there is one.
func memoryDir(t *testing.T, file string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "cedrun")
	if err != nil {
		return filepath.Dir(file)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), b, 0o600); err != nil {
		return filepath.Dir(file)
	}
	return dir
}

func TestAFileThatBecomesShorterOrFailsIsAFault(t *testing.T) {
	f, err := os.Open(t.TempDir()) // reading a directory fails
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := &reader{f: f, size: 4 * readBytes}
	if _, _, err := r.run(context.Background(), 4, readBytes, time.Millisecond); !errors.Is(err, syscall.EISDIR) || !strings.Contains(err.Error(), "cannot be read at byte") {
		t.Errorf("error %v", err)
	}
}

// A device has room for a model, for a part of its experts, with a host that holds the others or does not, or for nothing.
func TestADeviceHasRoomForAModelOrIsToldWhatWould(t *testing.T) {
	for name, x := range map[string]struct {
		device   int64
		host     int
		status   Status
		text, do string
	}{
		"for all of it":              {400 * gib, 700, OK, "all experts have room", ""},
		"for some, the host for all": {80 * gib, 700, OK, "computed by the CPU", ""},
		"for some, the host is full": {80 * gib, 64, Warning, "page-locked memory of the host, which has 64.4 GB", "--expert-compute cpu"},
		"for none":                   {8 * gib, 700, Warning, "and the device has 8.6 GB", "--backend cpu"},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy(t)
			gpus(f)
			f.CUDA.Devices[0].Memory = x.device
			set(f, "proc/meminfo", meminfo(768, x.host-4))
			lines := Examine(f).Lines
			i := slices.IndexFunc(lines, func(l Line) bool { return l.Name == "fit on CUDA 0" })
			if i < 0 || lines[i].Status != x.status || !strings.Contains(lines[i].Text, x.text) || !strings.Contains(lines[i].Do, x.do) {
				t.Errorf("%+v", lines)
			}
		})
	}
}
