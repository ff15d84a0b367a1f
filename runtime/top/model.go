package top

import (
	"fmt"
	"strings"

	"cedrun/runtime/telemetry"
)

// model draws the pane of the model that is looked at.
func (p paint) model(v *View, width int) []string {
	s := v.Snapshot
	if s == nil {
		note := v.Note
		if note == "" {
			note = "no cedrun serves or generates here: this is the machine alone"
		}
		out := wrap("MODEL   "+note, "        ")
		out[0] = p.title("MODEL") + out[0][5:]
		return out
	}
	m := s.Model
	if m == nil {
		return []string{p.title("MODEL") + "   it is being loaded"}
	}
	about := fmt.Sprintf("   %s, %d threads, %d layers", m.Backend, m.Threads, m.Layers)
	if byCPU := m.Experts != nil && m.Experts.ByCPU; m.Backend == "cuda" && !byCPU {
		about = fmt.Sprintf("   cuda, %d layers", m.Layers)
	} else if byCPU {
		about = fmt.Sprintf("   %s and CPU, %d threads, %d layers", m.Backend, m.Threads, m.Layers)
	}
	if x := v.Rates.Seconds; x > 0 && x == s.At.Sub(s.Process.Started).Seconds() { // there is no earlier view of it
		about += "   rates since its start"
	}
	out := []string{p.title("MODEL") + "   " + tail(m.Name, width-8-len(about)) + about}
	out = append(out, p.dim("               tok/s  parameters/token   of limit        tokens        steps"))
	r := &v.Rates
	for _, x := range []struct {
		name        string
		rate, share *float64
		phase       telemetry.Phase
	}{{"prefill", r.Prefill, r.PrefillShare, m.Prefill}, {"decode", r.Decode, r.DecodeShare, m.Decode}} {
		active := none
		if x.phase.Active > 0 {
			active = short(float64(x.phase.Active))
		}
		share := "-"
		if m.Limit == nil {
			share = none
		} else if x.share != nil {
			share = percent(x.share)
		}
		out = append(out, fmt.Sprintf("%-8s %11s %17s %10s %13d %12d", x.name, rate(x.rate), active, share, x.phase.Tokens, x.phase.Steps))
	}
	out = append(out, p.requests(m, v))
	out = append(out, p.caches(m)...)
	out = append(out, p.reads(m, r))
	if g := m.Graphs; g != nil {
		line := fmt.Sprintf("graphs   %d batch sizes captured, %s of decode steps replayed", g.Captured, ratio(g.Replayed, g.Replayed+g.Plain))
		if g.Failed > 0 {
			line += fmt.Sprintf(", %d refused", g.Failed)
		}
		out = append(out, line)
	}
	return append(out, p.experts(m, r, width)...)
}

func (p paint) requests(m *telemetry.Model, v *View) string {
	line := fmt.Sprintf("batch    %d at depth %d   running %d of %d   queue %d", m.Batch, m.Depth, m.Running, m.Slots, m.Waiting)
	if v.Process != nil {
		line += fmt.Sprintf("   %s CPUs   %s GiB", or(v.Process.CPU, "%.1f"), gib(v.Process.Resident))
	}
	return line
}

// caches draws the tiers of the KV cache and what prompts found there.
func (p paint) caches(m *telemetry.Model) (out []string) {
	if len(m.KV) == 0 {
		out = append(out, "KV       "+none)
	}
	for _, t := range m.KV {
		share := 0.
		what := fmt.Sprintf("%d of %d pages of %d, %d cached", t.Used, t.Pages, t.Tokens, t.Cached)
		switch {
		case t.Pages > 0:
			share = float64(t.Used) / float64(t.Pages)
		case t.Most > 0:
			share = float64(t.Bytes) / float64(t.Most)
		}
		if t.Pages == 0 {
			what = fmt.Sprintf("%d, %s of %s", t.Used, bytes(t.Bytes), bytes(t.Most))
			if t.Tokens > 0 {
				what = fmt.Sprintf("%d pages, %s of %s", t.Used, bytes(t.Bytes), bytes(t.Most))
			}
		}
		line := fmt.Sprintf("KV       %-9.9s [%s] %s", t.Name, p.bar(share, barCells), what)
		if t.State != "" {
			line += "   " + t.State
		}
		out = append(out, line)
	}
	x := m.Prefix
	if x == nil {
		return append(out, "prefix   "+none)
	}
	return append(out, fmt.Sprintf("prefix   hit by %s of requests, %s of tokens; replayed %s, from disk %s", ratio(x.Hits, x.Requests), ratio(x.Found, x.Prompt), short(float64(x.Replayed)), short(float64(x.Loaded))))
}

func ratio(n, of uint64) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*float64(n)/float64(of))
}

// reads draws what goes through memory.
func (p paint) reads(m *telemetry.Model, r *telemetry.Rates) string {
	rows := none
	if m.Engram != nil {
		rows = "-"
		if r.EngramRows != nil {
			rows = short(*r.EngramRows)
		}
	}
	read := none
	if l := m.Limit; l != nil {
		read = fmt.Sprintf("- of %.1f GB/s", l.Read/1e9)
		if r.Read != nil {
			read = fmt.Sprintf("%.1f of %.1f GB/s", *r.Read/1e9, l.Read/1e9)
		}
	}
	return fmt.Sprintf("Engram   %s rows/s   decode reads %s", rows, read)
}

// experts draws the hit rate of the experts of every layer as a strip.
func (p paint) experts(m *telemetry.Model, r *telemetry.Rates, width int) []string {
	if m.Experts == nil {
		return []string{"experts  hit rate " + none + ": the system does not tell what is in memory"}
	}
	var out []string
	switch x := m.Experts; {
	case x.ByCPU:
		out = append(out, fmt.Sprintf("experts  %d of %d on the GPU, the CPU computes the others", x.OnDevice, x.Count))
	case x.Count > 0:
		out = append(out, fmt.Sprintf("experts  %d of %d on the GPU, the others in host memory", x.OnDevice, x.Count))
	}
	rates := r.Experts
	sum, n, least, at := 0., 0, 2., -1
	for l, h := range rates {
		if h == nil {
			continue
		}
		if sum, n = sum+*h, n+1; *h < least {
			least, at = *h, l
		}
	}
	head := "experts  hit rate by layer: -"
	if n > 0 {
		head = fmt.Sprintf("experts  hit rate by layer: mean %.1f%%, least %.1f%% in layer %d", 100*sum/float64(n), 100*least, at)
	}
	out = append(out, head)
	const left = "         "
	for begin, cells := 0, width-len(left); begin < len(rates); begin += cells {
		end := min(begin+cells, len(rates))
		var strip, scale strings.Builder
		for l := begin; l < end; l++ {
			strip.WriteString(p.heat(rates[l]))
			if l%10 == 0 || scale.Len() > l-begin {
				if scale.Len() == l-begin {
					fmt.Fprintf(&scale, "%d", l)
				}
				continue
			}
			scale.WriteByte(' ')
		}
		out = append(out, left+strip.String(), p.dim(left+strings.TrimRight(scale.String(), " ")))
	}
	return out
}

// tail is the end of a name that is too long, where directories differ.
func tail(name string, most int) string {
	r := []rune(name)
	if len(r) <= most {
		return name
	}
	return "..." + string(r[len(r)-most+3:])
}
