package model

import (
	"fmt"

	ced "cedrun/cuda"
)

// workspace holds the step buffers, each for StepRows rows; names follow the forward pass. Pairs are double buffers:
// compaction copies from one to the other.
type workspace struct {
	h, hAlt, pre         ced.Addr // streams BF16 [rows, hc, dim]; pre F32 [rows, hc]
	aPre, post, comb     ced.Addr // mixes F32
	x, xAlt              ced.Addr // normed sub-layer input BF16 [rows, dim]
	y                    ced.Addr // sub-layer output BF16 [rows, dim]
	codes, scales        ced.Addr // quantised activations, widest k
	qr, q, o             ced.Addr // BF16 [rows, q_lora], [rows, heads, head_dim] twice
	z                    ced.Addr // BF16 [rows, o_groups*o_lora]
	window, packed       ced.Addr // BF16 [rows, head_dim]; packed window rows
	a, g, latent, key    ced.Addr // compressor, F32 [rows, head_dim] twice; BF16 [rows, head_dim], [rows, index_dim]
	iq, iw               ced.Addr // indexer queries BF16 [rows, heads, dim], weights BF16 [rows, heads]
	sel, selAlt          ced.Addr // i32 [rows, top_k]
	cand, candAlt        ced.Addr // i32 [rows, blocks]
	scoreProbe           ced.Addr // F32 [rows, groups], with a probe only
	routeLogits, idx, wt ced.Addr // router
	engram               []engramRows
	e, ekv               ced.Addr // Engram values BF16 [rows, cols*dim], key and value [rows, (hc+1)*dim]
	logits               ced.Addr // F32 [outputs, vocab]
	ids                  ced.Addr // i32 [outputs], the likeliest token of each row of logits
	outX                 ced.Addr // BF16 [outputs, dim]
	groups               ced.Addr // ced.Groups per KV source, groupBytes apart
	groupBytes           int
	outputs              ced.Addr // output rows
	rowSets              ced.Addr
	rowSetBytes          int
	scratchIndex         ced.Addr
	scratchAttend        ced.Addr
	scratchExpert        ced.Addr
}

// engramRows is what the host knows of an Engram layer before the step.
type engramRows struct {
	ids               ced.Addr // i64 [rows, cols] table rows
	staged, stagedScl ced.Addr // rows read by the host when the table is not mapped
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
	w.groupBytes = (64 + 4*r + 63) &^ 63
	type buffer struct {
		dst *ced.Addr
		n   int
	}
	bufs := []buffer{
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
		{&w.routeLogits, r * c.Experts * 4}, {&w.idx, logged * m.routeBytes(r)}, {&w.wt, r * c.ExpertsPerToken * 4},
		{&w.e, r * cols * c.Engram.HeadDim * 2}, {&w.ekv, r * (hc + 1) * d * 2},
		{&w.logits, o.Outputs * c.VocabSize * 4}, {&w.ids, o.Outputs * 4}, {&w.outX, o.Outputs * d * 2},
		{&w.groups, len(c.KVSources) * w.groupBytes}, {&w.outputs, 64 + 4*r},
		{&w.rowSets, sets * w.rowSetBytes},
	}
	w.engram = make([]engramRows, len(c.Engram.Layers))
	for i := range w.engram {
		e, n := &w.engram[i], r*cols*c.Engram.HeadDim
		bufs = append(bufs, buffer{&e.ids, r * cols * 8}, buffer{&e.staged, n}, buffer{&e.stagedScl, n / 32})
	}
	var err error
	for _, b := range bufs {
		if *b.dst, err = m.alloc(b.n); err != nil {
			return fmt.Errorf("step buffers for %d rows: %w", r, err)
		}
	}
	for i, n := range m.kernelWorkspaces() {
		if *[]*ced.Addr{&w.scratchIndex, &w.scratchAttend, &w.scratchExpert}[i], err = m.alloc(n); err != nil {
			return fmt.Errorf("kernel workspaces: %w", err)
		}
	}
	m.pass = pass{Model: m, step: step{sets: make([]rowSet, sets), packed: newPacked(w.rowSetBytes)}}
	return nil
}

// kernelWorkspaces are the bytes that the kernels want between them: of the indexer, attention and the experts.
func (m *Model) kernelWorkspaces() [3]int {
	all := rowCount{max: uint32(m.opt.StepRows)}
	ix, at, ex := m.indexArgs(nil, all), ced.CSA2AttendArgs{MaxRows: all.max}, m.expertArgs(whole, all)
	m.attendShape(&at)
	return [3]int{m.s.CSA2IndexWorkspace(&ix), m.s.CSA2AttendWorkspace(&at), m.s.ExpertGEMMWorkspace(&ex)}
}

func (m *Model) rowBuffer(i int) ced.Addr { return m.ws.rowSets + ced.Addr(i*m.ws.rowSetBytes) }
