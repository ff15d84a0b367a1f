package model

import (
	"fmt"

	ced "cedrun/cuda"
)

// lookups are the Engram rows that a step reads. They depend on token ids only, so all are known before its first kernel.
type lookups struct {
	ids  [][]int64 // per Engram layer of the config: [rows that enter the layer, columns] row ids
	hist []int32   // compressed ids of a span and what they look back at
}

// lookUp finds the Engram rows of the whole step and starts reading those that are not in memory.
func (p *pass) lookUp() {
	c, u := &p.cfg.Engram, &p.lookups
	if len(c.Layers) == 0 {
		return
	}
	p.waitForRows()
	if u.ids == nil {
		u.ids = make([][]int64, len(c.Layers))
	}
	for k := range u.ids {
		u.ids[k] = u.ids[k][:0]
	}
	for i := range p.spans {
		sp := &p.spans[i]
		back := min(p.first[i], p.engram.Lookback())
		u.hist = p.engram.Compress(u.hist[:0], sp.Seq.tokens[p.first[i]-back:p.first[i]], nil)
		u.hist = p.engram.Compress(u.hist, sp.Tokens, nil)
		for k, l := range c.Layers {
			from := back + min(max(sp.Seq.plan.Enter[l]-p.first[i], 0), len(sp.Tokens))
			u.ids[k] = p.engram.AppendRows(u.ids[k], l, u.hist[:from], u.hist[from:])
		}
	}
	for _, ids := range u.ids {
		p.meter.rows.Add(uint64(len(ids)))
	}
	p.fetchRows()
}

// engramUpdate adds the n-gram memory to the streams (spec 4.12).
func (p *pass) engramUpdate(l int, w *engramWeights) error {
	c, cols := p.cfg, p.cfg.Engram.Columns()
	ids := p.lookups.ids[p.schedule[l].Engram]
	if len(ids) != p.in.count*cols {
		return fmt.Errorf("%d row ids for %d rows of %d columns", len(ids), p.in.count, cols)
	}
	a := ced.EngramGatherArgs{
		Rows: p.in.addr, IDs: p.ws.ids, Table: w.table, TableScales: w.scales, TableRows: uint64(w.rows), E: p.ws.e,
		MaxRows: uint32(p.opt.StepRows), Cols: uint32(cols), Dim: uint32(c.Engram.HeadDim),
	}
	if w.table == 0 {
		if err := p.stage(w.fetch); err != nil {
			return err
		}
		for i := range ids {
			ids[i] = int64(i)
		}
		a.Table, a.TableScales, a.TableRows = p.ws.staged, p.ws.stagedScl, uint64(len(ids))
	}
	if err := p.s.Upload(p.ws.ids, bytesOf(ids)); err != nil {
		return err
	}
	if err := p.s.EngramGather(&a); err != nil {
		return err
	}
	if err := p.normQuant(p.in.addr, p.ws.e, vector{}, 0, cols*c.Engram.HeadDim, true); err != nil {
		return err
	}
	if err := p.linear(p.in.addr, &w.wkv, 0, p.ws.ekv, ced.BF16); err != nil {
		return err
	}
	return p.s.EngramGate(&ced.EngramGateArgs{
		Rows: p.in.addr, KV: p.ws.ekv, QWeight: w.q.addr, KWeight: w.k.addr, WeightFormat: w.q.format, H: p.ws.h,
		MaxRows: uint32(p.opt.StepRows), Dim: uint32(c.HiddenSize), Streams: uint32(c.HCMult), Eps: c.NormEps,
	})
}
