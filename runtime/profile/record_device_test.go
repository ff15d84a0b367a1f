//go:build sim || cuda

package profile

import (
	"context"
	"testing"

	ced "cedrun/cuda"
)

// A device's steps are traced kernel by kernel by its events, and the same request runs beside as it does otherwise.
func TestADevicesRowsSumToTheStepsAndHoldThePlansWork(t *testing.T) {
	if ced.Devices(ced.CUDA) == 0 {
		t.Skip("no CUDA device")
	}
	inst, recorder := startOn(t, "base", ced.CUDA)
	const prompt, tokens = 18, 3
	q := request(inst, prompt, tokens)
	plain, err := Time(context.Background(), recorder, inst, q)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := Record(context.Background(), recorder, inst, q)
	if err != nil {
		t.Fatal(err)
	}
	checkWork(t, inst, rec, prompt, tokens)
	r := New(Subject{}, rec, nil, nil)
	r.Compare(plain)
	sums(t, r)
	if len(r.Phases) != 2 {
		t.Fatalf("%d phases", len(r.Phases))
	}
	for _, p := range r.Phases {
		if p.Accounted < 0.95 || p.Plain == nil || p.Plain.Steps != p.Steps || p.Plain.Took <= 0 {
			t.Errorf("%s: %.3f accounted for, untraced %+v", p.Name, p.Accounted, p.Plain)
		}
		for _, x := range p.Rows {
			if x.Kernel == "graph" {
				t.Errorf("%s: %+v in a trace", p.Name, x)
			}
		}
	}
	if p := r.Phases[1]; p.Plain.Graphs != p.Steps {
		t.Errorf("%d of %d steps were graphs", p.Plain.Graphs, p.Steps)
	}
}
