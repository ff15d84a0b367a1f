package top

import (
	"fmt"
	"strings"
	"unicode"

	"charm.land/lipgloss/v2"
)

const (
	leastWidth = 80
	wideWidth  = 160 // from here on the model stands beside the machine
)

// Render draws a view. Lines end without spaces and fit the width.
func Render(v *View, s Screen) string {
	p, width := paint{s.Color, s.ASCII}, max(s.Width, leastWidth)
	lines := []string{p.header(v, s, width)}
	if s.Help {
		lines = append(lines, help...)
		return finish(lines, s, width)
	}
	if v.Snapshot != nil || len(v.Processes) > 0 {
		lines = append(lines, p.processes(v))
	}
	var body []string
	for detail := gpuFull; detail >= gpuLine; detail-- {
		machine := append(p.gpus(v.GPU, detail), p.host(v.Host)...)
		if width >= wideWidth {
			cut := lipgloss.NewStyle().MaxWidth(leastWidth)
			for i := range machine {
				machine[i] = cut.Render(machine[i])
			}
			left := lipgloss.NewStyle().Width(leastWidth + 2).Render(strings.Join(machine, "\n"))
			body = strings.Split(lipgloss.JoinHorizontal(lipgloss.Top, left, strings.Join(p.model(v, width-leastWidth-2), "\n")), "\n")
		} else {
			body = append(machine, p.model(v, width)...)
		}
		if s.Height == 0 || len(lines)+len(body) <= s.Height {
			break
		}
	}
	return finish(append(lines, body...), s, width)
}

// finish cuts lines to the width and the rows that the height has room for.
func finish(lines []string, s Screen, width int) string {
	if s.Height > 0 && len(lines) > s.Height {
		from := min(s.Skip, len(lines)-s.Height)
		lines = append(lines[:1:1], lines[1+from:s.Height+from]...)
	}
	if s.Width > 0 {
		width = s.Width
	}
	cut := lipgloss.NewStyle().MaxWidth(width)
	for i, line := range lines {
		if lipgloss.Width(line) > width {
			line = cut.Render(line)
		}
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

func (p paint) header(v *View, s Screen, width int) string {
	left := "cedrun top   " + v.At.Format("2006-01-02 15:04:05")
	if s.Every > 0 {
		left += fmt.Sprintf("   every %v", s.Every)
	}
	if s.Paused {
		left += "   " + "PAUSED"
	}
	right := ""
	if s.Keys {
		right = "q quit  p pause  ? help"
	}
	gap := strings.Repeat(" ", max(1, width-len(left)-len(right)))
	return p.title(left[:10]) + left[10:] + gap + p.dim(right)
}

// processes lists those that publish, the one that is looked at first.
func (p paint) processes(v *View) string {
	parts := []string{p.title("RUNS") + "   "}
	if v.Snapshot != nil {
		x := &v.Snapshot.Process
		parts = append(parts, p.as(styleChosen, strings.TrimRight(fmt.Sprintf("%d %s %s", x.PID, x.Command, x.Address), " ")))
	}
	others := []string{}
	for _, e := range v.Processes {
		if v.Snapshot == nil || v.Snapshot.Process.PID != e.PID {
			others = append(others, fmt.Sprint(e.PID))
		}
	}
	if len(others) > 0 && v.Snapshot != nil {
		parts = append(parts, "  also")
	}
	return strings.Join(append(parts, others...), " ")
}

var help = []string{
	"",
	"  q, Esc, Ctrl-C     quit",
	"  Tab, right, left   the next or the last process that publishes",
	"  down, up           scroll what does not fit",
	"  p, space           pause and go on",
	"  ?                  this page and back",
	"",
	"  tok/s      tokens per second of the time in steps that had any of the phase",
	"  of limit   least time of the work on this machine, as measured, over its time",
	"  depth      mean position of the sequences that decode",
	"  prefix     of all requests and prompt tokens since the start",
	"  replayed   tokens found in the cache that ran again to fill the windows",
	"  experts    chosen ones that were in memory; . is a layer that nothing ran",
	"  active     GPM counters of Hopper and later, shares of the peak",
	"  N/A        not supported, or not measured yet",
}

// wrap breaks a sentence at the least width.
func wrap(text, indent string) []string {
	var out []string
	for len([]rune(text)) > leastWidth {
		r := []rune(text)
		at := leastWidth
		for at > len(indent)+1 && r[at] != ' ' {
			at--
		}
		if at <= len(indent)+1 {
			at = leastWidth
		}
		out = append(out, strings.TrimRight(string(r[:at]), " "))
		text = indent + strings.TrimLeft(string(r[at:]), " ")
	}
	return append(out, text)
}

// clean keeps names from speaking to the terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}
