package model

import "cedrun/runtime/plan"

// DecodeRows are the batch sizes that stand for all up to most in captured decode steps, ascending: each is the largest of
// its bucket. It is empty where no step is captured.
func (m *Model) DecodeRows(most int) []int {
	if !m.opt.Graphs {
		return nil
	}
	return plan.DecodeRows(most, m.opt.StepRows)
}
