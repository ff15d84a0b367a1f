//go:build !arm64cross && !sim && !cuda

package ced

// #cgo LDFLAGS: ${SRCDIR}/../build/libced.a -lstdc++ -lm -lpthread
import "C"

// Simulated says that CUDA devices of this build are simulated ones.
const Simulated = false
