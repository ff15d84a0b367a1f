package conform

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
)

// Line is one comparison.
type Line struct {
	Section   string  `json:"section"`
	Tensor    string  `json:"tensor"`
	Level     string  `json:"level"` // R0 .. R4
	Rule      string  `json:"rule"`
	Elements  int     `json:"elements"`
	Different int     `json:"different"`
	MaxDiff   float64 `json:"max_diff"`
	OK        bool    `json:"ok"`
	Why       string  `json:"why,omitempty"`
}

// Report is the outcome of a run. NotBuilt counts golden tensors of parts that this build does not have.
type Report struct {
	Model    string         `json:"model"`
	Golden   string         `json:"golden"`
	Backend  string         `json:"backend"`
	Lines    []Line         `json:"lines"`
	NotBuilt map[string]int `json:"not_built,omitempty"`
	Unread   []string       `json:"unread,omitempty"` // golden tensors that no section knows
}

// OK reports whether every rule held and every golden was understood.
func (r *Report) OK() bool {
	for _, l := range r.Lines {
		if !l.OK {
			return false
		}
	}
	return len(r.Lines) > 0 && len(r.Unread) == 0
}

func (r *Report) add(section, tensor, level string, ru rule, got, want []float32, width int) {
	l := Line{Section: section, Tensor: tensor, Level: level, Rule: ru.name, Elements: len(want)}
	switch {
	case len(got) != len(want):
		l.Why = fmt.Sprintf("%d elements, golden has %d", len(got), len(want))
		l.Different = len(want)
	default:
		l.Different = different(got, want)
		for i := range want {
			if d := math.Abs(float64(got[i]) - float64(want[i])); d > l.MaxDiff && !math.IsInf(d, 0) {
				l.MaxDiff = d
			}
		}
		l.Why = ru.judge(got, want, max(width, 1))
	}
	l.OK = l.Why == ""
	r.Lines = append(r.Lines, l)
}

// Print writes one row per section and rule, then every broken rule.
func (r *Report) Print(w io.Writer) {
	fmt.Fprintf(w, "%s, golden %s, backend %s\n", r.Model, r.Golden, r.Backend)
	type key struct{ section, level, rule string }
	type sum struct{ tensors, elements, different, broken int }
	var order []key
	sums := map[key]*sum{}
	for _, l := range r.Lines {
		k := key{l.Section, l.Level, l.Rule}
		if sums[k] == nil {
			sums[k] = &sum{}
			order = append(order, k)
		}
		s := sums[k]
		s.tensors, s.elements, s.different = s.tensors+1, s.elements+l.Elements, s.different+l.Different
		if !l.OK {
			s.broken++
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "section\tlevel\trule\ttensors\telements\tdifferent\tbroken")
	for _, k := range order {
		s := sums[k]
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\t%d\n", k.section, k.level, k.rule, s.tensors, s.elements, s.different, s.broken)
	}
	_ = t.Flush()
	for _, part := range []string{"drafts", "vision"} {
		if n := r.NotBuilt[part]; n > 0 {
			fmt.Fprintf(w, "%s: %d golden tensors, not built\n", part, n)
		}
	}
	for _, l := range r.Lines {
		if !l.OK {
			fmt.Fprintf(w, "BROKEN %s: %s (%s %s): %s\n", l.Section, l.Tensor, l.Level, l.Rule, l.Why)
		}
	}
	for _, n := range r.Unread {
		fmt.Fprintf(w, "UNREAD golden tensor %s\n", n)
	}
	if r.OK() {
		fmt.Fprintln(w, "PASS")
	} else {
		fmt.Fprintln(w, "FAIL")
	}
}
