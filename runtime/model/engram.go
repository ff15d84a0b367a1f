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
	s := &p.ws.engram[p.schedule[l].Engram]
	if !p.uploaded {
		if err := p.uploadLookups(l, w); err != nil {
			return err
		}
	}
	a := ced.EngramGatherArgs{
		Rows: p.in.addr, IDs: s.ids, Table: w.table, TableScales: w.scales, TableRows: uint64(w.rows), E: p.ws.e,
		MaxRows: p.in.max, Cols: uint32(cols), Dim: uint32(c.Engram.HeadDim),
	}
	if w.table == 0 {
		a.Table, a.TableScales, a.TableRows = s.staged, s.stagedScl, uint64(p.in.max)*uint64(cols)
	}
	if err := p.s.EngramGather(&a); err != nil {
		return err
	}
	if err := p.normQuant(p.in.rowCount, p.ws.e, vector{}, 0, cols*c.Engram.HeadDim, true); err != nil {
		return err
	}
	if err := p.linear(p.in.rowCount, &w.wkv, 0, p.ws.ekv, ced.BF16); err != nil {
		return err
	}
	return p.s.EngramGate(&ced.EngramGateArgs{
		Rows: p.in.addr, KV: p.ws.ekv, QWeight: w.q.addr, KWeight: w.k.addr, WeightFormat: w.q.format, H: p.ws.h,
		MaxRows: p.in.max, Dim: uint32(c.HiddenSize), Streams: uint32(c.HCMult), Eps: c.NormEps,
	})
}

// uploadLookups puts where a layer's kernels expect them the row ids of a step and, of a table that is not in place, the
// rows themselves.
func (p *pass) uploadLookups(l int, w *engramWeights) error {
	k, cols := p.schedule[l].Engram, p.cfg.Engram.Columns()
	ids, s := p.lookups.ids[k], &p.ws.engram[k]
	if len(ids) != p.in.count*cols {
		return fmt.Errorf("%d row ids for %d rows of %d columns", len(ids), p.in.count, cols)
	}
	if w.table == 0 {
		if err := p.stage(w.fetch, s); err != nil {
			return err
		}
		for i := range ids {
			ids[i] = int64(i)
		}
	}
	return p.s.Upload(s.ids, bytesOf(ids))
}
