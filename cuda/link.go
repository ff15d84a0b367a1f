//go:build !arm64cross

package ced

// #cgo LDFLAGS: ${SRCDIR}/../build/libced.a -lstdc++ -lm -lpthread
import "C"
