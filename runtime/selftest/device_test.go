//go:build sim || cuda

package selftest

import (
	"testing"
	"time"

	ced "cedrun/cuda"
)

// Every form that a start tries on a device agrees with the reference.
func TestEveryFormOfADevicePasses(t *testing.T) {
	if ced.Devices(ced.CUDA) == 0 {
		t.Skip("no CUDA device")
	}
	s, ref := stream(t, ced.CUDA, 0), stream(t, ced.Ref, 1)
	for _, cases := range [][]kernelCase{kernelCases, promptCases} {
		for _, c := range cases {
			began := time.Now()
			if err := compare(s, ref, []kernelCase{c}); err != nil {
				t.Error(err)
			}
			t.Logf("%v: %v", c, time.Since(began))
		}
	}
}
