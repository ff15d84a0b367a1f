package model

import (
	"fmt"

	ced "cedrun/cuda"
)

// border is one kernel for what lies between two sub-layers when nobody looks at the values in between: the output of the
// one before goes into the streams, if that is still to be done, and ws.x = norm(sum of the streams by pre) is the input of
// the one behind, quantised too if that needs it, whose mixes are made if w has any, its pre in next.
func (p *pass) border(pre ced.Addr, norm vector, quantise bool, w hyper, next ced.Addr) error {
	c := p.cfg
	a := ced.MHCBorderArgs{
		Rows: p.in.addr, H: p.ws.h, Post: p.ws.post, Comb: p.ws.comb, Pre: pre, Next: next, Fn: w.fn, Base: w.base, Scale: w.scale,
		Weight: norm.addr, WeightFormat: norm.format, X: p.ws.x, MaxRows: p.in.max, Dim: uint32(c.HiddenSize), Streams: uint32(c.HCMult),
		Iters: uint32(c.HCSinkhornIters), NormEps: c.NormEps, HcEps: c.HCEps,
	}
	if p.pending {
		a.Y = p.ws.y
	}
	if quantise {
		a.Codes, a.Scales = p.ws.codes, p.ws.scales
	}
	p.pending = false
	return p.s.MHCBorder(&a)
}

// mix computes a sub-layer's mixes from the streams that enter it (spec 4.2): pre into its own buffer, because the
// attention's pre feeds this layer's FFN and the FFN's the next layer.
func (p *pass) mix(l int, w hyper, pre ced.Addr, name string) error {
	c, n := p.cfg, p.in.count
	if err := p.s.MHCMix(&ced.MHCMixArgs{
		Rows: p.in.addr, H: p.ws.h, Fn: w.fn, Base: w.base, Scale: w.scale, Pre: pre, Post: p.ws.post, Comb: p.ws.comb,
		MaxRows: p.in.max, Dim: uint32(c.HiddenSize), Streams: uint32(c.HCMult), Iters: uint32(c.HCSinkhornIters),
		NormEps: c.NormEps, HcEps: c.HCEps,
	}); err != nil {
		return fmt.Errorf("mixes: %w", err)
	}
	if p.probe == nil {
		return nil
	}
	if err := p.sub(l, name+"_pre", pre, n, c.HCMult, ced.F32); err != nil {
		return err
	}
	if err := p.sub(l, name+"_post", p.ws.post, n, c.HCMult, ced.F32); err != nil {
		return err
	}
	return p.sub(l, name+"_comb", p.ws.comb, n, c.HCMult*c.HCMult, ced.F32)
}

// collapse makes a sub-layer's input ws.x = norm(sum of the streams by pre), quantised too if the sub-layer needs that.
func (p *pass) collapse(pre ced.Addr, norm vector, quantise bool) error {
	c := p.cfg
	if err := p.s.MHCCollapse(&ced.MHCCollapseArgs{
		Rows: p.in.addr, H: p.ws.h, Pre: pre, X: p.ws.x,
		MaxRows: p.in.max, Dim: uint32(c.HiddenSize), Streams: uint32(c.HCMult),
	}); err != nil {
		return err
	}
	return p.normQuant(p.in.rowCount, p.ws.x, norm, p.ws.x, c.HiddenSize, quantise)
}

// expand adds a sub-layer's output ws.y back to the streams, if that is still to be done.
func (p *pass) expand() error {
	if !p.pending {
		return nil
	}
	p.pending = false
	c := p.cfg
	return p.s.MHCExpand(&ced.MHCExpandArgs{
		Rows: p.in.addr, Y: p.ws.y, Post: p.ws.post, Comb: p.ws.comb, H: p.ws.h,
		MaxRows: p.in.max, Dim: uint32(c.HiddenSize), Streams: uint32(c.HCMult),
	})
}
