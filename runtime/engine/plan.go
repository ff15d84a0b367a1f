package engine

import (
	"fmt"
	"os"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
	"cedrun/runtime/plan"
)

// Plan is what starting an engine on the files will take, known before a weight is read.
func (f *Files) Plan(s Setup) (plan.Load, error) {
	w, have := f.counts(), plan.Available(os.DirFS("/"))
	if s.Backend == ced.CUDA {
		return f.planOnDevice(s, have)
	}
	sizes, err := s.sizes().FillFor(f.Config, w, s.Threads, have)
	if err != nil {
		return plan.Load{}, err
	}
	l := plan.Load{
		Setup: sizes, Weights: f.Checkpoint.TotalSize(), Buffers: plan.CountBuffers(f.Config, sizes, s.Threads), KVTokens: sizes.KVTokens,
		Available: have, Shortage: plan.Place(f.Config, w, sizes, s.Threads, have).Shortage(f.Config),
	}
	l.Read = f.anonymous()
	return l, nil
}

// FitsDevice reports whether a setup's device has room for what it has to hold.
func (f *Files) FitsDevice(s Setup) bool {
	_, err := f.Plan(s)
	return err == nil
}

// FitsHost reports whether the host has room for what a setup on a device leaves to it; on the CPU, for all of it and the
// weights that every token reads.
func (f *Files) FitsHost(s Setup) bool {
	if s.Backend == ced.CUDA {
		l, err := f.Plan(s)
		return err != nil || l.Check() == nil // what the device lacks the host cannot give
	}
	sizes, err := s.sizes().Fill(f.Config)
	return err != nil || plan.Fit(f.Config, f.counts(), sizes, s.Threads, plan.Available(os.DirFS("/"))) == nil
}

func (s Setup) sizes() plan.Setup {
	return plan.Setup{
		Context: s.Context, Slots: s.Slots, Chunk: s.Chunk, Outputs: s.Outputs, KVTokens: s.KVTokens, Snapshots: int64(s.Snapshots), HostExperts: s.HostExperts,
		NoGraphs: s.NoGraphs,
	}
}

// anonymous are the bytes of weights that are read into memory.
func (f *Files) anonymous() int64 {
	if f.Checkpoint.Mapped() || f.Source.FS != nil {
		return 0
	}
	return f.Report.ByRole[checkpoint.Backbone].Bytes // rows of Engram tables are read one by one
}

// planOnDevice is Plan for a CUDA device.
func (f *Files) planOnDevice(s Setup, have int64) (plan.Load, error) {
	dev, err := deviceMemory(s.Device, have)
	if err != nil {
		return plan.Load{}, err
	}
	sizes, on, err := s.sizes().FillOn(f.Config, f.counts(), dev, int64(s.ExpertBytes))
	if err != nil {
		return plan.Load{}, fmt.Errorf("%s with %d x %d tokens: %w", f.Source.Name(), sizes.Slots, sizes.Context, err)
	}
	l := plan.Load{
		Setup: sizes, Weights: f.Checkpoint.TotalSize(), Buffers: plan.CountBuffers(f.Config, sizes, 1), KVTokens: sizes.KVTokens,
		Available: have, Read: f.anonymous(), Device: on,
	}
	if d := l.Device; d.ExpertsHost > 0 {
		others := "are read from host memory over the bus"
		if d.HostExperts {
			others = "are computed by the CPU, with bits of their own"
		}
		l.Shortage = fmt.Sprintf("%s of %s of experts (%.0f %%) fit on %s; the others %s",
			plan.GB(d.Experts), plan.GB(f.counts().Experts), 100*d.ExpertShare, dev.Name, others)
	}
	return l, nil
}

// deviceMemory asks a device. Where it shares the host's memory, what its driver calls free leaves out what the system
// would give back, have bytes.
func deviceMemory(device int, have int64) (plan.Device, error) {
	d, err := ced.DeviceInfo(device)
	if err != nil {
		return plan.Device{}, fmt.Errorf("backend cuda: %w", err)
	}
	m := plan.Device{Name: d.Name, Total: d.Total, Free: d.Free, Unified: d.Unified}
	if m.Unified {
		m.Free = min(max(m.Free, have), m.Total)
	}
	return m, nil
}
