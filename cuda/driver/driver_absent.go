//go:build !cuda

package driver

// Devices lists none: this build does not ask.
func Devices() ([]Device, error) { return nil, nil }

// Version is empty: this build does not ask.
func Version() string { return "" }
