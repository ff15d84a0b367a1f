// Package driver asks NVIDIA's driver which CUDA devices there are and what they can do, through gorgonia.org/cu. Nothing
// is allocated on a device, no context is made on it: that is for package ced, which computes there. Only the build with
// CUDA (make cuda) can ask; it links a libcuda.a of its own (cuda/device/driver_slots.cc), which looks for the driver when
// it is first asked, so the program starts without one.
//
// The functions of gorgonia.org/cu that are not used here must not be called before Devices was.
package driver

// Device is a CUDA device as its driver describes it.
type Device struct {
	Name        string  `json:"name"`
	UUID        string  `json:"uuid"` // as NVML writes it: GPU-...
	Major       int     `json:"major"`
	Minor       int     `json:"minor"`      // compute capability
	Processors  int     `json:"processors"` // multiprocessors
	Memory      int64   `json:"memory_bytes"`
	Bandwidth   float64 `json:"memory_bytes_per_second"` // of memory at its highest clock; 0 = unknown
	L2          int     `json:"l2_bytes"`
	SharedPerSM int     `json:"shared_bytes_per_processor"`
	CopyEngines int     `json:"copy_engines"`
	Integrated  bool    `json:"integrated"` // its memory is the host's
	ECC         bool    `json:"ecc"`
}
