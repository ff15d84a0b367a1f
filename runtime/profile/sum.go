package profile

import (
	"cmp"
	"slices"
	"time"

	"cedrun/runtime/plan"
)

// Kernels sums the rows of a phase over its layers: by part and kernel, the longest first; then the host's rows, that
// between the model's kernels as one.
func (p *Phase) Kernels() []Row {
	at := map[site]*Row{}
	var out, host []*Row
	for i := range p.Rows {
		x := &p.Rows[i]
		key, list := site{-1, x.Part, x.Kernel}, &out
		if part := partOf[x.Part]; part >= plan.PartScheduler {
			list = &host
		} else if x.Kernel == Host {
			key.part, list = "between kernels", &host
		}
		r := at[key]
		if r == nil {
			r = &Row{Layer: -1, Part: key.part, Kernel: key.kernel}
			at[key] = r
			*list = append(*list, r)
		}
		r.Calls += x.Calls
		r.Took += x.Took
		r.Share += x.Share
		r.Bytes += x.Bytes
		r.FLOPs += x.FLOPs
		r.Limit += x.Limit
		if x.By != "" {
			r.By = x.By
		}
	}
	longest := func(a, b *Row) int {
		return cmp.Or(cmp.Compare(b.Took, a.Took), cmp.Compare(a.Part, b.Part), cmp.Compare(a.Kernel, b.Kernel))
	}
	slices.SortFunc(out, longest)
	slices.SortFunc(host, longest)
	var rows []Row
	for _, r := range slices.Concat(out, host) {
		if r.Took > 0 && r.Limit > 0 {
			r.OfLimit = r.Limit / r.Took.Seconds()
		}
		rows = append(rows, *r)
	}
	return rows
}

// LayerTime is a layer's share of a phase.
type LayerTime struct {
	Layer int // -1: outside layers
	Took  time.Duration
	Parts map[plan.Part]time.Duration // kernels and the host between them
}

// Layers sums the rows of a phase by layer, what is outside of layers last.
func (p *Phase) Layers() []LayerTime {
	var out []LayerTime
	at := map[int]int{}
	for i := range p.Rows {
		x := &p.Rows[i]
		n, ok := at[x.Layer]
		if !ok {
			n = len(out)
			at[x.Layer] = n
			out = append(out, LayerTime{Layer: x.Layer, Parts: map[plan.Part]time.Duration{}})
		}
		out[n].Took += x.Took
		out[n].Parts[partOf[x.Part]] += x.Took
	}
	slices.SortFunc(out, func(a, b LayerTime) int { return cmp.Compare(uint(a.Layer), uint(b.Layer)) })
	return out
}
