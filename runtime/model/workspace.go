package model

import (
	"fmt"

	ced "cedrun/cuda"
)

// workspace holds the step buffers, each for StepRows rows; names follow the forward pass. Pairs are double buffers:
// compaction copies from one to the other.
type workspace struct {
	h, hAlt, pre           ced.Addr // streams BF16 [rows, hc, dim]; pre F32 [rows, hc]
	aPre, post, comb       ced.Addr // mixes F32
	x, xAlt                ced.Addr // normed sub-layer input BF16 [rows, dim]
	y                      ced.Addr // sub-layer output BF16 [rows, dim]
	codes, scales          ced.Addr // quantised activations, widest k
	qr, q, o               ced.Addr // BF16 [rows, q_lora], [rows, heads, head_dim] twice
	z                      ced.Addr // BF16 [rows, o_groups*o_lora]
	window, packed         ced.Addr // BF16 [rows, head_dim]; packed window rows
	a, g, latent, key      ced.Addr // compressor, F32 [rows, head_dim] twice; BF16 [rows, head_dim], [rows, index_dim]
	iq, iw                 ced.Addr // indexer queries BF16 [rows, heads, dim], weights BF16 [rows, heads]
	sel, selAlt            ced.Addr // i32 [rows, top_k]
	cand, candAlt          ced.Addr // i32 [rows, blocks]
	scoreProbe             ced.Addr // F32 [rows, groups], with a probe only
	routeLogits, idx, wt   ced.Addr // router
	ids, staged, stagedScl ced.Addr // Engram row ids i64 [rows, cols]; rows read by the host when the table is not mapped
	e, ekv                 ced.Addr // Engram values BF16 [rows, cols*dim], key and value [rows, (hc+1)*dim]
	logits                 ced.Addr // F32 [outputs, vocab]
	outX                   ced.Addr // BF16 [outputs, dim]
	groups, outputs        ced.Addr // ced.Groups; output rows
	rowSets                ced.Addr
	rowSetBytes            int
	scratchIndex           ced.Addr
	scratchAttend          ced.Addr
	scratchExpert          ced.Addr
}

func (w *workspace) allocate(m *Model) error {
	c, o := m.cfg, m.opt
	r, d, hc := o.StepRows, c.HiddenSize, c.HCMult
	cols := 0
	if len(c.Engram.Layers) > 0 {
		cols = c.Engram.Columns()
	}
	widest := max(d, c.QLoraRank, c.OGroups*c.OLoraRank, cols*c.Engram.HeadDim)
	w.rowSetBytes = (64 + 7*(4*r+16) + 4*o.Slots + 63) &^ 63
	sets := c.Layers + len(c.KVSources) + 4 // of all rows, one in every layer, another in KV sources
	logged := 1                             // layers whose choices a step keeps
	if m.slots != nil {
		logged = c.Layers
	}
	blocks := max(c.CandidateTopKBlocks, 1)
	bufs := []struct {
		dst *ced.Addr
		n   int
	}{
		{&w.h, r * hc * d * 2}, {&w.hAlt, r * hc * d * 2}, {&w.pre, r * hc * 4},
		{&w.aPre, r * hc * 4}, {&w.post, r * hc * 4}, {&w.comb, r * hc * hc * 4},
		{&w.x, r * d * 2}, {&w.xAlt, r * d * 2}, {&w.y, r * d * 2},
		{&w.codes, r * widest}, {&w.scales, r * widest / 32},
		{&w.qr, r * c.QLoraRank * 2}, {&w.q, r * c.Heads * c.HeadDim * 2}, {&w.o, r * c.Heads * c.HeadDim * 2},
		{&w.z, r * c.OGroups * c.OLoraRank * 2},
		{&w.window, r * c.HeadDim * 2}, {&w.packed, r * m.rowBytes()},
		{&w.a, r * c.HeadDim * 4}, {&w.g, r * c.HeadDim * 4}, {&w.latent, r * c.HeadDim * 2}, {&w.key, r * c.IndexHeadDim * 2},
		{&w.iq, r * c.IndexHeads * c.IndexHeadDim * 2}, {&w.iw, r * c.IndexHeads * 2},
		{&w.sel, r * c.IndexTopK * 4}, {&w.selAlt, r * c.IndexTopK * 4},
		{&w.cand, r * blocks * 4}, {&w.candAlt, r * blocks * 4},
		{&w.routeLogits, r * c.Experts * 4}, {&w.idx, logged * m.routeBytes()}, {&w.wt, r * c.ExpertsPerToken * 4},
		{&w.ids, r * cols * 8}, {&w.staged, r * cols * c.Engram.HeadDim}, {&w.stagedScl, r * cols * c.Engram.HeadDim / 32},
		{&w.e, r * cols * c.Engram.HeadDim * 2}, {&w.ekv, r * (hc + 1) * d * 2},
		{&w.logits, o.Outputs * c.VocabSize * 4}, {&w.outX, o.Outputs * d * 2},
		{&w.groups, 64 + 4*r}, {&w.outputs, 64 + 4*r},
		{&w.rowSets, sets * w.rowSetBytes},
	}
	var err error
	for _, b := range bufs {
		if *b.dst, err = m.alloc(b.n); err != nil {
			return fmt.Errorf("step buffers for %d rows: %w", r, err)
		}
	}
	ix, at, ex := m.indexArgs(nil, 0), ced.CSA2AttendArgs{}, m.expertArgs(whole, 0)
	m.attendShape(&at)
	if w.scratchIndex, err = m.alloc(m.s.CSA2IndexWorkspace(&ix)); err == nil {
		if w.scratchAttend, err = m.alloc(m.s.CSA2AttendWorkspace(&at)); err == nil {
			w.scratchExpert, err = m.alloc(m.s.ExpertGEMMWorkspace(&ex))
		}
	}
	if err != nil {
		return fmt.Errorf("kernel workspaces: %w", err)
	}
	m.pass = pass{Model: m, step: step{sets: make([]rowSet, sets), packed: newPacked(w.rowSetBytes)}}
	return nil
}

func (m *Model) rowBuffer(i int) ced.Addr { return m.ws.rowSets + ced.Addr(i*m.ws.rowSetBytes) }
