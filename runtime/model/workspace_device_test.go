//go:build sim || cuda

package model

import (
	"fmt"
	"testing"

	ced "cedrun/cuda"
	"cedrun/runtime/config"
	"cedrun/runtime/plan"
)

// The kernels of a device ask for no more workspace than its plan has for them, and for not much less.
func TestWorkspacesOfADeviceAreInItsPlan(t *testing.T) {
	s, err := ced.Open(ced.CUDA, 0, 0)
	if err != nil {
		t.Skip(err)
	}
	defer s.Close()
	for _, dir := range []string{"release", "demo", "mini/base", "mini/edge", "mini/plain"} {
		c, err := config.Load("../../testdata/" + dir + "/config.json")
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range []plan.Setup{{Context: 256, Slots: 1, Chunk: 16}, {Slots: 1}, {Slots: 16}, {Context: c.MaxPositions, Slots: 2, Chunk: 2048}} {
			w, err := w.Fill(c)
			if err != nil {
				t.Fatal(err)
			}
			m := bare(c, s, Options{Slots: w.Slots, Context: w.Context, StepRows: w.Chunk + w.Slots, DraftRows: c.Draft.BlockSize})
			need, planned := m.kernelWorkspaces(), plan.DeviceWorkspaceBytes(c, w)
			sum := int64(0)
			for _, n := range need {
				sum += int64(n)
			}
			t.Run(fmt.Sprintf("%s %dx%d chunk %d", dir, w.Slots, w.Context, w.Chunk), func(t *testing.T) {
				t.Logf("%d of %d: index, attend, experts %v", sum, planned, need)
				if sum > planned || planned > 4*sum+128<<20 {
					t.Errorf("kernels ask for %d bytes, planned are %d", sum, planned)
				}
			})
		}
	}
}
