package gpu

import (
	"errors"
	"math"
	"strings"
	"testing"
	"testing/fstest"

	nv "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/google/go-cmp/cmp"
)

// machine is a made-up system directory.
var machine = fstest.MapFS{
	"proc/meminfo":   {Data: []byte("MemTotal:       125829120 kB\nMemFree: 1 kB\nMemAvailable:   83886080 kB\n")},
	"proc/4242/comm": {Data: []byte("cedrun\n")},
}

func p[T any](v T) *T { return &v }

// device answers every question as an H200 in use does.
func device() *mock.Device {
	return &mock.Device{
		GetNameFunc:                   func() (string, nv.Return) { return "NVIDIA H200", nv.SUCCESS },
		GetUUIDFunc:                   func() (string, nv.Return) { return "GPU-1", nv.SUCCESS },
		GetPciInfoFunc:                func() (nv.PciInfo, nv.Return) { return nv.PciInfo{BusId: [32]int8{'0', ':', '1'}}, nv.SUCCESS },
		GetFanSpeedFunc:               func() (uint32, nv.Return) { return 0, nv.ERROR_NOT_SUPPORTED },
		GetPowerUsageFunc:             func() (uint32, nv.Return) { return 412_300, nv.SUCCESS },
		GetCudaComputeCapabilityFunc:  func() (int, int, nv.Return) { return 9, 0, nv.SUCCESS },
		GetPersistenceModeFunc:        func() (nv.EnableState, nv.Return) { return nv.FEATURE_ENABLED, nv.SUCCESS },
		GetDisplayActiveFunc:          func() (nv.EnableState, nv.Return) { return nv.FEATURE_DISABLED, nv.SUCCESS },
		GetTemperatureFunc:            func(nv.TemperatureSensors) (uint32, nv.Return) { return 54, nv.SUCCESS },
		GetPerformanceStateFunc:       func() (nv.Pstates, nv.Return) { return nv.PSTATE_0, nv.SUCCESS },
		GetEnforcedPowerLimitFunc:     func() (uint32, nv.Return) { return 700_000, nv.SUCCESS },
		GetTotalEnergyConsumptionFunc: func() (uint64, nv.Return) { return 5000, nv.SUCCESS },
		GetUtilizationRatesFunc:       func() (nv.Utilization, nv.Return) { return nv.Utilization{Gpu: 97, Memory: 61}, nv.SUCCESS },
		GetComputeModeFunc:            func() (nv.ComputeMode, nv.Return) { return nv.COMPUTEMODE_DEFAULT, nv.SUCCESS },
		GetMigModeFunc:                func() (int, int, nv.Return) { return nv.DEVICE_MIG_DISABLE, 0, nv.SUCCESS },
		GetMemoryInfo_v2Func: func() (nv.Memory_v2, nv.Return) {
			return nv.Memory_v2{Total: 150 << 30, Used: 90 << 30, Reserved: 1 << 30}, nv.SUCCESS
		},
		GetClockInfoFunc:    func(nv.ClockType) (uint32, nv.Return) { return 1755, nv.SUCCESS },
		GetMaxClockInfoFunc: func(nv.ClockType) (uint32, nv.Return) { return 1980, nv.SUCCESS },
		GetCurrentClocksEventReasonsFunc: func() (uint64, nv.Return) {
			return nv.ClocksEventReasonSwPowerCap | nv.ClocksThrottleReasonHwThermalSlowdown, nv.SUCCESS
		},
		GetCurrPcieLinkGenerationFunc: func() (int, nv.Return) { return 5, nv.SUCCESS },
		GetCurrPcieLinkWidthFunc:      func() (int, nv.Return) { return 16, nv.SUCCESS },
		GetPcieThroughputFunc:         func(nv.PcieUtilCounter) (uint32, nv.Return) { return 1024, nv.SUCCESS },
		GetNvLinkStateFunc: func(i int) (nv.EnableState, nv.Return) {
			if i >= 18 {
				return 0, nv.ERROR_INVALID_ARGUMENT
			}
			return nv.FEATURE_ENABLED, nv.SUCCESS
		},
		GetFieldValuesFunc: func(v []nv.FieldValue) nv.Return {
			for i := range v {
				v[i].NvmlReturn = uint32(nv.SUCCESS)
			}
			return nv.SUCCESS
		},
		GetEccModeFunc: func() (nv.EnableState, nv.EnableState, nv.Return) {
			return nv.FEATURE_ENABLED, nv.FEATURE_ENABLED, nv.SUCCESS
		},
		GetTotalEccErrorsFunc: func(nv.MemoryErrorType, nv.EccCounterType) (uint64, nv.Return) { return 0, nv.SUCCESS },
		GetRemappedRowsFunc:   func() (int, int, bool, bool, nv.Return) { return 1, 0, false, false, nv.SUCCESS },
		GpmQueryDeviceSupportFunc: func() (nv.GpmSupport, nv.Return) {
			return nv.GpmSupport{IsSupportedDevice: 1}, nv.SUCCESS
		},
		GpmSampleGetFunc: func(nv.GpmSample) nv.Return { return nv.SUCCESS },
		GetComputeRunningProcessesFunc: func() ([]nv.ProcessInfo, nv.Return) {
			return []nv.ProcessInfo{{Pid: 4242, UsedGpuMemory: 80 << 30}, {Pid: 7, UsedGpuMemory: math.MaxUint64}}, nv.SUCCESS
		},
	}
}

// library holds devices; symbols of later drivers that it lacks are named.
func library(lacks []string, devices ...nv.Device) *mock.Interface {
	return &mock.Interface{
		InitFunc:                       func() nv.Return { return nv.SUCCESS },
		ShutdownFunc:                   func() nv.Return { return nv.SUCCESS },
		SystemGetDriverVersionFunc:     func() (string, nv.Return) { return "570.86", nv.SUCCESS },
		SystemGetCudaDriverVersionFunc: func() (int, nv.Return) { return 12080, nv.SUCCESS },
		DeviceGetCountFunc:             func() (int, nv.Return) { return len(devices), nv.SUCCESS },
		DeviceGetHandleByIndexFunc: func(i int) (nv.Device, nv.Return) {
			if devices[i] == nil {
				return nil, nv.ERROR_GPU_IS_LOST
			}
			return devices[i], nv.SUCCESS
		},
		GpmSampleAllocFunc: func() (nv.GpmSample, nv.Return) {
			return &mock.GpmSample{FreeFunc: func() nv.Return { return nv.SUCCESS }}, nv.SUCCESS
		},
		GpmMetricsGetFunc: func(g *nv.GpmMetricsGetType) nv.Return {
			for i := range g.NumMetrics {
				g.Metrics[i].Value = float64(g.Metrics[i].MetricId) * 10
			}
			g.Metrics[0].NvmlReturn = uint32(nv.ERROR_NOT_SUPPORTED)
			return nv.SUCCESS
		},
		ExtensionsFunc: func() nv.ExtendedInterface {
			return &mock.ExtendedInterface{LookupSymbolFunc: func(symbol string) error {
				for _, s := range append(lacks, "nvmlDeviceGetTemperatureV") { // its answer cannot be made up
					if strings.HasPrefix(symbol, s) {
						return errors.New("no such symbol")
					}
				}
				return nil
			}}
		},
	}
}

func TestEveryFigureOfAGPUIsRead(t *testing.T) {
	m := Over(library(nil, device()), machine)
	defer m.Close()
	m.Read()
	got := m.Read()
	if got.Driver != "570.86" || got.CUDA != "12.8" || got.Fault != nil || len(got.GPUs) != 1 {
		t.Fatalf("%+v", got)
	}
	want := GPU{
		Name: "NVIDIA H200", UUID: "GPU-1", PCI: "0:1", Capability: p("9.0"), Persistence: p(true), DisplayActive: p(false),
		Temperature: p(uint32(54)), State: p("P0"), Power: p(412.3), PowerLimit: p(700.), Energy: p(5.),
		Memory: &Memory{150 << 30, 90 << 30, 1 << 30}, Busy: p(uint32(97)), MemoryBusy: p(uint32(61)), ComputeMode: p("Default"), MIG: p(false),
		SMClock: p(uint32(1755)), SMClockMax: p(uint32(1980)), MemoryClock: p(uint32(1755)), MemoryClockMax: p(uint32(1980)),
		Held:      []string{"power cap", "hardware thermal"},
		PCIe:      &Link{p(5), p(16), p(1048576.), p(1048576.)},
		NVLink:    &Link{nil, p(18), p(0.), p(0.)},
		ECC:       &ECC{true, p(uint64(0)), p(uint64(0)), p(1)},
		GPM:       &GPM{nil, p(.3), p(.5), p(1.)},
		Processes: []Process{{4242, "cedrun", p(uint64(80 << 30))}, {7, "", nil}},
	}
	if d := cmp.Diff(want, got.GPUs[0]); d != "" {
		t.Error(d)
	}
}

// What goes wrong at the start is one sentence that says what to do; nothing is asked after it.
func TestFaultsOfTheLibraryAreOneSentence(t *testing.T) {
	for _, c := range []struct {
		answer nv.Return
		kind   Kind
		says   string
	}{
		{nv.ERROR_LIBRARY_NOT_FOUND, NoLibrary, "no NVIDIA driver library"},
		{nv.ERROR_DRIVER_NOT_LOADED, NoDriver, "modprobe nvidia"},
		{nv.ERROR_LIB_RM_VERSION_MISMATCH, Mismatch, "reboot"},
		{nv.ERROR_NO_PERMISSION, NoPermission, "/dev/nvidiactl"},
		{nv.ERROR_GPU_IS_LOST, Lost, "dmesg"},
		{nv.ERROR_UNKNOWN, Failed, "NVML error 999 (unknown)"},
		{nv.Return(777), Failed, "NVML error 777"},
	} {
		m := Over(&mock.Interface{InitFunc: func() nv.Return { return c.answer }}, machine) // any other call panics
		got := m.Read()
		if got.Fault == nil || got.Fault.Kind != c.kind || !strings.Contains(got.Fault.Text, c.says) || strings.Contains(got.Fault.Text, "\n") {
			t.Errorf("%d: %+v", c.answer, got.Fault)
		}
		if got.GPUs == nil || len(got.GPUs) != 0 || m.Fault() != got.Fault {
			t.Errorf("%d: %+v", c.answer, got)
		}
		m.Close()
	}
}

func TestAMachineWithoutTheLibraryStartsAndSaysSo(t *testing.T) {
	m := Open() // of this machine, whatever it has
	defer m.Close()
	r := m.Read()
	if r.Fault != nil && (r.Fault.Text == "" || len(r.GPUs) > 0) || r.Fault == nil && r.Driver == "" {
		t.Errorf("%+v", r)
	}
}

// A field that a device does not offer is missing; an error of another kind is a line, once.
func TestEachFieldFailsAlone(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(d *mock.Device, r nv.Return)
		gone   func(g GPU) bool
	}{
		{"power", func(d *mock.Device, r nv.Return) { d.GetPowerUsageFunc = func() (uint32, nv.Return) { return 0, r } }, func(g GPU) bool { return g.Power == nil }},
		{"temperature", func(d *mock.Device, r nv.Return) {
			d.GetTemperatureFunc = func(nv.TemperatureSensors) (uint32, nv.Return) { return 0, r }
		}, func(g GPU) bool { return g.Temperature == nil }},
		{"utilisation", func(d *mock.Device, r nv.Return) {
			d.GetUtilizationRatesFunc = func() (nv.Utilization, nv.Return) { return nv.Utilization{}, r }
		}, func(g GPU) bool { return g.Busy == nil && g.MemoryBusy == nil }},
		{"SM clock", func(d *mock.Device, r nv.Return) {
			d.GetClockInfoFunc = func(k nv.ClockType) (uint32, nv.Return) {
				if k == nv.CLOCK_SM {
					return 0, r
				}
				return 1, nv.SUCCESS
			}
		}, func(g GPU) bool { return g.SMClock == nil && g.MemoryClock != nil }},
		{"clocks held back", func(d *mock.Device, r nv.Return) {
			d.GetCurrentClocksEventReasonsFunc = func() (uint64, nv.Return) { return 0, r }
		}, func(g GPU) bool { return g.Held == nil }},
		{"PCIe throughput", func(d *mock.Device, r nv.Return) {
			d.GetPcieThroughputFunc = func(nv.PcieUtilCounter) (uint32, nv.Return) { return 0, r }
		}, func(g GPU) bool { return g.PCIe.Send == nil && g.PCIe.Receive == nil && *g.PCIe.Width == 16 }},
		{"NVLink", func(d *mock.Device, r nv.Return) {
			d.GetNvLinkStateFunc = func(int) (nv.EnableState, nv.Return) { return 0, r }
		}, func(g GPU) bool { return g.NVLink == nil }},
		{"NVLink throughput", func(d *mock.Device, r nv.Return) {
			d.GetFieldValuesFunc = func(v []nv.FieldValue) nv.Return {
				v[0].NvmlReturn = uint32(r)
				return nv.SUCCESS
			}
		}, func(g GPU) bool { return *g.NVLink.Width == 18 && g.NVLink.Send == nil }},
		{"ECC mode", func(d *mock.Device, r nv.Return) {
			d.GetEccModeFunc = func() (nv.EnableState, nv.EnableState, nv.Return) { return 0, 0, r }
		}, func(g GPU) bool { return g.ECC == nil }},
		{"GPM", func(d *mock.Device, r nv.Return) {
			d.GpmQueryDeviceSupportFunc = func() (nv.GpmSupport, nv.Return) { return nv.GpmSupport{}, r }
		}, func(g GPU) bool { return g.GPM == nil }},
		{"processes", func(d *mock.Device, r nv.Return) {
			d.GetComputeRunningProcessesFunc = func() ([]nv.ProcessInfo, nv.Return) { return nil, r }
		}, func(g GPU) bool { return len(g.Processes) == 0 }},
	} {
		for _, r := range []nv.Return{nv.ERROR_NOT_SUPPORTED, nv.ERROR_NO_PERMISSION, nv.ERROR_UNKNOWN} {
			d := device()
			c.change(d, r)
			g := Over(library(nil, d), machine).Read().GPUs[0]
			if !c.gone(g) {
				t.Errorf("%s, answer %d: %+v", c.name, r, g)
			}
			visible := len(g.Faults) == 1 && strings.HasPrefix(g.Faults[0], c.name+": ")
			if r == nv.ERROR_NOT_SUPPORTED && len(g.Faults) > 0 || r != nv.ERROR_NOT_SUPPORTED && !visible {
				t.Errorf("%s, answer %d: faults %q", c.name, r, g.Faults)
			}
			if g.Name != "NVIDIA H200" || g.ComputeMode == nil {
				t.Errorf("%s, answer %d: other fields went missing: %+v", c.name, r, g)
			}
		}
	}
}

// GB10 and its like have no memory of their own, and PCIe figures that mean nothing.
func TestUnifiedMemoryIsTheSystems(t *testing.T) {
	d := device()
	d.GetMemoryInfo_v2Func = func() (nv.Memory_v2, nv.Return) { return nv.Memory_v2{}, nv.ERROR_NOT_SUPPORTED }
	d.GetMemoryInfoFunc = func() (nv.Memory, nv.Return) { return nv.Memory{}, nv.ERROR_NOT_SUPPORTED }
	g := Over(library(nil, d), machine).Read().GPUs[0]
	if !g.Unified || g.PCIe != nil || g.Memory == nil || *g.Memory != (Memory{Total: 120 << 30, Used: 40 << 30}) || len(g.Faults) > 0 {
		t.Errorf("%+v, memory %+v", g, g.Memory)
	}
	d.GetMemoryInfo_v2Func = func() (nv.Memory_v2, nv.Return) { return nv.Memory_v2{}, nv.ERROR_NO_PERMISSION }
	g = Over(library(nil, d), machine).Read().GPUs[0]
	if g.Unified || g.Memory != nil || len(g.Faults) != 1 {
		t.Errorf("no permission: %+v", g)
	}
}

func TestALostGPUDoesNotHideTheOthers(t *testing.T) {
	gone := &mock.Device{GetNameFunc: func() (string, nv.Return) { return "", nv.ERROR_GPU_IS_LOST }} // any other question panics
	r := Over(library(nil, device(), nil, gone), machine).Read()
	if len(r.GPUs) != 3 || len(r.GPUs[0].Faults) != 0 {
		t.Fatalf("%+v", r.GPUs)
	}
	for _, g := range r.GPUs[1:] {
		if len(g.Faults) != 1 || !strings.Contains(g.Faults[0], "is lost") || g.Busy != nil {
			t.Errorf("%+v", g)
		}
	}
}

// A function that the library lacks must not be called: that would end the process. Here it panics.
func TestOldLibrariesAreNotAskedForWhatTheyLack(t *testing.T) {
	old := device()
	old.GetMemoryInfo_v2Func, old.GetCurrentClocksEventReasonsFunc, old.GpmQueryDeviceSupportFunc, old.GetRemappedRowsFunc = nil, nil, nil, nil
	old.GetMemoryInfoFunc = func() (nv.Memory, nv.Return) { return nv.Memory{Total: 16 << 30, Used: 1 << 30}, nv.SUCCESS }
	old.GetCurrentClocksThrottleReasonsFunc = func() (uint64, nv.Return) { return nv.ClocksEventReasonGpuIdle | 1<<40, nv.SUCCESS }
	g := Over(library([]string{"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlGpm", "nvmlDeviceGetRemappedRows"}, old), machine).Read().GPUs[0]
	if g.Memory.Total != 16<<30 || g.GPM != nil || g.ECC.Remapped != nil || cmp.Diff(g.Held, []string{"idle", "reason 0x10000000000"}) != "" {
		t.Errorf("%+v", g)
	}
	bare := &mock.Device{} // of a library that has nothing
	g = Over(library([]string{"nvml"}, bare), machine).Read().GPUs[0]
	if g.Name != "GPU 0" || g.Busy != nil {
		t.Errorf("%+v", g)
	}
}
