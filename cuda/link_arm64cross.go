//go:build arm64cross

package ced

// The archive of make test-arm64, built on another architecture.

// #cgo LDFLAGS: ${SRCDIR}/../build/arm64/libced.a -lstdc++ -lm -lpthread
import "C"

// Simulated says that CUDA devices of this build are simulated ones.
const Simulated = false
