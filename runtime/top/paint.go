package top

import (
	"fmt"
	"math"
	"strings"

	"charm.land/lipgloss/v2"
)

// paint writes text in colours, or not.
type paint struct{ color, ascii bool }

var (
	styleTitle  = lipgloss.NewStyle().Bold(true).Foreground(lipgloss.Cyan)
	styleDim    = lipgloss.NewStyle().Faint(true)
	styleGood   = lipgloss.NewStyle().Foreground(lipgloss.Green)
	styleWarn   = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
	styleBad    = lipgloss.NewStyle().Foreground(lipgloss.Red)
	styleChosen = lipgloss.NewStyle().Reverse(true)
)

func (p paint) as(s lipgloss.Style, text string) string {
	if !p.color || text == "" {
		return text
	}
	return s.Render(text)
}

func (p paint) title(text string) string { return p.as(styleTitle, text) }
func (p paint) dim(text string) string   { return p.as(styleDim, text) }
func (p paint) bad(text string) string   { return p.as(styleBad, text) }

// level colours a share of which much is full.
func (p paint) level(share float64, text string) string {
	switch {
	case share >= 0.9:
		return p.as(styleBad, text)
	case share >= 0.7:
		return p.as(styleWarn, text)
	}
	return p.as(styleGood, text)
}

// bar draws a share in cells.
func (p paint) bar(share float64, cells int) string {
	share = math.Max(0, math.Min(1, share))
	n := int(math.Round(share * float64(cells)))
	full, empty := "█", "░"
	if p.ascii {
		full, empty = "#", "-"
	}
	return p.level(share, strings.Repeat(full, n)) + p.dim(strings.Repeat(empty, cells-n))
}

// heat is one cell of the strip of hit rates: the higher the fuller.
func (p paint) heat(rate *float64) string {
	cells := []rune(" ▁▂▃▄▅▆▇█")
	if p.ascii {
		cells = []rune("0123456789")
	}
	if rate == nil {
		return p.dim(".")
	}
	// Steps get finer towards 1, where one miss in a hundred already shows: -log10 of the miss rate, 1 to 3 of it.
	i := len(cells) - 1
	if *rate < 1 {
		fine := *rate * 0.5
		if miss := 1 - *rate; miss < 0.5 {
			fine = 0.25 + 0.75*math.Min(1, (-math.Log10(miss)-math.Log10(2))/(3-math.Log10(2)))
		}
		i = min(int(fine*float64(len(cells)-1)), len(cells)-2)
	}
	cell := string(cells[max(i, 0)])
	if cell == " " {
		cell = "_"
	}
	switch {
	case *rate >= 0.99:
		return p.as(styleGood, cell)
	case *rate >= 0.9:
		return p.as(styleWarn, cell)
	}
	return p.as(styleBad, cell)
}

const none = "N/A"

// or formats a figure that may be missing.
func or[T any](v *T, format string) string {
	if v == nil {
		return none
	}
	return fmt.Sprintf(format, *v)
}

// percent of a share that may be missing.
func percent(v *float64) string {
	if v == nil {
		return none
	}
	return fmt.Sprintf("%.0f%%", 100**v)
}

// onOff is a mode that may be missing.
func onOff(v *bool) string {
	switch {
	case v == nil:
		return none
	case *v:
		return "On"
	}
	return "Off"
}

// short writes 15468700000 as 15.5 B and 8192 as 8192.
func short(n float64) string {
	for _, u := range []struct {
		one  float64
		name string
	}{{1e12, " T"}, {1e9, " B"}, {1e6, " M"}, {1e4, " k"}} {
		if n >= u.one {
			if u.one == 1e4 {
				u.one = 1e3
			}
			return fmt.Sprintf("%.3g%s", n/u.one, u.name)
		}
	}
	return fmt.Sprintf("%.0f", n)
}

// rate writes tokens per second with three digits.
func rate(v *float64) string {
	switch {
	case v == nil:
		return "-"
	case *v >= 99.95:
		return fmt.Sprintf("%.0f", *v)
	}
	return fmt.Sprintf("%.1f", *v)
}

func gib(n uint64) string { return fmt.Sprintf("%.1f", float64(n)/(1<<30)) }

// bytes writes memory as plans do, in GB and MB.
func bytes(n int64) string {
	if n >= 1e9 {
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	}
	return fmt.Sprintf("%.0f MB", float64(n)/1e6)
}

// bps writes bytes per second in the unit of links and disks.
func bps(v *float64) string {
	switch {
	case v == nil:
		return none
	case *v >= 1e9:
		return fmt.Sprintf("%.2f GB/s", *v/1e9)
	}
	return fmt.Sprintf("%.1f MB/s", *v/1e6)
}
