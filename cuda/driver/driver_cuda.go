//go:build cuda

package driver

import (
	"fmt"

	"gorgonia.org/cu"
)

// Devices lists the devices in the order of their numbers, those that CUDA_VISIBLE_DEVICES leaves. Without a driver, or
// with one that does not start, there are none; package ced says why.
func Devices() ([]Device, error) {
	n, err := cu.NumDevices()
	if err != nil {
		return nil, fmt.Errorf("CUDA driver: number of devices: %w", err)
	}
	devices := make([]Device, n)
	for i := range devices {
		if devices[i], err = describe(i); err != nil {
			return nil, fmt.Errorf("CUDA driver: device %d: %w", i, err)
		}
	}
	return devices, nil
}

// Version is the newest version of CUDA that the driver runs, 12.4 or the like; empty without one. Devices comes first.
func Version() string {
	if v := cu.Version(); v > 0 {
		return fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	}
	return ""
}

func describe(ordinal int) (d Device, err error) {
	dev, err := cu.GetDevice(ordinal)
	if err != nil {
		return d, err
	}
	if d.Name, err = dev.Name(); err != nil {
		return d, err
	}
	id, err := dev.UUID()
	if err != nil {
		return d, err
	}
	d.UUID = "GPU-" + id.String()
	if d.Memory, err = dev.TotalMem(); err != nil {
		return d, err
	}
	var clock, width, integrated, ecc int
	for _, a := range []struct {
		of  cu.DeviceAttribute
		dst *int
	}{
		{cu.ComputeCapabilityMajor, &d.Major}, {cu.ComputeCapabilityMinor, &d.Minor}, {cu.MultiprocessorCount, &d.Processors},
		{cu.L2CacheSize, &d.L2}, {cu.MaxSharedMemoryPerMultiprocessor, &d.SharedPerSM}, {cu.AsyncEngineCount, &d.CopyEngines},
		{cu.MemoryClockRate, &clock}, {cu.GlobalMemoryBusWidth, &width}, {cu.Integrated, &integrated}, {cu.EccEnabled, &ecc},
	} {
		if *a.dst, err = dev.Attribute(a.of); err != nil {
			return d, err
		}
	}
	d.Bandwidth = 2 * float64(clock) * 1e3 * float64(width) / 8 // kHz, two transfers a clock, bits
	d.Integrated, d.ECC = integrated != 0, ecc != 0
	return d, nil
}
