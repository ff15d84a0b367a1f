//go:build sim || cuda

package bench

import (
	"bytes"
	"context"
	"math"
	"strings"
	"testing"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
	"cedrun/runtime/engine"
	"cedrun/runtime/model"
)

// A device is measured by its own events and held against its own limits: whole runs, whose decode steps are graphs, beside
// traced ones, whose parts sum to their time.
func TestADeviceIsMeasuredByItsEvents(t *testing.T) {
	if ced.Devices(ced.CUDA) == 0 {
		t.Skip("no CUDA device")
	}
	f, err := engine.OpenFiles(engine.Source{Dir: "../../testdata/mini/base"}, checkpoint.Options{}, "")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(context.Background(), f, Options{
		Contexts: []int{6}, Modes: []model.Prefill{model.Exact}, Batches: []int{1}, Repeat: 1, Steps: 2,
		Setup: engine.Setup{Backend: ced.CUDA, Chunk: 8, NoSelfTest: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	info, err := ced.DeviceInfo(0)
	if err != nil {
		t.Fatal(err)
	}
	if m := r.Machine; m.Device != info.Name || m.Simulated != ced.Simulated || min(m.Read, m.BF16, m.F32) <= 0 || m.Growth != 0 {
		t.Errorf("%+v", m)
	}
	if len(r.Rows) != 2 {
		t.Fatalf("%d rows", len(r.Rows))
	}
	for _, x := range r.Rows {
		sum, bytes, kernels := 0., 0., 0.
		for _, p := range x.Parts {
			sum, bytes = sum+p.Seconds, bytes+p.Bytes
			for _, k := range p.Kernels {
				kernels += k.Seconds
				if k.Name == "graph" {
					t.Errorf("%s: a graph among the kernels", x.title())
				}
			}
		}
		if x.Traced <= 0 || math.Abs(sum/x.Traced-1) > 1e-9 || math.Abs(bytes/x.Bytes-1) > 1e-9 || kernels <= 0 || x.Accounted < 0.95 {
			t.Errorf("%s: parts sum to %v s and %v bytes, kernels to %v s, row %+v", x.title(), sum, bytes, kernels, x)
		}
		if graphs := map[string]float64{"prefill": 0, "decode": 1}[x.Phase]; x.Graphs != graphs {
			t.Errorf("%s: %v of the steps are graphs, want %v", x.title(), x.Graphs, graphs)
		}
	}
	var text bytes.Buffer
	if err := r.Print(&text, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{info.Name + ": reads ", "replayed as graphs", "with events of the device"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	if strings.Contains(text.String(), "SIMULATED") != ced.Simulated {
		t.Errorf("%s", &text)
	}
}
