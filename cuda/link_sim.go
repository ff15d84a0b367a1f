//go:build sim

package ced

// The archive of make sim: the CUDA kernels on a simulated device.

// #cgo LDFLAGS: ${SRCDIR}/../build/sim/libced.a -lstdc++ -lm -lpthread
import "C"

// Simulated says that CUDA devices of this build are simulated ones.
const Simulated = true
