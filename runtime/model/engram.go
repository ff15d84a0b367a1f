package model

import (
	"fmt"

	ced "cedrun/cuda"
)

// lookUp finds the Engram rows of the whole step. They depend on token ids only, so this comes before any kernel.
func (p *pass) lookUp() {
	if len(p.cfg.Engram.Layers) == 0 {
		return
	}
	for i, sp := range p.spans {
		q := sp.Seq
		q.hist = p.engram.Compress(q.hist[:p.first[i]], sp.Tokens, nil)
		before, ids := q.hist[max(0, p.first[i]-p.engram.Lookback()):p.first[i]], q.hist[p.first[i]:]
		for _, l := range p.cfg.Engram.Layers {
			p.engramIDs[l] = p.engram.AppendRows(p.engramIDs[l], l, before, ids)
		}
	}
}

// engramUpdate adds the n-gram memory to the streams (spec 4.12).
func (p *pass) engramUpdate(l int, w *engramWeights) error {
	c, cols := p.cfg, p.cfg.Engram.Columns()
	ids := p.engramIDs[l]
	if p.in != p.base {
		ids = p.pick(ids, cols)
	}
	a := ced.EngramGatherArgs{
		Rows: p.in.addr, IDs: p.ws.ids, Table: w.table, TableScales: w.scales, TableRows: uint64(w.rows), E: p.ws.e,
		MaxRows: uint32(p.opt.StepRows), Cols: uint32(cols), Dim: uint32(c.Engram.HeadDim),
	}
	if w.table == 0 {
		if err := p.stage(l, ids); err != nil {
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

// pick keeps the row ids of the rows that are still in.
func (p *pass) pick(ids []int64, cols int) []int64 {
	var out []int64
	at := 0
	for i, sp := range p.spans {
		out = append(out, ids[(at+p.in.offs[i])*cols:(at+len(sp.Tokens))*cols]...)
		at += len(sp.Tokens)
	}
	return out
}

// stage reads table rows that are not mapped into stream memory.
func (p *pass) stage(l int, ids []int64) error {
	dim := p.cfg.Engram.HeadDim
	for _, part := range []struct {
		name  string
		bytes int
		dst   ced.Addr
	}{{"embed.weight", dim, p.ws.staged}, {"embed.scale", dim / 32, p.ws.stagedScl}} {
		name := fmt.Sprintf("layers.%d.engram.%s", l, part.name)
		buf := make([]byte, len(ids)*part.bytes)
		if err := p.ck.ReadRows(name, part.bytes, ids, buf); err != nil {
			return err
		}
		if err := p.s.Upload(part.dst, buf); err != nil {
			return err
		}
	}
	return nil
}
