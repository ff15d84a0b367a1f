//go:build sim || cuda

package publish

import (
	"testing"

	"github.com/rs/zerolog"

	ced "cedrun/cuda"
	"cedrun/runtime/engine"
)

// Who looks at a device is told where its experts are, and of captured steps only where steps are captured.
func TestASnapshotTellsWhereADevicesExpertsAre(t *testing.T) {
	if ced.Devices(ced.CUDA) == 0 {
		t.Skip("no CUDA device")
	}
	for _, c := range []struct {
		name     string
		bytes    int
		byCPU    bool
		onDevice bool
	}{
		{"all on the device", 0, false, false}, {"none, by the CPU", 1, true, false}, {"some, by the CPU", 100_000, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inst, err := engine.Open(engine.Source{Dir: "../../../testdata/mini/calm"}, engine.Setup{
				Backend: ced.CUDA, Context: 64, Chunk: 8, Threads: 2, NoSelfTest: true, ExpertBytes: c.bytes, HostExperts: c.byCPU,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer inst.Close()
			m := New(t.TempDir(), "serve", "v1", zerolog.Nop(), nil).describe(inst)
			x := m.Experts
			if x.ByCPU != c.byCPU || (x.Count > 0) != c.byCPU || (x.OnDevice > 0) != c.onDevice || (m.Graphs == nil) != c.byCPU {
				t.Errorf("experts %+v, graphs %+v", x, m.Graphs)
			}
			if c.byCPU && m.Threads != 2 {
				t.Errorf("%d threads", m.Threads)
			}
		})
	}
}
