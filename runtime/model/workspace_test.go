package model

import (
	"testing"

	ced "cedrun/cuda"
	"cedrun/runtime/config"
	"cedrun/runtime/kv"
)

// The scratch of the indexer is allocated once: it must do for every layer, whatever the order of ratios.
func TestIndexerScratchDoesForEveryLayer(t *testing.T) {
	s, err := ced.Open(ced.CPU, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, dir := range []string{"mini/base", "mini/edge", "mini/sched40", "release"} { // edge: ratio 1 before ratio 2
		t.Run(dir, func(t *testing.T) {
			c, err := config.Load("../../testdata/" + dir + "/config.json")
			if err != nil {
				t.Fatal(err)
			}
			ratios := make([]int, len(c.KVSources))
			for i, l := range c.KVSources {
				ratios[i] = c.CompressRatios[l]
			}
			m := &Model{
				cfg: c, schedule: c.Schedule(), s: s, opt: Options{Slots: 1, Context: 4096, StepRows: 64},
				layout: kv.NewLayout(c.HeadDim, c.IndexHeadDim, c.KVSources, ratios),
			}
			all := m.indexArgs(nil, 0)
			have := s.CSA2IndexWorkspace(&all)
			for i := range m.schedule {
				l := &m.schedule[i]
				if !l.OwnsIndex {
					continue
				}
				a := m.indexArgs(l, 0)
				if need := s.CSA2IndexWorkspace(&a); need > have {
					t.Errorf("layer %d needs %d bytes, allocated are %d", i, need, have)
				}
			}
		})
	}
}
