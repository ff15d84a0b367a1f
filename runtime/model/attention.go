package model

import (
	"fmt"
	"math"

	ced "cedrun/cuda"
	"cedrun/runtime/config"
	"cedrun/runtime/plan"
)

// attention is CSA2 (spec 4.3 - 4.11): ws.x, the normed input of the rows that enter, becomes ws.y for the rows that go
// on. All entering rows feed the compressor; those near the tail leave window rows; the query rows attend.
func (p *pass) attention(l int, w *layerWeights, s config.Layer, in attentionRows) error {
	window, query := in.window, in.query
	if s.OwnsKV {
		p.mark(plan.PartCompressor, l)
		if err := p.compress(l, w.compressor, s); err != nil {
			return fmt.Errorf("compressor: %w", err)
		}
	}
	p.mark(plan.PartProjections, l)
	if err := p.windowRows(l, w, window, in.quantised); err != nil {
		return fmt.Errorf("window: %w", err)
	}
	quantised := query == window && p.in == window // ws.codes holds these rows already
	if err := p.shrink(query); err != nil {
		return err
	}
	if query.count > 0 {
		if !in.mixed {
			p.mark(plan.PartMixing, l)
			if err := p.mix(l, w.hcAttn, p.ws.aPre, "hc_attn"); err != nil {
				return err
			}
			p.mark(plan.PartProjections, l)
		}
		if err := p.queries(l, w, quantised); err != nil {
			return err
		}
		if s.OwnsIndex {
			p.mark(plan.PartIndexer, l)
			if err := p.selectRows(l, w.indexer, s); err != nil {
				return fmt.Errorf("indexer: %w", err)
			}
		}
		if err := p.attend(l, w, s, window); err != nil {
			return err
		}
	}
	if window.count > 0 {
		if err := p.s.WindowCommit(&ced.WindowCommitArgs{
			Rows: window.addr, Packed: p.ws.packed, Ring: p.ring(l),
			MaxRows: window.max, RowBytes: uint32(p.rowBytes()), RingRows: uint32(p.ringRows()),
		}); err != nil {
			return err
		}
	}
	if p.probe != nil {
		return p.probe.KV(l)
	}
	return nil
}

// queriesFrom is the first position whose row goes through layer l. What leaves the last layer is read by the head alone.
func (m *Model) queriesFrom(sp *Span, l int) int {
	from := sp.Seq.plan.Query[l]
	if l == m.cfg.Layers-1 {
		from = max(from, sp.Logits)
	}
	return from
}

func (m *Model) freqs(l int) ced.Addr {
	if m.schedule[l].CompressedRope() {
		return m.freqCompressed
	}
	return m.freqPlain
}

// compress makes the global rows of the groups that close in this step (spec 4.5 - 4.7).
func (p *pass) compress(l int, w *compressor, s config.Layer) error {
	c := p.cfg
	n, groups, err := p.closing(l, s.Ratio)
	if err != nil {
		return err
	}
	format := ced.BF16
	if s.Ratio > 1 {
		format = ced.F32
		if err := p.linear(p.in.rowCount, &w.wgate, p.ws.x, p.ws.g, format); err != nil {
			return err
		}
	}
	if err := p.linear(p.in.rowCount, &w.wkv, p.ws.x, p.ws.a, format); err != nil {
		return err
	}
	if err := p.s.CSA2Compress(&ced.CSA2CompressArgs{
		Rows: p.in.addr, Groups: groups.addr, A: p.ws.a, G: p.ws.g, Open: p.open[l], Weight: w.norm.addr, WeightFormat: w.norm.format,
		Latent: p.ws.latent, MaxRows: p.in.max, Dim: uint32(c.HeadDim), Ratio: uint32(s.Ratio),
		OpenRows: uint32(p.openRows()), Eps: c.NormEps,
	}); err != nil {
		return err
	}
	if n == 0 && !p.uploaded {
		return nil
	}
	if err := p.sub(l, "latent", p.ws.latent, n, c.HeadDim, ced.BF16); err != nil {
		return err
	}
	if err := p.linear(groups, &w.wk, p.ws.latent, p.ws.key, ced.BF16); err != nil {
		return err
	}
	for _, sp := range p.spans {
		sp.Seq.published = l
	}
	return p.s.KVAppend(&ced.KVAppendArgs{
		Rows: p.in.addr, Groups: groups.addr, Latent: p.ws.latent, K: p.ws.key, KWeight: w.kNorm.addr, WeightFormat: w.kNorm.format,
		Freqs: p.freqs(l), KV: p.kvOf(l), MaxGroups: groups.max, RoPEDim: uint32(c.RopeDim), Eps: c.NormEps,
	})
}

// windowRows makes the packed window rows of set; its input is left quantised in ws.codes, where it may be already.
func (p *pass) windowRows(l int, w *layerWeights, set *rowSet, quantised bool) error {
	if set.count == 0 {
		return nil
	}
	c, x := p.cfg, p.ws.x
	if set != p.in {
		x = p.ws.xAlt
		if err := p.gather(set, set.index, p.ws.x, x, 2*c.HiddenSize); err != nil {
			return err
		}
	}
	if !quantised {
		if err := p.normQuant(set.rowCount, x, vector{}, 0, c.HiddenSize, true); err != nil {
			return err
		}
	}
	if err := p.linear(set.rowCount, &w.wkv, 0, p.ws.window, ced.BF16); err != nil {
		return err
	}
	return p.s.WindowPack(&ced.WindowPackArgs{
		Rows: set.addr, X: p.ws.window, Weight: w.kvNorm.addr, WeightFormat: w.kvNorm.format, Freqs: p.freqs(l), Packed: p.ws.packed,
		MaxRows: set.max, Dim: uint32(c.HeadDim), RoPEDim: uint32(c.RopeDim), Eps: c.NormEps,
	})
}

// queries makes the rotated queries ws.q; the low-rank query stays quantised in ws.codes for the indexer.
func (p *pass) queries(l int, w *layerWeights, quantised bool) error {
	c := p.cfg
	if !quantised {
		if err := p.normQuant(p.in.rowCount, p.ws.x, vector{}, 0, c.HiddenSize, true); err != nil {
			return err
		}
	}
	if err := p.linear(p.in.rowCount, &w.wqA, 0, p.ws.qr, ced.BF16); err != nil {
		return err
	}
	if err := p.normQuant(p.in.rowCount, p.ws.qr, w.qNorm, p.ws.qr, c.QLoraRank, true); err != nil {
		return err
	}
	if err := p.sub(l, "qr", p.ws.qr, p.in.count, c.QLoraRank, ced.BF16); err != nil {
		return err
	}
	if err := p.linear(p.in.rowCount, &w.wqB, 0, p.ws.q, ced.BF16); err != nil {
		return err
	}
	return p.rope(l, p.ws.q, false)
}

func (p *pass) rope(l int, x ced.Addr, inverse bool) error {
	c := p.cfg
	return p.s.RoPE(&ced.RoPEArgs{
		Rows: p.in.addr, X: x, Freqs: p.freqs(l), MaxRows: p.in.max, Heads: uint32(c.Heads), Dim: uint32(c.HeadDim),
		RoPEDim: uint32(c.RopeDim), Inverse: flag(inverse),
	})
}

// selectRows runs the indexer: ws.sel for this layer and those that reuse it, the candidate blocks if it publishes them.
func (p *pass) selectRows(l int, w *indexer, s config.Layer) error {
	if err := p.linear(p.in.rowCount, &w.wqB, 0, p.ws.iq, ced.BF16); err != nil {
		return err
	}
	if err := p.linear(p.in.rowCount, &w.weights, p.ws.x, p.ws.iw, ced.BF16); err != nil {
		return err
	}
	a := p.indexArgs(&s, p.in.rowCount)
	if p.opt.StaleIndexKeys {
		ratio := a.KV.Ratio
		a.KV = p.kvOf(p.spans[0].Seq.published)
		a.KV.Ratio = ratio
	}
	if p.probe != nil {
		if err := p.probeScores(&a, s); err != nil {
			return err
		}
	}
	if err := p.s.CSA2Index(&a); err != nil {
		return err
	}
	p.hasSel = true
	p.hasCand = p.hasCand || s.CandidateSource
	if p.probe == nil {
		return nil
	}
	return p.tapSelection(l, s)
}

// indexArgs describes an indexer; nil only sizes the workspace.
func (m *Model) indexArgs(s *config.Layer, rows rowCount) ced.CSA2IndexArgs {
	c := m.cfg
	a := ced.CSA2IndexArgs{
		Rows: rows.addr, Q: m.ws.iq, W: m.ws.iw, Freqs: m.freqCompressed, Sel: m.ws.sel, Workspace: m.ws.scratchIndex,
		MaxRows: rows.max, Heads: uint32(c.IndexHeads), RoPEDim: uint32(c.RopeDim), TopK: uint32(c.IndexTopK),
		Scale: indexScale(c),
	}
	if c.CandidateSource >= 0 {
		a.Candidates, a.Block, a.MaxBlocks = m.ws.cand, uint32(c.CandidateBlock), uint32(c.CandidateTopKBlocks)
	}
	if s != nil {
		a.KV = m.kvOf(s.KeySource)
		a.KV.Ratio = uint32(s.Ratio)
		a.Publish, a.Restrict = flag(s.CandidateSource), flag(s.Restricted)
	} else { // the most that any layer needs
		for _, l := range c.KVSources {
			if kv := m.kvOf(l); kv.PageRows > a.KV.PageRows {
				a.KV = kv
			}
		}
		a.Publish = flag(c.CandidateSource >= 0)
	}
	a.MaxGroups = a.KV.MaxPages * a.KV.PageRows
	return a
}

// attend runs the attention core and the output projection into ws.y (spec 4.11).
func (p *pass) attend(l int, w *layerWeights, s config.Layer, window *rowSet) error {
	p.mark(plan.PartAttention, l)
	c := p.cfg
	a := ced.CSA2AttendArgs{
		Rows: p.in.addr, MaxRows: p.in.max, KeyRows: window.addr, Q: p.ws.q, Packed: p.ws.packed, Ring: p.ring(l),
		WindowStart: p.windowStart + ced.Addr(4*l*p.opt.Slots), Sink: w.sink, O: p.ws.o,
	}
	p.attendShape(&a)
	if s.Ratio > 0 {
		a.Sel, a.TopK, a.KV = p.ws.sel, uint32(c.IndexTopK), p.kvOf(s.KVSource)
	}
	if err := p.s.CSA2Attend(&a); err != nil {
		return err
	}
	if err := p.rope(l, p.ws.o, true); err != nil {
		return err
	}
	p.mark(plan.PartProjections, l)
	if err := p.s.DenseGEMM(&ced.DenseGEMMArgs{
		Rows: p.in.addr, X: p.ws.o, W: w.woA.w, WScales: w.woA.scales, Y: p.ws.z, MaxRows: p.in.max,
		N: uint32(c.OLoraRank), K: uint32(w.woA.k), Groups: uint32(c.OGroups), XFormat: ced.BF16, WFormat: w.woA.format, YFormat: ced.BF16,
	}); err != nil {
		return fmt.Errorf("output projection: %w", err)
	}
	if err := p.normQuant(p.in.rowCount, p.ws.z, vector{}, 0, c.OGroups*c.OLoraRank, true); err != nil {
		return err
	}
	return p.linear(p.in.rowCount, &w.woB, 0, p.ws.y, ced.BF16)
}

func (m *Model) attendShape(a *ced.CSA2AttendArgs) {
	c := m.cfg
	a.Workspace, a.Heads, a.HeadDim = m.ws.scratchAttend, uint32(c.Heads), uint32(c.HeadDim)
	a.Window, a.RingRows, a.TopK = uint32(c.Window), uint32(m.ringRows()), uint32(c.IndexTopK)
}

// indexScale is applied to the head weights: 1/64 in the release.
func indexScale(c *config.Config) float32 {
	return float32(math.Pow(float64(c.IndexHeadDim), -0.5) * math.Pow(float64(c.IndexHeads), -0.5))
}
