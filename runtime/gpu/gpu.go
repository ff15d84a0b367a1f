package gpu

import "time"

// Reading is what the library said at one moment.
type Reading struct {
	Driver string `json:"driver,omitempty"` // version of the driver
	CUDA   string `json:"cuda,omitempty"`   // newest CUDA version that it runs
	GPUs   []GPU  `json:"gpus"`
	Fault  *Fault `json:"fault"` // nil when GPUs could be read
}

// GPU is one device. Nil is a figure that it does not offer.
type GPU struct {
	Index      int     `json:"index"`
	Name       string  `json:"name"`
	UUID       string  `json:"uuid,omitempty"`
	PCI        string  `json:"pci,omitempty"` // bus id
	Capability *string `json:"compute_capability"`

	Persistence   *bool    `json:"persistence"`
	DisplayActive *bool    `json:"display_active"`
	Fan           *uint32  `json:"fan_percent"`
	Temperature   *uint32  `json:"temperature_celsius"`
	State         *string  `json:"performance_state"` // P0, fastest, to P15
	Power         *float64 `json:"power_watts"`
	PowerLimit    *float64 `json:"power_limit_watts"`
	Energy        *float64 `json:"energy_joules"` // since the driver was loaded

	// Unified memory is the system's: Memory is then that of the system.
	Unified bool    `json:"unified"`
	Memory  *Memory `json:"memory"`

	Busy        *uint32 `json:"utilization_percent"`        // of the time: some kernel ran
	MemoryBusy  *uint32 `json:"memory_utilization_percent"` // of the time: memory was read or written
	ComputeMode *string `json:"compute_mode"`
	MIG         *bool   `json:"mig"`

	SMClock        *uint32  `json:"sm_clock_mhz"`
	SMClockMax     *uint32  `json:"sm_clock_max_mhz"`
	MemoryClock    *uint32  `json:"memory_clock_mhz"`
	MemoryClockMax *uint32  `json:"memory_clock_max_mhz"`
	Held           []string `json:"clocks_held_by"` // why clocks are lower than they could be; nil = not offered

	PCIe   *Link `json:"pcie"`
	NVLink *Link `json:"nvlink"`
	ECC    *ECC  `json:"ecc"`
	GPM    *GPM  `json:"gpm"`

	Processes []Process `json:"processes"`
	Faults    []string  `json:"faults"` // errors other than "not supported", a line each
}

// Memory in bytes. Reserved is what the driver keeps, not counted in Used.
type Memory struct {
	Total    uint64 `json:"total"`
	Used     uint64 `json:"used"`
	Reserved uint64 `json:"reserved"`
}

// Link is a connection, PCIe or all NVLinks together.
type Link struct {
	Generation *int     `json:"generation"`
	Width      *int     `json:"width"`  // lanes; links of NVLink
	Send       *float64 `json:"tx_bps"` // bytes per second, of the GPU
	Receive    *float64 `json:"rx_bps"`
}

// ECC counts memory errors since the driver was loaded (volatile).
type ECC struct {
	Enabled     bool    `json:"enabled"`
	Corrected   *uint64 `json:"corrected"`
	Uncorrected *uint64 `json:"uncorrected"`
	Remapped    *int    `json:"remapped_rows"`
}

// GPM holds the performance counters of Hopper and later between two readings: shares of the peak, 0 to 1.
type GPM struct {
	SM        *float64 `json:"sm_active"`      // of the time and SMs: some warp was there
	Occupancy *float64 `json:"sm_occupancy"`   // warps, of those that fit
	Tensor    *float64 `json:"tensor_active"`  // tensor cores
	DRAM      *float64 `json:"dram_bandwidth"` // of the memory's peak bandwidth
}

// Process uses a GPU.
type Process struct {
	PID    int     `json:"pid"`  // of the host
	Name   string  `json:"name"` // empty: not visible from here, as in a container
	Memory *uint64 `json:"memory"`
}

// counters are what rates are deltas of.
type counters struct {
	at       time.Time
	tx, rx   uint64 // NVLink, KiB
	linkSeen bool
}
