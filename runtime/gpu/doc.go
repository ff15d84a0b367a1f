// Package gpu reads what NVIDIA's management library (NVML) says about the GPUs of this machine: what nvidia-smi shows,
// and the counters of Hopper and later for memory bandwidth and tensor cores.
//
// Open never fails: without a library, a driver or the right to ask, Fault says which of them and what to do, and Read
// returns no GPU. A figure that a device does not offer is nil ("N/A"); any other error of a figure is one line in the
// GPU's Faults, so that a GPU that is lost or may not be asked does not look like one that is idle. A device whose memory
// is the system's has Unified set and the figures of the system's memory.
//
// The library is loaded at run time. After a load that failed, a call of any of its functions ends the process, as does
// one that is newer than the library; so nothing is called before initialisation succeeded, and nothing whose symbol was
// not looked up. The binding makes the linker accept undefined symbols: package ced and all below the engine must not
// import this package.
package gpu
