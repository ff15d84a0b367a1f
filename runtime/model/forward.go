package model

import (
	"fmt"

	ced "cedrun/cuda"
	"cedrun/runtime/plan"
)

// pass is one Forward on its way through the layers.
type pass struct {
	*Model
	step
	in *rowSet // rows that enter the current layer; h and pre hold them
	// Published by earlier layers for the rows of in; 0 = nothing yet.
	hasSel, hasCand bool
	// What the host knows of the step is in stream memory already: kernels are all that is left. capturing: they do not run.
	uploaded, capturing bool
	pending             bool // ws.y has the output of a sub-layer that is not in the streams yet
	width               int  // columns of index_score, with a probe
}

// Forward runs one step: it advances every span's sequence by its tokens, for which Reserve must have made room, and
// returns the logits of the rows that asked for them, in order of spans and positions: F32 [n, vocab] in stream
// memory, valid until the next step. A span must not want logits before its sequence's FirstLogits. On an error the
// sequences have not advanced. Those for which there was Keep can be fed again after Undo; the others' caches are to be
// discarded.
func (m *Model) Forward(spans []Span, probe Probe) (logits ced.Addr, n int, err error) {
	m.probe = probe
	m.mark(plan.PartEmbedding, -1)
	p := &m.pass // what a step needs is there from the step before
	p.start(spans)
	defer p.begin(nil)
	if err := p.check(); err != nil {
		return 0, 0, err
	}
	if err := m.slots.between(&m.meter); err != nil {
		return 0, 0, err
	}
	if p.in, err = p.all(m); err != nil {
		return 0, 0, err
	}
	m.lay(p.in.rowCount)
	m.mark(plan.PartEngram, -1)
	p.lookUp()
	if m.opt.Graphs && probe == nil && !m.s.Tracing() && p.decodes() { // a trace has kernels, which a graph does not show
		n, err = p.replay()
	} else {
		n, err = p.run()
	}
	if err != nil {
		return 0, 0, err
	}
	if err := m.slots.sent(m.ws.idx); err != nil {
		return 0, 0, err
	}
	m.byHost.counted(&m.meter)
	for _, sp := range spans {
		sp.Seq.tokens = append(sp.Seq.tokens, sp.Tokens...)
	}
	return m.ws.logits, n, nil
}

// Greedy brings the likeliest token of each of the last step's first len(ids) rows of logits from a device, the lowest of
// several: -1 where a logit is no number below infinity, or none is left. On a host stream the logits are as near.
func (m *Model) Greedy(ids []int32) error { return m.s.Download(bytesOf(ids), m.ws.ids) }

// start begins a step of spans.
func (p *pass) start(spans []Span) {
	p.begin(spans)
	p.hasSel, p.hasCand, p.uploaded, p.pending = false, false, false, false
}

// run enqueues all layers and the head.
func (p *pass) run() (n int, err error) {
	p.pending = false
	p.mark(plan.PartEmbedding, -1)
	if err := p.embed(); err != nil {
		return 0, fmt.Errorf("embed: %w", err)
	}
	for l := range p.schedule {
		if err := p.layer(l); err != nil {
			return 0, fmt.Errorf("layer %d: %w", l, err)
		}
		if p.in.count == 0 {
			return 0, nil
		}
		if l == p.source() && p.tails[0] != 0 {
			p.mark(plan.PartMixing, l)
			if err := p.expand(); err != nil {
				return 0, err
			}
			if err := p.keepTails(); err != nil {
				return 0, err
			}
		}
	}
	if n, err = p.head(); err != nil {
		return 0, fmt.Errorf("head: %w", err)
	}
	return n, nil
}

func (p *pass) check() error {
	rows, outputs := 0, 0
	for i, sp := range p.spans {
		first := p.first[i]
		end := first + len(sp.Tokens)
		rows += len(sp.Tokens)
		if sp.Logits < end {
			outputs += end - max(sp.Logits, first)
			if max(sp.Logits, first) < sp.Seq.FirstLogits() {
				return fmt.Errorf("logits of position %d: this prefill mode computes them from position %d on", sp.Logits, sp.Seq.FirstLogits())
			}
		}
		if have := sp.Seq.Reserved(); end > have {
			return fmt.Errorf("step to position %d: KV pages reserved for %d tokens", end, have)
		}
		for _, t := range sp.Tokens {
			if t < 0 || int(t) >= p.cfg.VocabSize {
				return fmt.Errorf("token id %d: the vocabulary has %d entries", t, p.cfg.VocabSize)
			}
		}
	}
	if rows > p.opt.StepRows || outputs > p.opt.Outputs {
		return fmt.Errorf("step of %d rows with %d outputs: sized for %d and %d", rows, outputs, p.opt.StepRows, p.opt.Outputs)
	}
	return nil
}

func (p *pass) embed() error {
	c := p.cfg
	return p.s.Embed(&ced.EmbedArgs{
		Rows: p.in.addr, Table: p.w.embed.w, TableFormat: p.w.embed.format, H: p.ws.h, Pre: p.ws.pre,
		MaxRows: p.in.max, Vocab: uint32(c.VocabSize), Dim: uint32(c.HiddenSize), Streams: uint32(c.HCMult),
	})
}

// layer runs one layer in the order of spec 4.2 and leaves in ws.h and ws.pre what the next one reads; without a probe the
// output of its experts is still in ws.y.
func (p *pass) layer(l int) error {
	w, s, c := &p.w.layers[l], p.schedule[l], p.cfg
	if s.Engram >= 0 {
		p.mark(plan.PartMixing, l)
		if err := p.expand(); err != nil {
			return err
		}
		p.mark(plan.PartEngram, l)
		if err := p.engramUpdate(l, w.engram); err != nil {
			return fmt.Errorf("engram: %w", err)
		}
		if err := p.sub(l, "engram_h", p.ws.h, p.in.count, c.HCMult*c.HiddenSize, ced.BF16); err != nil {
			return err
		}
	}
	if err := p.tap(l); err != nil {
		return err
	}
	in, err := p.attentionInput(l, w)
	if err != nil {
		return fmt.Errorf("attention input: %w", err)
	}
	if err := p.attention(l, w, s, in); err != nil {
		return fmt.Errorf("attention: %w", err)
	}
	if p.in.count == 0 {
		return nil
	}
	p.pending = true
	if err := p.sub(l, "attn_out", p.ws.y, p.in.count, c.HiddenSize, ced.BF16); err != nil {
		return err
	}
	p.mark(plan.PartMixing, l)
	if err := p.expertInput(l, w); err != nil {
		return fmt.Errorf("FFN input: %w", err)
	}
	if err := p.moe(l, w); err != nil {
		return fmt.Errorf("experts: %w", err)
	}
	p.pending = true
	if p.probe == nil {
		return nil
	}
	p.mark(plan.PartMixing, l)
	if err := p.expand(); err != nil {
		return err
	}
	if err := p.sub(l, "h_out", p.ws.h, p.in.count, c.HCMult*c.HiddenSize, ced.BF16); err != nil {
		return err
	}
	return p.sub(l, "pre_out", p.ws.pre, p.in.count, c.HCMult, ced.F32)
}

// attentionRows are the rows of a layer's attention: which of those that enter leave window rows and which attend. mixed: the
// mixes are there already; quantised: ws.codes holds the input of the window rows.
type attentionRows struct {
	window, query    *rowSet
	mixed, quantised bool
}

// attentionInput makes ws.x, the normed input of the rows that enter.
func (p *pass) attentionInput(l int, w *layerWeights) (in attentionRows, err error) {
	if in.window, err = p.set(p.Model, p.in, func(sp *Span) int { return sp.Seq.plan.Window[l] }); err != nil {
		return in, err
	}
	if in.query, err = p.set(p.Model, p.in, func(sp *Span) int { return p.queriesFrom(sp, l) }); err != nil {
		return in, err
	}
	p.mark(plan.PartMixing, l)
	if p.probe == nil {
		in.mixed, in.quantised = in.query == p.in, in.window == p.in
		var mixes hyper
		if in.mixed {
			mixes = w.hcAttn
		}
		return in, p.border(p.ws.pre, w.attnNorm, in.quantised, mixes, p.ws.aPre)
	}
	if err := p.collapse(p.ws.pre, w.attnNorm, false); err != nil {
		return in, err
	}
	return in, p.sub(l, "attn_in", p.ws.x, p.in.count, p.cfg.HiddenSize, ced.BF16)
}

// expertInput takes the output of attention into the streams and makes ws.x and its codes.
func (p *pass) expertInput(l int, w *layerWeights) error {
	if p.probe == nil {
		return p.border(p.ws.aPre, w.ffnNorm, true, w.hcFFN, p.ws.pre)
	}
	if err := p.expand(); err != nil {
		return err
	}
	if err := p.mix(l, w.hcFFN, p.ws.pre, "hc_ffn"); err != nil {
		return err
	}
	return p.collapse(p.ws.aPre, w.ffnNorm, true)
}

// mark names the part that what follows belongs to, for a trace of the stream.
func (m *Model) mark(part plan.Part, layer int) { m.s.Mark(part.String(), layer) }

// shrink compacts what the rest of the layer and the later ones read to the rows of set to. The FFN's pre of the
// previous layer has done its work by then.
func (p *pass) shrink(to *rowSet) error {
	if to == p.in {
		return nil
	}
	w, c := &p.ws, p.cfg
	for _, b := range []struct {
		a, alt *ced.Addr
		bytes  int
		live   bool
	}{
		{&w.h, &w.hAlt, c.HCMult * c.HiddenSize * 2, true},
		{&w.x, &w.xAlt, c.HiddenSize * 2, true},
		{&w.sel, &w.selAlt, c.IndexTopK * 4, p.hasSel},
		{&w.cand, &w.candAlt, c.CandidateTopKBlocks * 4, p.hasCand},
	} {
		if !b.live || to.count == 0 {
			continue
		}
		if err := p.gather(to, to.index, *b.a, *b.alt, b.bytes); err != nil {
			return err
		}
		*b.a, *b.alt = *b.alt, *b.a
	}
	p.in = to
	return nil
}

func (p *pass) gather(count *rowSet, index, src, dst ced.Addr, rowBytes int) error {
	return p.s.RowGather(&ced.RowGatherArgs{
		Rows: count.addr, Index: index, Src: src, Dst: dst, RowBytes: uint64(rowBytes), MaxRows: count.max,
	})
}

// linear enqueues y = x W^T for rows, x as the weight's format wants it: quantised codes for FP8, else BF16.
func (p *pass) linear(rows rowCount, w *linear, x, y ced.Addr, yFormat ced.Format) error {
	a := ced.DenseGEMMArgs{
		Rows: rows.addr, X: x, W: w.w, WScales: w.scales, Y: y, MaxRows: rows.max,
		N: uint32(w.n), K: uint32(w.k), Groups: 1, XFormat: ced.BF16, WFormat: w.format, YFormat: yFormat,
	}
	if w.format == ced.FP8 {
		a.X, a.XScales, a.XFormat = p.ws.codes, p.ws.scales, ced.FP8
	}
	return p.s.DenseGEMM(&a)
}

// normQuant normalises x (w.addr 0: not) into y and quantises the result into ws.codes.
func (p *pass) normQuant(rows rowCount, x ced.Addr, w vector, y ced.Addr, n int, quantise bool) error {
	a := ced.NormQuantArgs{
		Rows: rows.addr, X: x, Weight: w.addr, WeightFormat: w.format, Y: y,
		MaxRows: rows.max, N: uint32(n), Eps: p.cfg.NormEps,
	}
	if quantise {
		a.Codes, a.Scales = p.ws.codes, p.ws.scales
	}
	return p.s.NormQuant(&a)
}

// head computes the logits of the rows that want them (spec 4.2, end).
func (p *pass) head() (int, error) {
	p.mark(plan.PartHead, -1)
	n, rows, index, err := p.wanted()
	if err != nil || n == 0 {
		return 0, err
	}
	c := p.cfg
	if err := p.border(p.ws.pre, p.w.norm, false, hyper{}, 0); err != nil {
		return 0, err
	}
	if err := p.s.RowGather(&ced.RowGatherArgs{
		Rows: rows.addr, Index: index, Src: p.ws.x, Dst: p.ws.outX, RowBytes: uint64(2 * c.HiddenSize), MaxRows: rows.max,
	}); err != nil {
		return 0, err
	}
	a := ced.DenseGEMMArgs{
		Rows: rows.addr, X: p.ws.outX, W: p.w.head.w, Y: p.ws.logits, MaxRows: rows.max,
		N: uint32(c.VocabSize), K: uint32(c.HiddenSize), Groups: 1, XFormat: ced.BF16, WFormat: p.w.head.format, YFormat: ced.F32,
	}
	if err := p.s.DenseGEMM(&a); err != nil {
		return 0, err
	}
	if !p.s.Host() {
		p.mark(plan.PartSampling, -1)
		if err := p.s.Greedy(&ced.GreedyArgs{
			Rows: rows.addr, Logits: p.ws.logits, IDs: p.ws.ids, MaxRows: rows.max, Vocab: uint32(c.VocabSize),
		}); err != nil {
			return 0, err
		}
	}
	return n, p.sub(whole, "logits", p.ws.logits, n, c.VocabSize, ced.F32)
}
