package ced

/*
#include "ced.h"
*/
import "C"

import "fmt"

// Device is what a CUDA device says of itself.
type Device struct {
	Index, Processors int
	Name              string
	Total, Free       int64 // bytes of memory
	Major, Minor      int   // compute capability
	Unified           bool  // its memory is the host's
}

// DeviceInfo asks CUDA device i. The error says what is missing: a driver, devices, this one.
func DeviceInfo(i int) (Device, error) {
	var d C.ced_device
	e := new(C.ced_err)
	if rc := C.ced_device_info(C.CED_CUDA, C.int(i), &d, e); rc != 0 {
		return Device{}, failure(e)
	}
	return Device{
		Index: i, Processors: int(d.processors), Name: C.GoString(&d.name[0]),
		Total: int64(d.total_bytes), Free: int64(d.free_bytes), Major: int(d.major), Minor: int(d.minor), Unified: d.integrated != 0,
	}, nil
}

// Capability is the compute capability as NVIDIA writes it: 9.0.
func (d Device) Capability() string { return fmt.Sprintf("%d.%d", d.Major, d.Minor) }
