package model

import (
	"fmt"

	ced "cedrun/cuda"
	"cedrun/runtime/plan"
)

// moe routes ws.x (also quantised in ws.codes) and runs its experts into ws.y (spec 6).
func (p *pass) moe(l int, w *layerWeights) error {
	p.mark(plan.PartRouter, l)
	c, n := p.cfg, p.in.count
	if p.probe != nil { // a fed input must be quantised again
		if err := p.sub(l, "ffn_in", p.ws.x, n, c.HiddenSize, ced.BF16); err != nil {
			return err
		}
		if err := p.normQuant(p.in.rowCount, p.ws.x, vector{}, 0, c.HiddenSize, true); err != nil {
			return err
		}
	}
	if err := p.linear(p.in.rowCount, &w.gate, p.ws.x, p.ws.routeLogits, ced.F32); err != nil {
		return err
	}
	if err := p.s.Route(&ced.RouteArgs{
		Rows: p.in.addr, Logits: p.ws.routeLogits, Bias: w.bias.addr, BiasVL: w.biasVL.addr, BiasFormat: w.bias.format,
		Idx: p.idx(l), Weights: p.ws.wt, MaxRows: p.in.max, Experts: uint32(c.Experts),
		TopK: uint32(c.ExpertsPerToken), Normalise: flag(c.NormTopK && c.ExpertsPerToken > 1), // alone, a weight would always be 1
		Temperature: c.GateTemp, RouteScale: c.RouteScale,
	}); err != nil {
		return err
	}
	if err := p.subInt(l, "route_idx", p.idx(l), n, c.ExpertsPerToken); err != nil {
		return err
	}
	if err := p.sub(l, "route_w", p.ws.wt, n, c.ExpertsPerToken, ced.F32); err != nil {
		return err
	}
	p.mark(plan.PartExperts, l)
	if err := p.fetchExperts(l); err != nil {
		return err
	}
	a := p.expertArgs(l, p.in.rowCount)
	if err := p.runExperts(l, &a); err != nil {
		return err
	}
	return p.sub(l, "ffn_out", p.ws.y, n, c.HiddenSize, ced.BF16)
}

// runExperts runs a layer's experts where they are. What a captured step reads is its table only.
func (p *pass) runExperts(l int, a *ced.ExpertGEMMArgs) error {
	if p.byHost != nil {
		return p.byHost.run(l, p.in.count, a)
	}
	if p.slots == nil || p.uploaded {
		return p.s.ExpertGEMM(a)
	}
	var err error
	if a.Experts, err = p.slots.table(l, p.in.count*p.cfg.ExpertsPerToken); err != nil {
		return fmt.Errorf("experts on their way to the device: %w", err)
	}
	if err := p.s.ExpertGEMM(a); err != nil {
		return err
	}
	return p.slots.tableRead(l, a.Experts)
}

// idx is where the router of a layer writes its choices: with a budget for experts all of a step's are kept.
func (m *Model) idx(l int) ced.Addr {
	if m.slots == nil {
		return m.ws.idx
	}
	return m.ws.idx + ced.Addr(l*m.slots.stride)
}

// expertArgs describes the experts of a layer; those of none only size the workspace.
func (m *Model) expertArgs(l int, rows rowCount) ced.ExpertGEMMArgs {
	c := m.cfg
	a := ced.ExpertGEMMArgs{
		Rows: rows.addr, X: m.ws.codes, XScales: m.ws.scales, Weights: m.ws.wt, Y: m.ws.y, Workspace: m.ws.scratchExpert,
		MaxRows: rows.max, ExpertsCount: uint32(c.Experts), TopK: uint32(c.ExpertsPerToken),
		Dim: uint32(c.HiddenSize), Inter: uint32(c.MoEIntermediate), Limit: c.SwiGLULimit,
	}
	if !m.s.Host() {
		a.Layout = ced.ExpertsPacked
	}
	if l != whole {
		w := &m.w.layers[l]
		a.Idx, a.Experts, a.Shared = m.idx(l), w.experts, w.shared
	}
	return a
}

func flag(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
