package bench

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"cedrun/runtime/plan"
)

// simulated warns of figures of a simulated device.
const simulated = "THE DEVICE IS SIMULATED: no time, rate or share below says anything"

// Print writes the report for people, in 80 columns: the machine, a line per row, and for each row where its time went.
// With wide set it has all columns, and the kernels of each part.
func (r *Report) Print(w io.Writer, wide bool) error {
	m := &r.Machine
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%s\nbackend %s (%s), %d threads, chunks of %d, median of %d\n", m.Model, m.Backend, m.ISA, m.Threads, m.Chunk, m.Repeat)
	where := "this machine"
	if m.Device != "" {
		where = m.Device
	}
	if m.Simulated {
		fmt.Fprintln(w, simulated)
	}
	fmt.Fprintf(w, "%s: reads %.1f GB/s, multiplies %.0f GFLOP/s in BF16, %.0f in F32\n", where, m.Read, m.BF16, m.F32)
	if m.NotQuiet {
		fmt.Fprintf(w, "the machine was not quiet: these rates vary by %.0f %%, so figures are unreliable\n", 100*m.Spread)
	}
	if r.Interrupted {
		fmt.Fprintln(w, "interrupted: medians of the runs that were finished")
	}
	fmt.Fprintln(w)
	fmt.Fprint(t, "phase\tmode\tcontext\tbatch\ttok/s\tms\tof limit\tof read\tof BF16\t")
	if wide {
		fmt.Fprint(t, "worst\tbest\truns\tGB\tGFLOP\taccounted\trss MB\tmapped MB\t")
	}
	fmt.Fprintln(t)
	for i := range r.Rows {
		x := &r.Rows[i]
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t", x.Phase, x.Mode, x.Context, x.Batch, short(x.Rate), short(1e3*x.Seconds),
			percent(x.OfLimit), percent(x.OfBandwidth), percent(x.OfBF16))
		if wide {
			fmt.Fprintf(t, "%s\t%s\t%d\t%.3g\t%.3g\t%s\t%d\t%d\t", short(x.Slowest), short(x.Fastest), x.Runs, x.Bytes/1e9, x.FLOPs/1e9, percent(x.Accounted), x.Anonymous/1e6, x.File/1e6)
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if m.Growth > 0 {
		fmt.Fprintf(w, "memory grows by %.0f bytes a token, %d of them cache\n", m.Growth, m.Planned)
	}
	for i := range r.Rows {
		r.Rows[i].print(w, m, wide)
	}
	return nil
}

// print writes where a row's time went.
func (r *Row) print(w io.Writer, m *Machine, wide bool) {
	name, work := "%-24s", ""
	if wide {
		name, work = "%-30s", fmt.Sprintf(" %10s %10s", "MB", "MFLOP")
	}
	note := ""
	if r.Graphs > 0 {
		note = ", replayed as graphs"
		if r.Graphs < 1 {
			note += " (" + percent(r.Graphs) + ")"
		}
	}
	if m.Simulated {
		note += " (simulated)"
	}
	fmt.Fprintf(w, "\n%s: %s ms%s\n", r.title(), short(1e3*r.Seconds), note)
	if r.Traced > 0 {
		fmt.Fprintf(w, "kernel by kernel, with events of the device around each: %s ms\n", short(1e3*r.Traced))
	}
	fmt.Fprintf(w, name+" %10s %8s%s %9s %9s  %s\n", "", "ms", "share", work, "limit ms", "of limit", "bound")
	for _, p := range r.Parts {
		fmt.Fprintf(w, name+" %10.3f %8s", p.Name, 1e3*p.Seconds, percent(p.Share))
		if p.Work != (plan.Work{}) {
			if wide {
				fmt.Fprintf(w, " %10.4g %10.4g", p.Bytes/1e6, p.FLOPs/1e6)
			}
			fmt.Fprintf(w, " %9.3f %9s  %s", 1e3*p.Limit, percent(p.OfLimit), p.Bound)
		}
		fmt.Fprintln(w)
		for _, k := range p.Kernels {
			if wide {
				fmt.Fprintf(w, "  %-28s %10.3f %8s\n", fmt.Sprintf("%s x %.4g", k.Name, k.Calls), 1e3*k.Seconds, percent(k.Share))
			}
		}
	}
}

// short writes a positive number with four digits, or all that are before the point.
func short(x float64) string {
	digits := 3
	for n := 10.; n <= x && digits > 0; n *= 10 {
		digits--
	}
	return strconv.FormatFloat(x, 'f', digits, 64)
}

func (r *Row) title() string {
	if r.Phase == "prefill" {
		return fmt.Sprintf("prefill of %d tokens (%s)", r.Context, r.Mode)
	}
	return fmt.Sprintf("decode step of %d after %d tokens", r.Batch, r.Context)
}

func percent(x float64) string { return strconv.FormatFloat(100*x, 'f', 1, 64) + " %" }

// CSV writes a line per row, part empty, and one per part of it.
func (r *Report) CSV(w io.Writer) error {
	c := csv.NewWriter(w)
	g := func(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }
	whole := func(x float64) string { return strconv.FormatFloat(x, 'f', 0, 64) }
	lines := [][]string{{"phase", "mode", "context", "batch", "part", "tok_s", "tok_s_worst", "tok_s_best", "runs", "seconds", "share", "bytes", "flops", "limit_seconds", "fraction_of_limit",
		"fraction_of_bandwidth", "fraction_of_bf16", "accounted", "rss_anonymous", "rss_file", "read_gbps", "bf16_gflops", "f32_gflops", "probe_spread", "not_quiet", "interrupted", "device", "simulated", "traced_seconds"}}
	for i := range r.Rows {
		x := &r.Rows[i]
		key := []string{x.Phase, x.Mode, strconv.Itoa(x.Context), strconv.Itoa(x.Batch)}
		rates := []string{g(r.Machine.Read), g(r.Machine.BF16), g(r.Machine.F32), g(r.Machine.Spread), strconv.FormatBool(r.Machine.NotQuiet), strconv.FormatBool(r.Interrupted), r.Machine.Device, strconv.FormatBool(r.Machine.Simulated), g(x.Traced)}
		add := func(cells ...string) {
			lines = append(lines, append(append(append([]string{}, key...), cells...), rates...))
		}
		add("", g(x.Rate), g(x.Slowest), g(x.Fastest), strconv.Itoa(x.Runs), g(x.Seconds), "1", whole(x.Bytes), whole(x.FLOPs), g(x.Limit), g(x.OfLimit), g(x.OfBandwidth), g(x.OfBF16), g(x.Accounted), strconv.FormatInt(x.Anonymous, 10), strconv.FormatInt(x.File, 10))
		for _, p := range x.Parts {
			add(p.Name, "", "", "", "", g(p.Seconds), g(p.Share), whole(p.Bytes), whole(p.FLOPs), g(p.Limit), g(p.OfLimit), "", "", "", "", "")
		}
	}
	if err := c.WriteAll(lines); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	return nil
}
