package plan

import (
	"cmp"
	"slices"
	"strings"

	"cedrun/runtime/config"
)

// Rate is what a kind of kernel contributes to a decode step.
type Rate struct {
	Name      string  `json:"name"` // kernel and format of its weights
	Calls     float64 `json:"calls"`
	Seconds   float64 `json:"seconds"`
	Share     float64 `json:"share"`                      // of the step's kernels
	Bandwidth float64 `json:"bytes_per_second,omitempty"` // of weights
}

// Rates lists the kernels of a decode step, the slowest first.
func Rates(m *Machine, c *config.Config, batch, position int) []Rate {
	bytes, at, total := map[string]float64{}, map[string]*Rate{}, 0.
	Decode(c, batch, position, func(k Call, times float64) {
		name := strings.TrimSpace(k.Kernel.String() + " " + k.Weights.String())
		r := at[name]
		if r == nil {
			r = &Rate{Name: name}
			at[name] = r
		}
		t := times * m.Seconds(&k)
		r.Calls, r.Seconds, total = r.Calls+times, r.Seconds+t, total+t
		bytes[name] += times * k.Bytes()
	})
	var out []Rate
	for name, r := range at {
		if total > 0 {
			r.Share = r.Seconds / total
		}
		if r.Seconds > 0 {
			r.Bandwidth = bytes[name] / r.Seconds
		}
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b Rate) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Name, b.Name))
	})
	return out
}
