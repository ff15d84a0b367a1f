package top

import (
	"fmt"
	"strings"

	"cedrun/runtime/host"
)

const barCells = 16

// host draws processors, memory and disks.
func (p paint) host(r host.Reading) (out []string) {
	if c := r.CPU; c != nil {
		busy := fmt.Sprintf("%4s", percent(c.Busy))
		bar := p.dim(strings.Repeat(" ", barCells))
		if c.Busy != nil {
			bar = p.bar(*c.Busy, barCells)
		}
		out = append(out, fmt.Sprintf("%s     %s [%s] of %d  wait %s  steal %s  load %.2f  %s MHz", p.title("CPU"), busy, bar, c.Count,
			percent(c.Wait), percent(c.Steal), c.Load, or(c.Clocks, "%.0f")))
	} else {
		out = append(out, p.title("CPU")+"     "+none)
	}
	if m := r.Memory; m != nil {
		used := float64(m.Total-min(m.Available, m.Total)) / float64(m.Total)
		out = append(out, fmt.Sprintf("%s  %3.0f%% [%s] %s / %s GiB   files %s   swap %s / %s", p.title("Memory"), 100*used, p.bar(used, barCells),
			gib(m.Total-min(m.Available, m.Total)), gib(m.Total), gib(m.Cached), gib(m.SwapTotal-min(m.SwapFree, m.SwapTotal)), gib(m.SwapTotal)))
	} else {
		out = append(out, p.title("Memory")+"  "+none)
	}
	if len(r.Disks) == 0 {
		return append(out, p.title("Disk")+"    "+none)
	}
	for _, d := range r.Disks {
		out = append(out, fmt.Sprintf("%s    %3.0f%% [%s] %-12.12s read %-10s write %s", p.title("Disk"), 100*d.Busy, p.bar(d.Busy, barCells), clean(d.Name), bps(&d.Read), bps(&d.Write)))
	}
	return out
}
