package model

// DecodeRows are the batch sizes that stand for all up to most in captured decode steps, ascending: each is the largest of
// its bucket. It is empty where no step is captured.
func (m *Model) DecodeRows(most int) (rows []int) {
	if !m.opt.Graphs {
		return nil
	}
	for n := 1; n <= most; n++ {
		if n == most || bucket(n+1, m.opt.StepRows) != bucket(n, m.opt.StepRows) {
			rows = append(rows, n)
		}
	}
	return rows
}
