package gpu

import (
	"fmt"

	nv "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Kind classes a Fault.
type Kind string

// Why there is nothing to read.
const (
	NoLibrary    Kind = "no library"    // libnvidia-ml is not there
	NoDriver     Kind = "no driver"     // the kernel module is not loaded
	Mismatch     Kind = "mismatch"      // library and kernel module are of different versions
	NoPermission Kind = "no permission" // of the device files, or in this container
	Lost         Kind = "lost"          // a GPU fell off the bus
	Failed       Kind = "failed"        // anything else
)

// Fault is why nothing, or not everything, can be read: one sentence with what to do.
type Fault struct {
	Kind Kind   `json:"kind"`
	Text string `json:"text"`
}

func (f *Fault) Error() string { return f.Text }

// faultOf words what a call of the library answered; of is what was asked for.
func faultOf(of string, r nv.Return) *Fault {
	switch r {
	case nv.ERROR_LIBRARY_NOT_FOUND:
		return &Fault{NoLibrary, "no NVIDIA driver library (libnvidia-ml.so.1): no driver is installed, or this container was started without GPUs (docker run --gpus all)"}
	case nv.ERROR_DRIVER_NOT_LOADED:
		return &Fault{NoDriver, "the NVIDIA kernel driver is not loaded: run modprobe nvidia as root, and see dmesg if that fails"}
	case nv.ERROR_LIB_RM_VERSION_MISMATCH:
		return &Fault{Mismatch, "the NVIDIA driver library and the loaded kernel driver have different versions: reboot, or unload and reload the nvidia modules after the driver update"}
	case nv.ERROR_NO_PERMISSION:
		return &Fault{NoPermission, of + ": no permission: see who may open /dev/nvidiactl and /dev/nvidia0, or ask root"}
	case nv.ERROR_GPU_IS_LOST, nv.ERROR_GPU_NOT_FOUND:
		return &Fault{Lost, of + ": the GPU is lost (off the bus, or no longer reachable): see dmesg for its Xid error; reset it or reboot"}
	case nv.ERROR_RESET_REQUIRED:
		return &Fault{Lost, of + ": the GPU needs a reset: nvidia-smi --gpu-reset as root, or reboot"}
	case nv.ERROR_FUNCTION_NOT_FOUND:
		return &Fault{Failed, of + ": the driver is too old for this question"}
	}
	return &Fault{Failed, fmt.Sprintf("%s: NVML error %d (%s)", of, int(r), meaning(r))}
}

// meaning avoids the library's own text, which is not there when it is not loaded.
func meaning(r nv.Return) string {
	if s, ok := meanings[r]; ok {
		return s
	}
	return "see nvmlReturn_t"
}

var meanings = map[nv.Return]string{
	nv.ERROR_UNINITIALIZED: "not initialised", nv.ERROR_INVALID_ARGUMENT: "invalid argument", nv.ERROR_NOT_SUPPORTED: "not supported",
	nv.ERROR_INSUFFICIENT_POWER: "power cables are not connected", nv.ERROR_TIMEOUT: "timeout", nv.ERROR_IRQ_ISSUE: "interrupts do not arrive",
	nv.ERROR_CORRUPTED_INFOROM: "corrupted infoROM", nv.ERROR_OPERATING_SYSTEM: "refused by the operating system", nv.ERROR_IN_USE: "in use",
	nv.ERROR_MEMORY: "out of memory", nv.ERROR_NO_DATA: "no data", nv.ERROR_INSUFFICIENT_RESOURCES: "insufficient resources",
	nv.ERROR_ARGUMENT_VERSION_MISMATCH: "version of an argument", nv.ERROR_NOT_READY: "not ready", nv.ERROR_UNKNOWN: "unknown",
}

// offered tells a figure that exists from one that does not, and keeps every other error as a line.
func (g *GPU) offered(what string, r nv.Return) bool {
	switch r {
	case nv.SUCCESS:
		return true
	case nv.ERROR_NOT_SUPPORTED, nv.ERROR_FUNCTION_NOT_FOUND, nv.ERROR_ARGUMENT_VERSION_MISMATCH:
		return false
	}
	f := faultOf(what, r)
	for _, line := range g.Faults {
		if line == f.Text {
			return false
		}
	}
	g.Faults = append(g.Faults, f.Text)
	return false
}
