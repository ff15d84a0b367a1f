package doctor

import (
	"io/fs"

	"cedrun/runtime/config"
	"cedrun/runtime/gpu"
	"cedrun/runtime/plan"
	"cedrun/runtime/verify"
)

// Facts are what there is to judge.
type Facts struct {
	Root   fs.FS  // the system's "/": proc and sys are read
	System string // operating system and architecture
	// Processors may run this process (affinity mask); Threads is what a stream takes of them.
	Processors, Threads int
	Kernels             Kernels
	LockLimit           uint64 // bytes that may be locked; Unlimited
	FileLimit           uint64 // open files
	Cache               Place  // for maps derived from a tokenizer
	Build               Build
	GPU                 gpu.Reading
	CUDA                CUDA
	Toolkit             Toolkit
	Model               Model
	Disk                *Disk // nil: not measured
	DiskErr             error
	Address             string // where serve would listen
	PortErr             error
}

// Unlimited is a limit that is none.
const Unlimited = ^uint64(0)

// Kernels are those of the CPU.
type Kernels struct {
	ISA string // instruction set
	Err error  // why no stream opens
}

// Place is a directory that is written to.
type Place struct {
	Dir string
	Err error // why it cannot be
}

// Build says what this program was built for.
type Build struct {
	// Archs are the architectures whose kernels are embedded: sm_80, sm_90a, or compute_90 for code that drivers compile
	// for later ones. None in a build without CUDA.
	Archs []string
	CUDA  string // version of the toolkit that built them
}

// CUDA is what kernels can run on, by the numbers that --device takes. NVML sees more, in an order of its own. Zero in a
// build without CUDA.
type CUDA struct {
	Devices []Device
	Err     error // why there is none
}

// Device is one of CUDA's.
type Device struct {
	Name, Capability string
	Processors       int     // multiprocessors
	Memory           int64   // bytes
	Bandwidth        float64 // of its memory, bytes per second; 0 = not known
	Simulated        bool
}

// Toolkit is the CUDA compiler on this machine.
type Toolkit struct {
	Path, Version string // empty: there is none
}

// Model is a checkpoint.
type Model struct {
	Name   string
	Dir    string // "" when embedded
	Report *verify.Report
	Config *config.Config // nil if it cannot be read
	// Weights are those that the config implies.
	Weights plan.Weights
	Shards  int   // files that are open at a time
	Size    int64 // of the shards
	Free    int64 // bytes on the file system of Dir; -1 = not known
}
