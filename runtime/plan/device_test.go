package plan

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"cedrun/runtime/config"
)

func releasedWeights(t testing.TB) (*config.Config, Weights) {
	t.Helper()
	c := released(t)
	return c, CountWeights(c)
}

// A plan for a device never promises more than is free, and a larger device never holds less.
func TestAPlanForADeviceFits(t *testing.T) {
	c, w := releasedWeights(t)
	rapid.Check(t, func(t *rapid.T) {
		s := Setup{
			Context: rapid.IntRange(1, 1<<18).Draw(t, "context"), Slots: rapid.IntRange(1, 64).Draw(t, "slots"),
			Chunk: rapid.SampledFrom([]int{0, 64, 4096}).Draw(t, "chunk"),
		}
		total := rapid.Int64Range(1<<30, 1<<39).Draw(t, "total")
		free := rapid.Int64Range(1<<29, total).Draw(t, "free")
		experts := rapid.SampledFrom([]int64{0, 1 << 33, 1 << 36}).Draw(t, "experts")
		dev := Device{Name: "a GPU", Total: total, Free: free}
		filled, d, err := s.FillOn(c, w, dev, experts)
		var misfit *FitError
		if errors.As(err, &misfit) {
			if misfit.Need <= misfit.Have || misfit.Remedy == "" || strings.Contains(err.Error(), "\n") {
				t.Fatalf("%v", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if d.Need() > free || d.Experts > w.Experts || d.KVFit < int64(filled.KVTokens)/2 {
			t.Fatalf("%d needed of %d: %+v", d.Need(), free, d)
		}
		if all := d.Experts == w.Experts; all != (d.ExpertsHost == 0) || all != (d.Budget() == 0) {
			t.Fatalf("%+v", d)
		}
		dev.Free, dev.Total = free+1<<30, total+1<<30
		if _, larger, err := s.FillOn(c, w, dev, experts); err != nil || larger.Experts < d.Experts-1<<27 {
			t.Fatalf("with 1 GiB more: %v, %+v after %+v", err, larger, d)
		}
	})
}

func TestWhyAWishDoesNotFitOnADevice(t *testing.T) {
	c, w := releasedWeights(t)
	h200, err := FindGPU("H200")
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		setup   Setup
		free    int64
		experts int64
		want    string
	}{
		"context":                    {Setup{Context: 1 << 20, Slots: 64}, 48e9, 0, "lower --context to "},
		"batch":                      {Setup{Context: 1 << 20, Slots: 64}, 48e9, 0, "have at most "},
		"batch and context":          {Setup{Context: 1 << 20, Slots: 64}, 18.1e9, 0, "have 1 text at a time and lower --context to "},
		"experts":                    {Setup{}, 100e9, 120e9, "lower --expert-memory to "},
		"cache":                      {Setup{KVTokens: 1 << 28}, 100e9, 0, "lower --kv-device"},
		"too little":                 {Setup{}, 8e9, 0, "take a device with more memory"},
		"no experts":                 {Setup{}, 15e9, 0, "use --expert-compute cpu"},
		"no room for captured steps": {Setup{Context: 64, Slots: 2}, 0, 0, "use --no-graphs"},
	} {
		t.Run(name, func(t *testing.T) {
			dev := h200.Device()
			if dev.Free = x.free; x.free == 0 { // one byte too little
				filled, d, err := x.setup.FillOn(c, w, h200.Device(), 0)
				if err != nil {
					t.Fatal(err)
				}
				dev.Free = d.Fixed() + filled.expertFloor(c, w) - 1
				x.setup = filled
			}
			if _, _, err := x.setup.FillOn(c, w, dev, x.experts); err == nil || !strings.Contains(err.Error(), x.want) || !strings.Contains(err.Error(), "on NVIDIA H200") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Captured decode steps have a place in the plan: one for each batch size that is captured, none where none is.
func TestCapturedStepsAreInThePlan(t *testing.T) {
	c, w := releasedWeights(t)
	for name, x := range map[string]struct {
		setup   Setup
		free    int64
		experts int64
		steps   int
	}{
		"one text":                    {Setup{}, 140e9, 0, 1},
		"64 texts":                    {Setup{Slots: 64}, 140e9, 0, 12}, // 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64
		"65 texts":                    {Setup{Slots: 65}, 140e9, 0, 13},
		"none by a flag":              {Setup{Slots: 64, NoGraphs: true}, 140e9, 0, 0},
		"none with the CPU's experts": {Setup{HostExperts: true}, 140e9, 0, 0},
		"the same, by a budget":       {Setup{HostExperts: true}, 400e9, 1, 0},
		"all experts have room":       {Setup{HostExperts: true}, 400e9, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			_, d, err := x.setup.FillOn(c, w, Device{Name: "a GPU", Total: x.free, Free: x.free}, x.experts)
			if err != nil {
				t.Fatal(err)
			}
			if each := d.Graphs / int64(max(d.Captured, 1)); d.Captured != x.steps || (d.Graphs == 0) != (x.steps == 0) || d.Graphs > 0 && (each < 2<<20 || each > 32<<20) {
				t.Errorf("%d steps, %d bytes, want %d", d.Captured, d.Graphs, x.steps)
			}
		})
	}
}

// Windows that a step keeps, for when it is run again, are in memory of the host, on either back end.
func TestKeptWindowsAreInThePlan(t *testing.T) {
	c, w := releasedWeights(t)
	for slots, want := range map[int]int64{1: 0, 8: 8 * windowBytes(c, false)} {
		s, d, err := Setup{Slots: slots}.FillOn(c, w, Device{Name: "a GPU", Total: 400e9, Free: 400e9}, 0)
		if err != nil {
			t.Fatal(err)
		}
		m, err := HostOf(d, c, w, s, 0)
		if err != nil {
			t.Fatal(err)
		}
		load := Load{Setup: s, Buffers: CountBuffers(c, s, 1), Device: d}
		if m.Buffers.Kept != want || load.Need() != want+programBytes(c) || CountBuffers(c, s, 2).Kept != want {
			t.Errorf("%d texts: %d kept, %d needed, want %d", slots, m.Buffers.Kept, load.Need(), want)
		}
	}
}

// What does not fit on the device must fit into the host's memory; if all fits, the host needs next to nothing.
func TestTheHostHoldsExpertsThatADeviceHasNoRoomFor(t *testing.T) {
	c, w := releasedWeights(t)
	for name, x := range map[string]struct {
		free, host int64
		fits       bool
	}{
		"all on the device":   {400e9, 8e9, true},
		"a large host":        {100e9, 400e9, true},
		"too small a host":    {100e9, 200e9, false},
		"unknown, but no lie": {100e9, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, d, err := Setup{}.FillOn(c, w, Device{Name: "a GPU", Total: x.free, Free: x.free}, 0)
			if err != nil {
				t.Fatal(err)
			}
			if m, err := HostOf(d, c, w, s, x.host); (err == nil) != x.fits || err == nil && m.OnDisk() < 0 {
				t.Errorf("%+v, %v", m, err)
			}
		})
	}
}

// What the CPU computes it reads where it is mapped: no GPU has too little memory for experts, and no host.
func TestExpertsOfTheCPUNeedNoMemory(t *testing.T) {
	c, w := releasedWeights(t)
	for _, experts := range []int64{1, 20e9, 0} {
		s, d, err := Setup{HostExperts: true}.FillOn(c, w, Device{Name: "a GPU", Total: 60e9, Free: 60e9}, experts)
		if err != nil {
			t.Fatal(err)
		}
		if !d.HostExperts || d.Experts+d.ExpertsHost != w.Experts || d.Locked() != 0 || d.Budget() < 1 {
			t.Errorf("%d bytes for experts: %+v", experts, d)
		}
		for _, host := range []int64{32e9, 400e9} {
			m, err := HostOf(d, c, w, s, host)
			if err != nil {
				t.Fatal(err)
			}
			if some := m.ExpertsHeld < w.Experts; some != (host == 32e9) || m.OnDisk() < 0 {
				t.Errorf("a host of %d bytes: %+v", host, m)
			}
		}
	}
	_, d, err := Setup{HostExperts: true}.FillOn(c, w, Device{Name: "a GPU", Total: 400e9, Free: 400e9}, 0)
	if err != nil || d.HostExperts || d.Budget() != 0 {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestGPUsAreFoundByTheirDriversNames(t *testing.T) {
	for name, want := range map[string]string{
		"NVIDIA H200": "NVIDIA H200", "NVIDIA H100 80GB HBM3": "NVIDIA H100 SXM", "NVIDIA H100 PCIe": "NVIDIA H100 PCIe",
		"NVIDIA A100-SXM4-80GB": "NVIDIA A100 80GB", "NVIDIA A100-PCIE-40GB": "NVIDIA A100 40GB", "NVIDIA L40S": "NVIDIA L40S",
		"NVIDIA RTX 6000 Ada Generation": "NVIDIA RTX 6000 Ada", "NVIDIA RTX PRO 6000 Blackwell Server Edition": "NVIDIA RTX PRO 6000 Blackwell",
		"NVIDIA GeForce RTX 4090": "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 5090": "NVIDIA GeForce RTX 5090", "simulated device 0": "",
	} {
		if g, known := KnownGPU(name); g.Name != want || known != (want != "") {
			t.Errorf("%s is %q", name, g.Name)
		}
	}
}

// Fewer experts on the device, or a slower device, never make a prediction faster.
func TestPredictionsForGPUsAreInOrder(t *testing.T) {
	c, w := releasedWeights(t)
	rate := func(name string, overBus float64) float64 {
		g, err := FindGPU(name)
		if err != nil {
			t.Fatal(err)
		}
		m := &Memory{Weights: w, ExpertsHeld: w.Experts, ExpertShare: 1, Rows: w.Engram + w.Embedding}
		v := m.DecodeSpeed(&Machine{GPU: &g, OverBus: overBus}, c, 1, 1000)
		if floor := float64(1) / (v.Bytes / g.Read); overBus == 0 && v.Rate > floor {
			t.Errorf("%s: %.1f tokens/s, and reading the weights allows %.1f", name, v.Rate, floor)
		}
		return v.Rate
	}
	last := 0.
	for _, r := range []float64{rate("rtx-4090", 0.9), rate("rtx-4090", 0.5), rate("rtx-4090", 0), rate("a100", 0), rate("h100", 0), rate("h200", 0), rate("b200", 0)} {
		if r <= last {
			t.Errorf("%.2f tokens/s after %.2f", r, last)
		}
		last = r
	}
}
