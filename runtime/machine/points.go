package machine

import (
	"fmt"

	ced "cedrun/cuda"
	"cedrun/runtime/kv"
	"cedrun/runtime/plan"
)

// points prepares what is measured of a shape: calls of few rows, and, if it has calls of more, of many.
func (b *bench) points(x *span, many bool) ([]*point, error) {
	few := max(int(x.least), 1)
	few = min(few, b.limits.rows)
	n := few
	if many {
		n = min(int(x.most), b.limits.rows)
		if n <= few {
			return nil, nil
		}
	}
	rows, err := b.plainRows(n)
	if err != nil {
		return nil, err
	}
	p := &point{rows: n, scale: 1}
	switch x.Kernel {
	case plan.Product:
		b.product(x, p, rows)
	case plan.Experts, plan.Shared:
		err = b.expert(x, p, rows)
	case plan.Index, plan.Attend:
		return b.deep(x, n)
	case plan.Sample:
		if many {
			return nil, nil
		}
		p.rows = 1
		p.run, err = sampling(x.N)
	case plan.Layer:
		if many {
			return nil, nil
		}
		p.run = hostWork
	default:
		p.run, err = b.elementwise(x, n, rows)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", x.Kernel, err)
	}
	return []*point{p}, nil
}

var (
	formats = [...]ced.Format{plan.FP8: ced.FP8, plan.FP4: ced.FP4, plan.BF16: ced.BF16, plan.F32: ced.F32}
	bytes32 = [...]int{plan.FP8: 32, plan.FP4: 16, plan.BF16: 64, plan.F32: 128} // of 32 elements
)

// product multiplies rows by as many outputs as the limits allow.
func (b *bench) product(x *span, p *point, rows ced.Addr) {
	perOutput := x.K * x.Groups
	n := min(x.N, b.limits.work/(perOutput*p.rows), min(b.limits.weights, b.arenaSize/2)/(perOutput*bytes32[x.Weights]/32))
	n = max(n&^31, min(x.N, 32))
	p.scale = float64(x.N) / float64(n)
	size := n * perOutput * bytes32[x.Weights] / 32
	a := ced.DenseGEMMArgs{
		Rows: rows, X: b.in, Y: b.out, WScales: b.scales, MaxRows: uint32(p.rows), N: uint32(n), K: uint32(x.K), Groups: uint32(x.Groups),
		XFormat: formats[x.Activations], WFormat: formats[x.Weights], YFormat: ced.BF16,
	}
	if x.Activations == plan.FP8 {
		a.XScales = b.scales
	}
	p.run = func() error {
		a.W = b.weights(size)
		return b.s.DenseGEMM(&a)
	}
}

// expert runs routed experts, all rows through the same ones, or the shared expert.
func (b *bench) expert(x *span, p *point, rows ced.Addr) error {
	n, half := x.N*x.K, bytes32[x.Weights]
	one := (n*half/32 + 63) &^ 63
	used := 1
	if x.Kernel == plan.Experts {
		used = max(1, min(x.Groups, b.arenaSize/(3*one), b.limits.work/(3*n*p.rows), 2*b.limits.weights/one))
	}
	p.depth = used
	table := make([]ced.Expert, used)
	a := ced.ExpertGEMMArgs{
		Rows: rows, X: b.in, XScales: b.scales, Idx: b.zeros, Weights: b.in, Y: b.out, MaxRows: uint32(p.rows),
		Dim: uint32(x.K), Inter: uint32(x.N), Limit: b.c.SwiGLULimit,
	}
	if x.Kernel == plan.Experts {
		idx := make([]int32, p.rows*used)
		for i := range idx {
			idx[i] = int32(i % used)
		}
		var err error
		if a.Idx, err = upload(b, idx); err != nil {
			return err
		}
		if a.Experts, err = upload(b, table); err != nil {
			return err
		}
		a.ExpertsCount, a.TopK = uint32(used), uint32(used)
	}
	var err error
	if a.Workspace, err = b.filled(b.s.ExpertGEMMWorkspace(&a), 0); err != nil {
		return err
	}
	next := func() ced.Expert {
		return ced.Expert{W1: b.weights(one), W1Scales: b.scales, W3: b.weights(one), W3Scales: b.scales, W2: b.weights(one), W2Scales: b.scales}
	}
	p.run = func() error {
		if x.Kernel == plan.Shared {
			a.Shared = next()
			return b.s.ExpertGEMM(&a)
		}
		for i := range table {
			table[i] = next()
		}
		if err := b.s.Upload(a.Experts, bytesOf(table)); err != nil {
			return err
		}
		return b.s.ExpertGEMM(&a)
	}
	return nil
}

// elementwise prepares the kernels whose cost is that of their activations.
func (b *bench) elementwise(x *span, n int, rows ced.Addr) (func() error, error) {
	s, c, most := b.s, b.c, uint32(n)
	switch x.Kernel {
	case plan.Mix:
		outputs := (2 + x.N) * x.N
		a := ced.MHCMixArgs{
			Rows: rows, H: b.in, Base: b.in, Scale: b.in, Pre: b.out, Post: b.out + ced.Addr(64*n), Comb: b.out + ced.Addr(128*n),
			MaxRows: most, Dim: uint32(x.K), Streams: uint32(x.N), Iters: uint32(x.Groups), NormEps: 1e-20, HcEps: c.HCEps,
		}
		return func() error {
			a.Fn = b.weights(outputs * x.N * x.K * 4)
			return s.MHCMix(&a)
		}, nil
	case plan.Collapse:
		a := ced.MHCCollapseArgs{Rows: rows, H: b.in, Pre: b.in, X: b.out, MaxRows: most, Dim: uint32(x.K), Streams: uint32(x.N)}
		return func() error { return s.MHCCollapse(&a) }, nil
	case plan.Expand:
		a := ced.MHCExpandArgs{Rows: rows, Y: b.in, H: b.out, MaxRows: most, Dim: uint32(x.K), Streams: uint32(x.N)}
		var err error
		if a.Post, err = b.filled(4*n*x.N*(x.N+1), pattern); err != nil {
			return nil, err
		}
		a.Comb = a.Post
		return func() error { return s.MHCExpand(&a) }, nil
	case plan.Border:
		return b.border(x, n, rows)
	case plan.Rotate:
		a := ced.RoPEArgs{Rows: rows, X: b.in, MaxRows: most, Heads: uint32(x.N), Dim: uint32(x.K), RoPEDim: uint32(x.Groups)}
		freqs, err := upload(b, c.RopeFreqs(false))
		a.Freqs = freqs
		return func() error { return s.RoPE(&a) }, err
	case plan.Route:
		logits := make([]float32, n*x.N)
		for i := range logits {
			logits[i] = float32(uint32(i)*2654435761>>20)/1024 - 2
		}
		a := ced.RouteArgs{
			Rows: rows, Idx: b.out, Weights: b.out + ced.Addr((4*n*x.Groups+63)&^63), MaxRows: most, Experts: uint32(x.N), TopK: uint32(x.Groups),
			Normalise: 1, Temperature: 1, RouteScale: c.RouteScale, BiasFormat: ced.F32,
		}
		var err error
		if a.Bias, err = b.filled(4*x.N, 0); err != nil {
			return nil, err
		}
		a.Logits, err = upload(b, logits)
		return func() error { return s.Route(&a) }, err
	}
	// Norm, and Move as one.
	a := ced.NormQuantArgs{
		Rows: rows, X: b.in, Weight: b.in, WeightFormat: ced.BF16, Y: b.out, Codes: b.out + ced.Addr((2*n*x.K+63)&^63),
		MaxRows: most, N: uint32(max(x.K&^31, 32)), Eps: 1e-20,
	}
	a.Scales = a.Codes + ced.Addr((n*x.K+63)&^63)
	return func() error { return s.NormQuant(&a) }, nil
}

// border prepares what lies between two sub-layers.
func (b *bench) border(x *span, n int, rows ced.Addr) (func() error, error) {
	a := ced.MHCBorderArgs{
		Rows: rows, Y: b.in, Pre: b.in, Base: b.in, Scale: b.in, Weight: b.in, WeightFormat: ced.BF16, MaxRows: uint32(n), Dim: uint32(x.K),
		Streams: uint32(x.N), Iters: uint32(x.Groups), NormEps: 1e-20, HcEps: b.c.HCEps,
	}
	for _, out := range []struct {
		at    *ced.Addr
		bytes int // of a row
	}{{&a.H, 2 * x.N * x.K}, {&a.Post, 4 * x.N}, {&a.Comb, 4 * x.N * x.N}, {&a.Next, 4 * x.N}, {&a.X, 2 * x.K}, {&a.Codes, x.K}, {&a.Scales, x.K / 32}} {
		var err error
		if *out.at, err = b.filled(n*out.bytes, pattern); err != nil {
			return nil, err
		}
	}
	if x.Activations != plan.FP8 {
		a.Codes, a.Scales = 0, 0
	}
	return func() error {
		if x.Weights != plan.None {
			a.Fn = b.weights((2 + x.N) * x.N * x.N * x.K * 4)
		}
		return b.s.MHCBorder(&a)
	}, nil
}

// deep prepares a shallow and a deep call of n rows of the indexer or of attention.
func (b *bench) deep(x *span, n int) ([]*point, error) {
	var out []*point
	topK := b.c.IndexTopK
	depths := []int{b.c.Window, b.c.Window + topK}
	if x.Kernel == plan.Index {
		shallow := topK + n + 64
		deepest := max(2*shallow, min(int(x.depth), max(2*shallow, b.limits.work/(x.N*x.K*n))))
		depths = []int{shallow, deepest}
	} else if len(b.layout.Owners) == 0 {
		depths = []int{max(b.c.Window/2, 1), b.c.Window}
	}
	for _, d := range depths {
		p := &point{rows: n, depth: d, scale: 1}
		var err error
		if x.Kernel == plan.Index {
			err = b.index(x, p)
		} else {
			err = b.attend(x, p)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", x.Kernel, err)
		}
		out = append(out, p)
	}
	return out, nil
}

// cache describes an owner's pages for a sequence of rows global rows.
func (b *bench) cache(rows int) (ced.KV, error) {
	o := b.layout.Owners[len(b.layout.Owners)-1]
	table := make([]int32, rows/o.PageRows+2)
	for i := range table {
		table[i] = int32(i % realPages)
	}
	t, err := upload(b, table)
	return ced.KV{
		Pages: b.pages, Table: t, PageBytes: uint64(b.layout.PageBytes), MaxPages: uint32(len(table)), PageRows: uint32(o.PageRows),
		Ratio: uint32(o.Ratio), HeadDim: uint32(b.layout.HeadDim), IndexDim: uint32(b.layout.IndexDim),
		MainCodes: uint32(o.MainCodes), MainScales: uint32(o.MainScales), IndexCodes: uint32(o.IndexCodes), IndexScales: uint32(o.IndexScales),
	}, err
}

func (b *bench) index(x *span, p *point) error {
	cache, err := b.cache(p.depth)
	if err != nil {
		return err
	}
	rows, err := b.rowSet(p.rows, p.depth*int(cache.Ratio))
	if err != nil {
		return err
	}
	freqs, err := upload(b, b.c.RopeFreqs(true))
	if err != nil {
		return err
	}
	q := make([]uint16, p.rows*x.N*x.K)
	for i := range q {
		q[i] = uint16(0x3F00 + uint32(i)*2654435761>>24 | uint32(i&1)<<15) // 0.5 to 2, both signs
	}
	a := ced.CSA2IndexArgs{
		Rows: rows, Freqs: freqs, Sel: b.out, KV: cache, MaxRows: uint32(p.rows), Heads: uint32(x.N), RoPEDim: uint32(b.c.RopeDim),
		TopK: uint32(x.Groups), MaxGroups: cache.MaxPages * cache.PageRows, Scale: 1. / 64,
	}
	if a.Q, err = upload(b, q); err != nil {
		return err
	}
	a.W = a.Q
	if a.Workspace, err = b.filled(b.s.CSA2IndexWorkspace(&a), 0); err != nil {
		return err
	}
	p.run = func() error { return b.s.CSA2Index(&a) }
	return nil
}

func (b *bench) attend(x *span, p *point) error {
	c := b.c
	selected := max(p.depth-c.Window, 0)
	a := ced.CSA2AttendArgs{
		Q: b.in, Packed: b.in, WindowStart: b.zeros, O: b.out, MaxRows: uint32(p.rows), Heads: uint32(x.N), HeadDim: uint32(x.K),
		Window: uint32(c.Window), RingRows: uint32(c.Window + p.rows), TopK: uint32(c.IndexTopK),
	}
	var err error
	last := max(min(p.depth, c.Window)-1, p.rows-1)
	if selected > 0 {
		last += c.Window + 2*kv.PageTokens
		sel := make([]int32, p.rows*c.IndexTopK)
		for i := range sel {
			sel[i] = int32(i % c.IndexTopK)
		}
		if a.KV, err = b.cache(c.IndexTopK); err != nil {
			return err
		}
		if a.Sel, err = upload(b, sel); err != nil {
			return err
		}
	}
	if a.Rows, err = b.rowSet(p.rows, last); err != nil {
		return err
	}
	a.KeyRows = a.Rows
	if a.Ring, err = b.filled(int(a.RingRows)*c.WindowRowBytes(), pattern); err != nil {
		return err
	}
	if a.Sink, err = b.filled(4*x.N, 0); err != nil {
		return err
	}
	if a.Workspace, err = b.filled(b.s.CSA2AttendWorkspace(&a), 0); err != nil {
		return err
	}
	p.run = func() error { return b.s.CSA2Attend(&a) }
	return nil
}
