package gpu

import (
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	nv "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// libraries are where the library lies: where the loader looks, and in WSL.
var libraries = []string{"libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1", "libnvidia-ml.so"}

// Monitor reads GPUs again and again. It is for one goroutine at a time.
type Monitor struct {
	lib    nv.Interface // nil: Fault says why
	fault  *Fault
	root   fs.FS
	known  map[string]bool // symbols of the library
	driver string
	cuda   string
	past   map[int]counters
	gpm    map[int]nv.GpmSample
	// temperature reads degrees Celsius.
	temperature func(nv.Device) (uint32, nv.Return)
}

// Open loads and initialises the library. It never fails: see Fault.
func Open() *Monitor {
	var m *Monitor
	for _, path := range libraries {
		m = Over(nv.New(nv.WithLibraryPath(path)), os.DirFS("/"))
		if m.fault == nil || m.fault.Kind != NoLibrary {
			break
		}
	}
	return m
}

// Over initialises a given library, which a test can make up; root is the file system that holds proc.
func Over(lib nv.Interface, root fs.FS) *Monitor {
	m := &Monitor{root: root, known: map[string]bool{}, past: map[int]counters{}, gpm: map[int]nv.GpmSample{}}
	if r := lib.Init(); r != nv.SUCCESS && r != nv.ERROR_ALREADY_INITIALIZED {
		m.fault = faultOf("NVML", r)
		return m
	}
	m.lib = lib
	m.temperature = m.readTemperature
	if m.has("nvmlSystemGetDriverVersion") {
		if v, r := lib.SystemGetDriverVersion(); r == nv.SUCCESS {
			m.driver = v
		}
	}
	if m.has("nvmlSystemGetCudaDriverVersion") {
		if v, r := lib.SystemGetCudaDriverVersion(); r == nv.SUCCESS && v > 0 {
			m.cuda = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
		}
	}
	return m
}

// Fault says why no GPU can be read; nil when they can.
func (m *Monitor) Fault() *Fault { return m.fault }

// Close ends the use of the library.
func (m *Monitor) Close() {
	if m.lib == nil {
		return
	}
	for i, s := range m.gpm {
		_ = s.Free()
		delete(m.gpm, i)
	}
	_ = m.lib.Shutdown()
	m.lib, m.fault = nil, &Fault{Failed, "NVML: closed"}
}

// has reports whether the library has a function. One that it lacks must not be called.
func (m *Monitor) has(symbol string) bool {
	ok, seen := m.known[symbol]
	if !seen {
		ok = m.lib.Extensions().LookupSymbol(symbol) == nil
		m.known[symbol] = ok
	}
	return ok
}

// Read asks every GPU. Throughput of NVLink and the GPM counters are those since the Read before; PCIe throughput takes
// the library 20 ms each way.
func (m *Monitor) Read() Reading {
	out := Reading{Driver: m.driver, CUDA: m.cuda, GPUs: []GPU{}, Fault: m.fault}
	if m.lib == nil {
		return out
	}
	n, r := m.lib.DeviceGetCount()
	if r != nv.SUCCESS {
		out.Fault = faultOf("count of GPUs", r)
		return out
	}
	for i := range n {
		d, r := m.lib.DeviceGetHandleByIndex(i)
		if r != nv.SUCCESS {
			g := GPU{Index: i, Name: "GPU " + strconv.Itoa(i)}
			g.offered(fmt.Sprintf("GPU %d", i), r)
			if len(g.Faults) == 0 {
				g.Faults = []string{faultOf(g.Name, r).Text}
			}
			out.GPUs = append(out.GPUs, g)
			continue
		}
		out.GPUs = append(out.GPUs, m.read(i, d, time.Now()))
	}
	return out
}

func (m *Monitor) readTemperature(d nv.Device) (uint32, nv.Return) {
	if m.has("nvmlDeviceGetTemperatureV") {
		t, r := d.GetTemperatureV().V1()
		return uint32(max(t.Temperature, 0)), r
	}
	return d.GetTemperature(nv.TEMPERATURE_GPU) // older drivers have only this
}
