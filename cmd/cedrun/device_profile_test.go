//go:build sim

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"cedrun/runtime/bench"
	"cedrun/runtime/profile"
)

// profile and bench measure a device, name it, and say where nothing that they say means anything.
func TestADeviceIsProfiled(t *testing.T) {
	args := []string{"profile", "--backend", "cuda", "-m", testdata + "mini/plain", "--prompt-tokens", "5", "--tokens", "2", "--roofline", t.TempDir() + "/r.svg"}
	r := simulated(t, nil, append(args, "--json")...)
	var report profile.Report
	if err := json.Unmarshal([]byte(r.out), &report); err != nil {
		t.Fatalf("%v\n%s%s", err, r.out, r.err)
	}
	if !report.Simulated || report.Device != "simulated device 0" || report.Limits == nil || report.Limits.Read <= 0 || len(report.Phases) != 2 {
		t.Errorf("%+v", report)
	}
	for _, p := range report.Phases {
		if p.Accounted < 0.95 || p.Plain == nil || p.Plain.Graphs != map[string]int{"decode": 1}[p.Name] {
			t.Errorf("%s: %.3f accounted for, untraced %+v", p.Name, p.Accounted, p.Plain)
		}
	}
	r = simulated(t, nil, args...)
	for _, want := range []string{"THE DEVICE IS SIMULATED", "1 step (simulated)", "1 of 1 steps replayed as graphs", "simulated device 0: reads "} {
		if !strings.Contains(r.out, want) {
			t.Errorf("no %q in\n%s%s", want, r.out, r.err)
		}
	}
}

func TestADeviceIsBenchmarked(t *testing.T) {
	r := simulated(t, nil, "bench", "--backend", "cuda", "-m", testdata+"mini/plain", "--contexts", "5", "--modes", "exact", "--repeat", "1", "--steps", "2", "--json")
	var report bench.Report
	if err := json.Unmarshal([]byte(r.out), &report); err != nil {
		t.Fatalf("%v\n%s%s", err, r.out, r.err)
	}
	if m := report.Machine; !m.Simulated || m.Device != "simulated device 0" || m.Read <= 0 || len(report.Rows) != 2 {
		t.Errorf("%+v", report)
	}
	for _, x := range report.Rows {
		if x.Traced <= 0 || x.Accounted < 0.95 || x.Graphs != map[string]float64{"decode": 1}[x.Phase] {
			t.Errorf("%+v", x)
		}
	}
}
