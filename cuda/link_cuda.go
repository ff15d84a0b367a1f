//go:build cuda

package ced

// The archive of make cuda, and the CUDA runtime; the driver is looked for when the first device is.

// #cgo LDFLAGS: ${SRCDIR}/../build/cuda/libced.a ${SRCDIR}/../build/cuda/libcudart_static.a -lstdc++ -lm -lpthread -ldl -lrt
import "C"

// Simulated says that CUDA devices of this build are simulated ones.
const Simulated = false
