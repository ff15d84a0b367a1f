package bench

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"cedrun/runtime/plan"
)

// Print writes the report for people: the machine, a line per row, and for each row where its time went, by kernel too
// if kernels is set.
func (r *Report) Print(w io.Writer, kernels bool) error {
	m := &r.Machine
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(format string, args ...any) { fmt.Fprintf(t, format+"\t\n", args...) }
	fmt.Fprintf(w, "%s, backend %s (%s), %d threads, chunks of %d, median of %d\n", m.Model, m.Backend, m.ISA, m.Threads, m.Chunk, m.Repeat)
	fmt.Fprintf(w, "this machine: reads %.1f GB/s, multiplies %.0f GFLOP/s in BF16, %.0f GFLOP/s in F32\n\n", m.Read, m.BF16, m.F32)
	line("phase\tmode\tcontext\tbatch\ttok/s\tworst\tbest\tms\tGB\tGFLOP\tof limit\tof bandwidth\tof BF16\taccounted\trss MB\tmapped MB")
	for i := range r.Rows {
		x := &r.Rows[i]
		line("%s\t%s\t%d\t%d\t%.4g\t%.4g\t%.4g\t%.4g\t%.3g\t%.3g\t%s\t%s\t%s\t%s\t%d\t%d", x.Phase, x.Mode, x.Context, x.Batch, x.Rate, x.Slowest, x.Fastest,
			1e3*x.Seconds, x.Bytes/1e9, x.FLOPs/1e9, percent(x.OfLimit), percent(x.OfBandwidth), percent(x.OfBF16), percent(x.Accounted), x.Anonymous/1e6, x.File/1e6)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if m.Growth > 0 {
		fmt.Fprintf(w, "memory grows by %.0f bytes a token, %d of them cache\n", m.Growth, m.Planned)
	}
	for i := range r.Rows {
		r.Rows[i].print(w, kernels)
	}
	return nil
}

// print writes where a row's time went.
func (r *Row) print(w io.Writer, kernels bool) {
	fmt.Fprintf(w, "\n%s: %.4g ms\n%-30s %10s %8s %10s %10s %9s %9s  %s\n", r.title(), 1e3*r.Seconds, "", "ms", "share", "MB", "MFLOP", "limit ms", "of limit", "bound")
	for _, p := range r.Parts {
		fmt.Fprintf(w, "%-30s %10.3f %8s", p.Name, 1e3*p.Seconds, percent(p.Share))
		if p.Work != (plan.Work{}) {
			fmt.Fprintf(w, " %10.4g %10.4g %9.3f %9s  %s", p.Bytes/1e6, p.FLOPs/1e6, 1e3*p.Limit, percent(p.OfLimit), p.Bound)
		}
		fmt.Fprintln(w)
		for _, k := range p.Kernels {
			if kernels {
				fmt.Fprintf(w, "  %-28s %10.3f %8s\n", fmt.Sprintf("%s x %.4g", k.Name, k.Calls), 1e3*k.Seconds, percent(k.Share))
			}
		}
	}
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
	lines := [][]string{{"phase", "mode", "context", "batch", "part", "tok_s", "seconds", "share", "bytes", "flops", "limit_seconds", "fraction_of_limit",
		"fraction_of_bandwidth", "fraction_of_bf16", "rss_anonymous", "rss_file", "read_gbps", "bf16_gflops", "f32_gflops"}}
	for i := range r.Rows {
		x := &r.Rows[i]
		key := []string{x.Phase, x.Mode, strconv.Itoa(x.Context), strconv.Itoa(x.Batch)}
		rates := []string{g(r.Machine.Read), g(r.Machine.BF16), g(r.Machine.F32)}
		add := func(cells ...string) {
			lines = append(lines, append(append(append([]string{}, key...), cells...), rates...))
		}
		add("", g(x.Rate), g(x.Seconds), "1", g(x.Bytes), g(x.FLOPs), g(x.Limit), g(x.OfLimit), g(x.OfBandwidth), g(x.OfBF16), strconv.FormatInt(x.Anonymous, 10), strconv.FormatInt(x.File, 10))
		for _, p := range x.Parts {
			add(p.Name, "", g(p.Seconds), g(p.Share), g(p.Bytes), g(p.FLOPs), g(p.Limit), g(p.OfLimit), "", "", "", "")
		}
	}
	if err := c.WriteAll(lines); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	return nil
}
