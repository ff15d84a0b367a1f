package doctor

import (
	"fmt"
	"io"
	"strings"
)

// Status is a line's verdict.
type Status string

// Verdicts.
const (
	OK      Status = "ok"
	Warning Status = "warning" // it works, but worse than it could
	Fault   Status = "fault"   // something will not work
)

// Line is a finding.
type Line struct {
	Group  string `json:"group"`
	Name   string `json:"name"`
	Status Status `json:"status"`
	Text   string `json:"text"`
	Do     string `json:"do,omitempty"` // about it
}

// Report holds what was found.
type Report struct {
	OK       bool   `json:"ok"` // no fault
	Warnings int    `json:"warnings"`
	Faults   int    `json:"faults"`
	Lines    []Line `json:"lines"`
}

// add appends a line.
func (r *Report) add(l Line) {
	switch l.Status {
	case Warning:
		r.Warnings++
	case Fault:
		r.Faults++
	}
	r.OK = r.Faults == 0
	r.Lines = append(r.Lines, l)
}

const (
	pageWidth = 80
	textAt    = 26 // column
)

// Print writes the report for people in 80 columns; mark, if not nil, colours a status.
func (r *Report) Print(w io.Writer, mark func(Status, string) string) error {
	if mark == nil {
		mark = func(_ Status, s string) string { return s }
	}
	var b strings.Builder
	group := ""
	for _, l := range r.Lines {
		if l.Group != group {
			if group != "" {
				b.WriteByte('\n')
			}
			group = l.Group
			b.WriteString(group + "\n")
		}
		lines := wrap(l.Text, pageWidth-textAt)
		fmt.Fprintf(&b, "  %s %-15s %s\n", mark(l.Status, fmt.Sprintf("%-7s", l.Status)), l.Name, lines[0])
		for _, s := range lines[1:] {
			fmt.Fprintf(&b, "%*s%s\n", textAt, "", s)
		}
		if l.Do != "" {
			for i, s := range wrap(l.Do, pageWidth-textAt-3) {
				fmt.Fprintf(&b, "%*s%s %s\n", textAt, "", [2]string{"->", "  "}[min(i, 1)], s)
			}
		}
	}
	fmt.Fprintf(&b, "\n%s\n", r.summary())
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) summary() string {
	count := func(n int, what string) string {
		if n == 1 {
			return "1 " + what
		}
		return fmt.Sprintf("%d %ss", n, what)
	}
	return fmt.Sprintf("%s, %s, %s", count(len(r.Lines), "check"), count(r.Warnings, "warning"), count(r.Faults, "fault"))
}

// wrap breaks a text at spaces into lines of at most width bytes, longer only where a word is. It has at least one line.
func wrap(text string, width int) (out []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			out = append(out, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(out, line)
}
