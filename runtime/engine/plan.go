package engine

import (
	"os"

	"cedrun/runtime/checkpoint"
	"cedrun/runtime/plan"
)

// Plan is what starting an engine on the files will take, known before a weight is read.
func (f *Files) Plan(s Setup) (plan.Load, error) {
	sizes, err := s.sizes(f.Config)
	if err != nil {
		return plan.Load{}, err
	}
	l := plan.Load{
		Weights: f.Checkpoint.TotalSize(), Buffers: plan.CountBuffers(f.Config, sizes, s.Threads), KVTokens: sizes.KVTokens,
		Available: plan.Available(os.DirFS("/")),
	}
	l.Shortage = plan.Place(f.Config, plan.CountWeights(f.Config), sizes, s.Threads, l.Available).Shortage(f.Config)
	if !f.Checkpoint.Mapped() && f.Source.FS == nil {
		l.Read = f.Report.ByRole[checkpoint.Backbone].Bytes // rows of Engram tables are read one by one
	}
	return l, nil
}
