package engine

import (
	"os"

	"cedrun/runtime/checkpoint"
	"cedrun/runtime/plan"
)

// Plan is what starting an engine on the files will take, known before a weight is read.
func (f *Files) Plan(s Setup) (plan.Load, error) {
	w, have := f.counts(), plan.Available(os.DirFS("/"))
	sizes, err := plan.Setup{
		Context: s.Context, Slots: s.Slots, Chunk: s.Chunk, Outputs: s.Outputs, KVTokens: s.KVTokens, Snapshots: int64(s.Snapshots),
	}.FillFor(f.Config, w, s.Threads, have)
	if err != nil {
		return plan.Load{}, err
	}
	l := plan.Load{
		Setup: sizes, Weights: f.Checkpoint.TotalSize(), Buffers: plan.CountBuffers(f.Config, sizes, s.Threads), KVTokens: sizes.KVTokens,
		Available: have, Shortage: plan.Place(f.Config, w, sizes, s.Threads, have).Shortage(f.Config),
	}
	if !f.Checkpoint.Mapped() && f.Source.FS == nil {
		l.Read = f.Report.ByRole[checkpoint.Backbone].Bytes // rows of Engram tables are read one by one
	}
	return l, nil
}
