package profile

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"cedrun/runtime/plan"
)

// quietSpread is how far measurements of a rate of a quiet machine are apart at most.
const quietSpread = 0.3

// small is the share of a phase below which kernels are shown as one.
const small = 0.001

// simulated warns of figures of a simulated device.
const simulated = "THE DEVICE IS SIMULATED: no time, rate or share here says anything"

// Print writes the report for people, in 80 columns unless work is known: a table of kernels and one of layers for each
// phase. With all set, the rows of every layer follow.
func (r *Report) Print(w io.Writer, all bool) error {
	p := &page{w: w}
	p.line("%s", r.Model)
	mode := ""
	if r.Mode != "" {
		mode = ", " + r.Mode + " prefill"
	}
	p.line("backend %s (%s), %d threads, chunks of %d%s", r.Backend, r.ISA, r.Threads, r.Chunk, mode)
	where := "this machine"
	if r.Device != "" {
		where = r.Device
		p.line("kernel by kernel, timed by events of the device: %s", r.Device)
	}
	if r.Simulated {
		p.line(simulated)
	}
	if l := r.Limits; l != nil {
		p.line(where+": reads %.1f GB/s, multiplies %.0f GFLOP/s in BF16, %.0f in F32", l.Read, l.BF16, l.F32)
		if l.Spread > quietSpread {
			p.line("the machine was not quiet: these rates vary by %.0f %%, so shares of limits are unreliable", 100*l.Spread)
		}
	}
	if r.PID != 0 {
		p.line("attached to process %d for %s; outside steps %s", r.PID, ms(r.Recorded), ms(r.Outside))
	} else {
		p.line("recorded %s; outside steps %s", ms(r.Recorded), ms(r.Outside))
	}
	if u := r.Used; u.Wall > 0 {
		p.line("processors busy %.0f %% of %d threads; %d pages read from disk", 100*u.CPU.Seconds()/u.Wall.Seconds()/float64(max(r.Threads, 1)), r.Threads, u.Faults)
	}
	if r.Dropped > 0 {
		p.line("%d events found no room in the trace: their time is in host rows or unaccounted", r.Dropped)
	}
	if r.LeftOut > 0 {
		p.line("the recording was full: the last %d steps are not in it", r.LeftOut)
	}
	if len(r.Phases) == 0 {
		p.line("no step was recorded")
	}
	for i := range r.Phases {
		p.phase(&r.Phases[i], r.Limits != nil, all, r.Simulated)
	}
	return p.err
}

// page writes lines until the first error.
type page struct {
	w   io.Writer
	err error
}

func (p *page) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintln(p.w, strings.TrimRight(fmt.Sprintf(format, args...), " "))
	}
}

func (p *page) phase(x *Phase, limits, all, simulated bool) {
	p.line("")
	steps := "1 step"
	if x.Steps != 1 {
		steps = fmt.Sprintf("%d steps of %s", x.Steps, ms(x.Took/time.Duration(max(x.Steps, 1))))
	}
	if simulated {
		steps += " (simulated)"
	}
	p.line("%s: %d tokens in %s, %s tok/s, %s", strings.ToUpper(x.Name), x.Tokens, ms(x.Took), rate(x.Rate), steps)
	if u := x.Plain; u != nil {
		p.line("untraced: %s, %d of %d steps replayed as graphs", ms(u.Took), u.Graphs, u.Steps)
	}
	p.head("", limits)
	few := Row{Part: "small kernels"}
	for _, r := range x.Kernels() {
		switch {
		case r.Kernel == Host || partOf[r.Part] >= plan.PartScheduler: // the last ones
			if few.Calls > 0 {
				p.row("", &few, limits)
				few.Calls = 0
			}
			p.row("", &r, limits)
		case r.Share < small && !all:
			few.Calls += r.Calls
			few.Took += r.Took
			few.Share += r.Share
		default:
			p.row("", &r, limits)
		}
	}
	if few.Calls > 0 {
		p.row("", &few, limits)
	}
	p.rest(x)
	p.layers(x)
	if !all {
		return
	}
	p.line("")
	p.head("LAYER ", limits)
	for i := range x.Rows {
		r := &x.Rows[i]
		p.row(fmt.Sprintf("%5s ", layerName(r.Layer)), r, limits)
	}
}

func (p *page) head(before string, limits bool) {
	work := ""
	if limits {
		work = fmt.Sprintf(" %9s %9s %7s %8s %8s  %s", "MB", "MFLOP", "GB/S", "GFLOP/S", "OF LIMIT", "BOUND")
	}
	p.line("%s%-21s %-13s %7s %10s %8s%s", before, "PART", "KERNEL", "CALLS", "MS", "SHARE", work)
}

func (p *page) row(before string, r *Row, limits bool) {
	calls, work := "", ""
	if r.Calls > 0 {
		calls = strconv.Itoa(r.Calls)
	}
	if s := r.Took.Seconds(); limits && r.By != "" && s > 0 {
		work = fmt.Sprintf(" %9.4g %9.4g %7.2f %8.1f %8s  %s", r.Bytes/1e6, r.FLOPs/1e6, r.Bytes/1e9/s, r.FLOPs/1e9/s, percent(r.OfLimit), r.By)
	}
	p.line("%s%-21s %-13s %7s %10.3f %8s%s", before, r.Part, r.Kernel, calls, 1e3*r.Took.Seconds(), percent(r.Share), work)
}

// rest closes a table: what no row has, and the sum.
func (p *page) rest(x *Phase) {
	p.line("%-21s %-13s %7s %10.3f %8s", "unaccounted", "", "", 1e3*x.Unaccounted.Seconds(), percent(1-x.Accounted))
	p.line("%-21s %-13s %7s %10.3f %8s", "steps", "", "", 1e3*x.Took.Seconds(), percent(1))
}

// columns of the table of layers.
var columns = []struct {
	head string
	part plan.Part
}{
	{"ENGRAM", plan.PartEngram}, {"MHC", plan.PartMixing}, {"PROJ", plan.PartProjections}, {"COMPR", plan.PartCompressor},
	{"INDEX", plan.PartIndexer}, {"CORE", plan.PartAttention}, {"ROUTER", plan.PartRouter}, {"EXPERT", plan.PartExperts},
}

// layers writes which layers, and what in them, take the phase's time, in percent of it.
func (p *page) layers(x *Phase) {
	var head strings.Builder
	for _, c := range columns {
		fmt.Fprintf(&head, " %6s", c.head)
	}
	p.line("")
	p.line("layers, and their parts in %% of the steps")
	p.line("%5s %9s%s %7s", "LAYER", "MS", head.String(), "SHARE")
	for _, l := range x.Layers() {
		if l.Layer < 0 {
			continue
		}
		var cells strings.Builder
		for _, c := range columns {
			if t := l.Parts[c.part]; t > 0 {
				fmt.Fprintf(&cells, " %6.2f", 100*t.Seconds()/x.Took.Seconds())
			} else {
				fmt.Fprintf(&cells, " %6s", "")
			}
		}
		p.line("%5d %9.3f%s %5.2f %%", l.Layer, 1e3*l.Took.Seconds(), cells.String(), 100*l.Took.Seconds()/x.Took.Seconds())
	}
}

func layerName(l int) string {
	if l < 0 {
		return "-"
	}
	return strconv.Itoa(l)
}

func ms(d time.Duration) string {
	s := d.Seconds()
	switch {
	case s >= 10:
		return fmt.Sprintf("%.1f s", s)
	case s >= 1:
		return fmt.Sprintf("%.3f s", s)
	case s >= 0.01:
		return fmt.Sprintf("%.1f ms", 1e3*s)
	}
	return fmt.Sprintf("%.3f ms", 1e3*s)
}

// rate writes tokens a second in four digits, or all before the point.
func rate(x float64) string {
	if x >= 1000 {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'g', 4, 64)
}

func percent(x float64) string { return strconv.FormatFloat(100*x, 'f', 1, 64) + " %" }
