package checkpoint

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"cedrun/runtime/config"
)

// Count is a number of tensors and their bytes.
type Count struct {
	Tensors int
	Bytes   int64
}

func (n *Count) add(t *Tensor) { n.Tensors++; n.Bytes += t.Size }

// Report is the result of Check. Every stored tensor is in exactly one of ByRole, Ignored or a fault.
type Report struct {
	ByRole  [numRoles]Count // indexed by Role
	Ignored Count           // by Options.Ignore

	// Absent names features that the checkpoint leaves out although its config has them.
	Absent []string
}

// Total counts all stored tensors.
func (r *Report) Total() Count {
	n := r.Ignored
	for _, c := range r.ByRole {
		n.Tensors += c.Tensors
		n.Bytes += c.Bytes
	}
	return n
}

// String is one line: "96085 tensors, 510286023000 bytes: backbone 93406, engram 12, ...".
func (r *Report) String() string {
	n := r.Total()
	var parts []string
	for role, c := range r.ByRole {
		if c.Tensors > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", Role(role), c.Tensors))
		}
	}
	if r.Ignored.Tensors > 0 {
		parts = append(parts, fmt.Sprintf("ignored %d", r.Ignored.Tensors))
	}
	s := fmt.Sprintf("%d tensors, %d bytes: %s", n.Tensors, n.Bytes, strings.Join(parts, ", "))
	if len(r.Absent) > 0 {
		s += "; without " + strings.Join(r.Absent, ", ")
	}
	return s
}

// Check holds the stored tensors against Expected. The error lists how many tensors are missing,
// unexpected, of a wrong dtype or of a wrong shape, with the first names of each kind. Draft blocks or
// the vision tower may be absent as a whole, optional tensors one by one; Report.Absent says so.
func (c *Checkpoint) Check(cfg *config.Config) (*Report, error) {
	report := &Report{}
	known := make([]bool, len(c.tensors))
	var faults faults
	var missing [numRoles][]string
	var expected [numRoles]int
	bias := 0
	for _, s := range Expected(cfg) {
		expected[s.Role]++
		i, ok := c.byName[s.Name]
		if !ok {
			if s.Optional {
				bias++
			} else {
				missing[s.Role] = append(missing[s.Role], s.Name)
			}
			continue
		}
		t := &c.tensors[i]
		known[i] = true
		switch {
		case !s.Accepted.Has(t.DType):
			faults.tensor("of a wrong dtype", fmt.Sprintf("%s is %s, not %s", s.Name, t.DType, s.Accepted))
		case !slices.Equal(t.Shape, s.Shape):
			faults.tensor("of a wrong shape", fmt.Sprintf("%s is %v, not %v", s.Name, t.Shape, s.Shape))
		default:
			report.ByRole[s.Role].add(t)
		}
	}
	for role, names := range missing {
		role := Role(role)
		if report.ByRole[role].Tensors == 0 && (role == Draft || role == Vision) && len(names) > 0 {
			report.Absent = append(report.Absent, fmt.Sprintf("%s (all %d tensors)", role, expected[role]))
			continue
		}
		for _, name := range names {
			faults.tensor("missing", name)
		}
	}
	if bias > 0 && cfg.Vision != nil {
		report.Absent = append(report.Absent, fmt.Sprintf("image routing (%d tensors ffn.gate.bias_vl)", bias))
	}
	for i := range c.tensors {
		if known[i] {
			continue
		}
		t := &c.tensors[i]
		ignored, err := c.ignored(t.Name)
		if err != nil {
			return nil, err
		}
		if ignored {
			report.Ignored.add(t)
		} else {
			faults.tensor("unexpected", t.Name)
		}
	}
	if err := faults.err(); err != nil {
		return nil, fmt.Errorf("checkpoint %s does not fit its config: %w", c.dir, err)
	}
	return report, nil
}

func (c *Checkpoint) ignored(name string) (bool, error) {
	for _, pattern := range c.opts.Ignore {
		ok, err := path.Match(pattern, name)
		if err != nil {
			return false, fmt.Errorf("ignore pattern %q: %w", pattern, err)
		}
		if ok {
			return true, nil
		}
	}
	return false, nil
}
