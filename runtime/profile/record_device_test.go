//go:build sim || cuda

package profile

import (
	"context"
	"testing"
	"time"

	ced "cedrun/cuda"
	"cedrun/runtime/engine"
	"cedrun/runtime/plan"
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

// Of a model whose experts have not all room on the device, a prompt waits for those that are brought. That is a row of its
// own, not the host's.
func TestADeviceThatWaitsForExpertsHasARowOfIt(t *testing.T) {
	if ced.Devices(ced.CUDA) == 0 {
		t.Skip("no CUDA device")
	}
	all, _ := startOn(t, "base", ced.CPU)
	inst, recorder := startWith(t, "base", engine.Setup{Backend: ced.CUDA, ExpertBytes: 40 * int(plan.ExpertSlot(all.Config))})
	rec, err := Record(context.Background(), recorder, inst, request(inst, chunk, 2))
	if err != nil {
		t.Fatal(err)
	}
	r := New(Subject{}, rec, nil, nil)
	sums(t, r)
	for _, p := range r.Phases {
		waits, took := 0, time.Duration(0)
		for _, x := range p.Rows {
			if x.Kernel == "wait" && x.Part == plan.PartExperts.String() {
				waits, took = waits+x.Calls, took+x.Took
			}
		}
		if want := p.Name == Prefill; waits > 1 != want || took > 0 != want || p.Accounted < 0.95 {
			t.Errorf("%s: %d waits, %v; %.3f accounted for", p.Name, waits, took, p.Accounted)
		}
	}
}
