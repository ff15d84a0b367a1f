//go:build sim || cuda

package model

import (
	"slices"
	"testing"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
)

// Rows of an image that go through the last layers only choose experts like those of any step: they are counted, experts
// move for them, and the bits are those of a device with room for all.
func TestTailsCountAsStepsOfADevicesExperts(t *testing.T) {
	needDevice(t)
	var want [][]float32 // with room for all
	half := 0
	for _, c := range []struct {
		name   string
		part   bool
		byHost bool
	}{{"all on the device", false, false}, {"half of them", true, false}, {"half of them, the others by the CPU", true, true}} {
		bytes := 0
		if c.part {
			bytes = half
		}
		m := openModelOn(t, ced.CUDA, "../../testdata/mini/calm", checkpoint.Options{}, Options{
			Slots: 2, Context: 64, StepRows: 24, Outputs: 2, Tails: true, Graphs: true, ExpertBytes: bytes, HostExperts: c.byHost, HostThreads: 1,
		})
		half = slotBytes(m) * m.cfg.Layers * m.cfg.Experts / 2
		prompt := someIDs(m, 14, 5)
		donor := sequence(t, m, Replay, 12, 64)
		feedTo(t, m, donor, prompt[:12], nil, 12)
		image, err := m.Save(donor, nil)
		if err != nil || image == nil {
			t.Fatal(image, err)
		}
		q := adopt(t, m, donor, Replay, len(prompt), 64, Prefix{Tokens: prompt[:12], Image: image})
		if q.TailLeft() == 0 {
			t.Fatal("the image has no tail")
		}
		chosen := func() (n uint64) {
			if err := m.s.Sync(); err != nil {
				t.Fatal(err)
			}
			if err := m.slots.between(&m.meter); err != nil { // what the last step chose
				t.Fatal(err)
			}
			for _, l := range m.Use().Experts {
				n += l.Hit + l.Missed
			}
			return n
		}
		before := chosen()
		if err := m.RunTail(q, 64); err != nil {
			t.Fatal(err)
		}
		if after := chosen(); c.part && after <= before {
			t.Errorf("%s: %d experts were used before the tail, %d after it", c.name, before, after)
		}
		switch got := feedTo(t, m, q, prompt, prompt[:2], 24); {
		case !c.part:
			want = got
		case !c.byHost && !slices.EqualFunc(got, want, slices.Equal[[]float32]):
			t.Errorf("%s: other bits", c.name)
		}
		release(t, m, donor, q)
	}
}
