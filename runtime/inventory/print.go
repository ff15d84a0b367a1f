package inventory

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Print writes the report for people.
func (r *Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(cells ...string) { fmt.Fprintln(t, strings.Join(cells, "\t")) }
	g := &r.Geometry
	row(r.Model)
	row(fmt.Sprintf("%d layers of %d × %d streams, %d heads of %d, %d experts of which a token uses %d, vocabulary %d, window %d, context up to %d",
		g.Layers, g.Hidden, g.Streams, g.Heads, g.HeadDim, g.Experts, g.ExpertsPerToken, g.Vocabulary, g.Window, g.MaxContext))

	row("\nLAYERS", "RATIO", "MODE", "KV FROM", "KEYS FROM", "SELECTION", "ROPE", "EXTRAS")
	for i := 0; i < len(r.Schedule); {
		first := i
		cells := r.Schedule[i].cells()
		for i++; i < len(r.Schedule) && r.Schedule[i].cells() == cells; i++ {
		}
		name := strconv.Itoa(first)
		if i-1 > first {
			name += "-" + strconv.Itoa(i-1)
		}
		row(append([]string{name}, cells[:]...)...)
	}

	if r.drafts > 0 {
		cells := r.draft.cells()
		row(append([]string{fmt.Sprintf("mtp.0-%d", r.drafts-1)}, cells[:]...)...)
	}

	p := &r.Parameters
	t.Flush()
	row("\nPARAMETERS", "", "", "TENSORS", right("BYTES", 15))
	line := func(indent, name string, parameters int64, rest ...string) {
		row(append([]string{indent + name, right(digits(parameters), 15), short(parameters)}, rest...)...)
	}
	line("", "backbone", p.Backbone)
	for _, x := range p.Parts {
		indent := ""
		if x.backbone {
			indent = "  "
		}
		line(indent, x.Part, x.Parameters, right(digits(int64(x.Tensors)), 7), right(digits(x.Bytes), 15))
	}
	line("", "all", p.Total)

	t.Flush()
	row("\nFORMAT", right("BYTES", 15))
	total := int64(0)
	for _, f := range r.Formats {
		row(f.Format, right(digits(f.Bytes), 15))
		total += f.Bytes
	}
	row("all", right(digits(total), 15))

	t.Flush()
	a := &r.Active
	row("\nACTIVE PARAMETERS PER TOKEN")
	row("prefill", right(digits(a.Prefill), 15), short(a.Prefill), fmt.Sprintf("layers 0-%d", a.last-1))
	row("decode", right(digits(a.Decode), 15), short(a.Decode), fmt.Sprintf("%s in all layers + %s in the output head", short(a.Prefill+a.Decoder), short(a.Head)))

	t.Flush()
	row("\nSTATE OF A SEQUENCE, BYTES")
	row("per token", right(digits(int64(r.KV.BytesPerToken)), 15), fmt.Sprintf("%g rows of %d, with index keys of %d", r.KV.RowsPerToken, r.KV.MainRow, r.KV.IndexRow))
	s := &r.State
	row("constant", right(digits(s.Total), 15), fmt.Sprintf("%d window rings of %d × %d, %d open groups (%s), n-gram ids (%d)",
		s.rings[0], s.rings[1], s.rings[2], s.groups, digits(s.OpenGroups), s.LookBack))

	t.Flush()
	m := &r.Memory
	row("\nMEMORY FOR " + digits(int64(m.Context)) + " TOKENS, BYTES")
	row("KV cache", right(digits(m.KV), 15))
	row("constant state", right(digits(m.State), 15))
	row("dense weights", right(digits(m.Dense), 15))
	row("at least", right(digits(m.Least()), 15))
	row("routed experts", right(digits(m.Experts), 15), "read from disk on demand where memory is short")
	row("Engram tables", right(digits(m.Tables), 15), "rows are read on demand")

	t.Flush()
	row("\nSTORED")
	r.Stored.print(row)
	return t.Flush()
}

func (s *Stored) print(row func(cells ...string)) {
	if s == nil {
		row("no weights here: all of the above follows from the config")
		return
	}
	if s.Shards > 0 {
		row(fmt.Sprintf("%s tensors in %d shards, %s bytes", digits(int64(s.Tensors)), s.Shards, digits(s.Bytes)))
	}
	for _, f := range s.Formats {
		row(f.Format, right(digits(f.Bytes), 15))
	}
	for _, a := range s.Absent {
		row("without " + a)
	}
	if s.Fault != "" {
		row("faulty: " + s.Fault)
	}
}

// digits groups a number by thousands.
func digits(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func right(s string, width int) string { return fmt.Sprintf("%*s", width, s) }

// short writes 15468670064 as 15.47B.
func short(n int64) string {
	for _, u := range []struct {
		one  float64
		name string
	}{{1e9, "B"}, {1e6, "M"}, {1e3, "k"}} {
		if float64(n) >= u.one {
			return fmt.Sprintf("%.2f%s", float64(n)/u.one, u.name)
		}
	}
	return strconv.FormatInt(n, 10)
}
