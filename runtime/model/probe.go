package model

import (
	"fmt"
	"slices"

	ced "cedrun/cuda"
	"cedrun/runtime/config"
)

// Tensor is a sub-layer tensor in stream memory, rows x width elements of Format (BF16 or F32) or int32.
type Tensor struct {
	Addr        ced.Addr
	Rows, Width int
	Int         bool // int32 instead of Format
	Format      ced.Format
}

// Bytes is the tensor's size.
func (t Tensor) Bytes() int {
	n := t.Rows * t.Width
	if t.Int || t.Format == ced.F32 {
		return 4 * n
	}
	return 2 * n
}

// Probe watches a step. Sub calls it with each sub-layer tensor under its conformance name (conformance README 2),
// in order of computation, when the tensor is complete; what the probe then writes there is what the model goes on
// with, so that a golden can be fed in. KV is called after a layer's attention, when its global rows and windows are in
// place.
type Probe interface {
	Sub(name string, t Tensor) error
	KV(layer int) error
}

// whole stands for the layer of a tensor that belongs to none.
const whole = -1

func (m *Model) sub(layer int, name string, addr ced.Addr, rows, width int, f ced.Format) error {
	return m.show(layer, name, Tensor{Addr: addr, Rows: rows, Width: width, Format: f})
}

func (m *Model) subInt(layer int, name string, addr ced.Addr, rows, width int) error {
	return m.show(layer, name, Tensor{Addr: addr, Rows: rows, Width: width, Int: true})
}

func (m *Model) show(layer int, name string, t Tensor) error {
	if m.probe == nil {
		return nil
	}
	if layer != whole {
		name = fmt.Sprintf("L%d.%s", layer, name)
	}
	return m.probe.Sub(name, t)
}

// MainKVRows reads the packed main-KV rows [0, n) of an owner layer: codes [n, head_dim/2] and E4M3 scales
// [n, head_dim/16]; IndexKeyRows the packed index keys with UE8M0 scales. For tests and conformance.
func (m *Model) MainKVRows(q *Sequence, layer, n int) (codes, scales []byte, err error) {
	o, _ := m.layout.Owner(layer)
	return m.pageRows(q, n, o.PageRows, o.MainCodes, m.layout.HeadDim/2, o.MainScales, m.layout.HeadDim/16)
}

// IndexKeyRows reads the packed index keys [0, n) of an owner layer: codes [n, index_dim/2], UE8M0 [n, index_dim/32].
func (m *Model) IndexKeyRows(q *Sequence, layer, n int) (codes, scales []byte, err error) {
	o, _ := m.layout.Owner(layer)
	return m.pageRows(q, n, o.PageRows, o.IndexCodes, m.layout.IndexDim/2, o.IndexScales, m.layout.IndexDim/32)
}

func (m *Model) pageRows(q *Sequence, n, perPage, codesAt, codesLen, scalesAt, scalesLen int) (codes, scales []byte, err error) {
	codes, scales = make([]byte, n*codesLen), make([]byte, n*scalesLen)
	for j := 0; j < n && err == nil; j++ {
		page := m.pages + ced.Addr(int(q.pages[j/perPage])*m.layout.PageBytes)
		r := j % perPage
		if err = m.s.Download(codes[j*codesLen:(j+1)*codesLen], page+ced.Addr(codesAt+r*codesLen)); err == nil {
			err = m.s.Download(scales[j*scalesLen:(j+1)*scalesLen], page+ced.Addr(scalesAt+r*scalesLen))
		}
	}
	return codes, scales, err
}

// WindowRow reads the packed window row of a position: head_dim e4m3 codes, then head_dim/32 UE8M0 scales.
func (m *Model) WindowRow(q *Sequence, layer, pos int) ([]byte, error) {
	b := make([]byte, m.rowBytes())
	at := m.ring(layer) + ced.Addr((q.slot*m.ringRows()+pos%m.ringRows())*len(b))
	return b, m.s.Download(b, at)
}

// probeScores makes the indexer write its scores too, for as many groups as the step's last row sees.
func (p *pass) probeScores(a *ced.CSA2IndexArgs, s config.Layer) error {
	width := 0
	for i, sp := range p.spans {
		width = max(width, (p.first[i]+len(sp.Tokens))/s.Ratio)
	}
	p.width = width
	if width == 0 {
		return nil
	}
	var err error
	if a.Scores, err = p.s.Alloc(4 * p.in.count * width); err != nil {
		return err
	}
	p.ws.scoreProbe, a.ScoreStride = a.Scores, uint32(width)
	return nil
}

func (p *pass) tapSelection(l int, s config.Layer) error {
	defer func() {
		p.s.Free(p.ws.scoreProbe)
		p.ws.scoreProbe = 0
	}()
	c, n := p.cfg, p.in.count
	if p.width > 0 {
		if err := p.sub(l, "index_score", p.ws.scoreProbe, n, p.width, ced.F32); err != nil {
			return err
		}
	}
	if s.CandidateSource {
		if err := p.subInt(whole, "candidates", p.ws.cand, n, c.CandidateTopKBlocks); err != nil {
			return err
		}
	}
	return p.subInt(l, "sel", p.ws.sel, n, c.IndexTopK)
}

// tap shows the mean of the streams that enter a draft target layer (spec/serving 2.3).
func (p *pass) tap(l int) error {
	c := p.cfg
	if p.probe == nil || !slices.Contains(c.Draft.Targets, l) {
		return nil
	}
	mean := make([]float32, p.in.count*c.HCMult)
	for i := range mean {
		mean[i] = 1 / float32(c.HCMult)
	}
	pre, err := p.s.Alloc(4 * len(mean))
	if err != nil {
		return err
	}
	defer p.s.Free(pre)
	if err := p.s.Upload(pre, bytesOf(mean)); err != nil {
		return err
	}
	if err := p.s.MHCCollapse(&ced.MHCCollapseArgs{
		Rows: p.in.addr, H: p.ws.h, Pre: pre, X: p.ws.x,
		MaxRows: p.in.max, Dim: uint32(c.HiddenSize), Streams: uint32(c.HCMult),
	}); err != nil {
		return err
	}
	return p.sub(l, "main_hidden", p.ws.x, p.in.count, c.HiddenSize, ced.BF16)
}
