package model

import (
	"fmt"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
	"cedrun/runtime/config"
	"cedrun/runtime/experts"
)

// linear is a weight matrix as stored.
type linear struct {
	w, scales ced.Addr
	n, k      int
	format    ced.Format
}

// vector is a norm weight, bias or sink as stored.
type vector struct {
	addr   ced.Addr
	format ced.Format
}

type hyper struct{ fn, base, scale ced.Addr }

type compressor struct {
	wkv, wgate linear
	norm       vector
	wk         linear
	kNorm      vector
}

type indexer struct{ wqB, weights linear }

type engramWeights struct {
	table, scales ced.Addr // 0 when the table is not in place: rows are then staged by the host
	fetch         *rowFetch
	rows          int
	wkv           linear
	q, k          vector
}

// layerWeights are the tensors of one layer (spec 2.2).
type layerWeights struct {
	attnNorm, ffnNorm, qNorm, kvNorm vector
	wqA, wqB, wkv, woA, woB          linear
	sink                             ced.Addr
	hcAttn, hcFFN                    hyper
	compressor                       *compressor
	indexer                          *indexer
	engram                           *engramWeights
	gate                             linear
	bias, biasVL                     vector
	experts                          ced.Addr // ced.Expert per routed expert
	shared                           ced.Expert
	pages                            *expertPages // nil: nothing to read ahead
}

type weights struct {
	embed, head linear
	norm        vector
	layers      []layerWeights
}

// loader resolves tensors to addresses. On a host stream they are read in place, from the mapped file; a device gets a copy.
type loader struct {
	ck    *checkpoint.Checkpoint
	arena *arena   // nil: in place
	host  *arena   // for routed experts of which a device holds a part
	stage ced.Addr // page-locked: an expert on its way to a device
	err   error
}

func (l *loader) bytes(name string) ced.Addr {
	b := l.data(name)
	if l.arena == nil || len(b) == 0 {
		return ced.HostAddr(b)
	}
	a, err := l.arena.put(b)
	if err != nil {
		l.err = fmt.Errorf("load %s: %w", name, err)
	}
	return a
}

func (l *loader) data(name string) []byte {
	if l.err != nil {
		return nil
	}
	b, err := l.ck.Bytes(name)
	if err != nil {
		l.err = fmt.Errorf("load %s: %w", name, err)
	}
	return b
}

func (l *loader) tensor(name string) (checkpoint.Tensor, bool) {
	t, ok := l.ck.Tensor(name)
	if !ok && l.err == nil {
		l.err = fmt.Errorf("load %s: the checkpoint has no such tensor", name)
	}
	return t, ok
}

func formatOf(t checkpoint.Tensor) ced.Format {
	switch t.DType {
	case checkpoint.F32:
		return ced.F32
	case checkpoint.F8E4M3:
		return ced.FP8
	case checkpoint.I8:
		return ced.FP4
	}
	return ced.BF16
}

func (l *loader) vector(name string) vector {
	t, ok := l.tensor(name)
	if !ok {
		return vector{}
	}
	return vector{l.bytes(name), formatOf(t)}
}

// linear loads stem.weight and, for a quantised one, stem.scale.
func (l *loader) linear(stem string) linear {
	t, ok := l.tensor(stem + ".weight")
	if !ok || len(t.Shape) != 2 {
		return linear{}
	}
	m := linear{w: l.bytes(stem + ".weight"), n: int(t.Shape[0]), k: int(t.Shape[1]), format: formatOf(t)}
	switch m.format {
	case ced.FP4:
		m.k *= 2
		fallthrough
	case ced.FP8:
		m.scales = l.bytes(stem + ".scale")
	}
	return m
}

func (l *loader) hyper(stem string) hyper {
	return hyper{l.bytes(stem + "_fn"), l.bytes(stem + "_base"), l.bytes(stem + "_scale")}
}

// expertTensors are the parts of an expert.
var expertTensors = []string{"w1.weight", "w1.scale", "w3.weight", "w3.scale", "w2.weight", "w2.scale"}

func (l *loader) expert(stem string) ced.Expert {
	a := func(n string) ced.Addr { return l.bytes(stem + n) }
	return ced.Expert{
		W1: a("w1.weight"), W1Scales: a("w1.scale"), W3: a("w3.weight"), W3Scales: a("w3.scale"),
		W2: a("w2.weight"), W2Scales: a("w2.scale"),
	}
}

func (m *Model) layerWeights(l *loader, s config.Layer, i int) layerWeights {
	c, p := m.cfg, fmt.Sprintf("layers.%d.", i)
	a := p + "attn."
	w := layerWeights{
		attnNorm: l.vector(p + "attn_norm.weight"), ffnNorm: l.vector(p + "ffn_norm.weight"),
		qNorm: l.vector(a + "q_norm.weight"), kvNorm: l.vector(a + "kv_norm.weight"),
		wqA: l.linear(a + "wq_a"), wqB: l.linear(a + "wq_b"), wkv: l.linear(a + "wkv"),
		woA: l.linear(a + "wo_a"), woB: l.linear(a + "wo_b"),
		sink:   l.bytes(a + "attn_sink"),
		hcAttn: l.hyper(p + "hc_attn"), hcFFN: l.hyper(p + "hc_ffn"),
		gate: l.linear(p + "ffn.gate"), bias: l.vector(p + "ffn.gate.bias"),
	}
	if _, ok := l.ck.Tensor(p + "ffn.gate.bias_vl"); ok {
		w.biasVL = l.vector(p + "ffn.gate.bias_vl")
	}
	if c.SharedExperts > 0 {
		w.shared = l.expert(p + "ffn.shared_experts.")
	}
	if s.OwnsKV {
		w.compressor = &compressor{
			wkv: l.linear(a + "compressor.wkv"), norm: l.vector(a + "compressor.norm.weight"),
			wk: l.linear(a + "indexer.wk"), kNorm: l.vector(a + "indexer.k_norm.weight"),
		}
		if s.Ratio > 1 {
			w.compressor.wgate = l.linear(a + "compressor.wgate")
		}
	}
	if s.OwnsIndex {
		w.indexer = &indexer{wqB: l.linear(a + "indexer.wq_b"), weights: l.linear(a + "indexer.weights_proj")}
	}
	if s.Engram >= 0 {
		e := p + "engram."
		w.engram = &engramWeights{wkv: l.linear(e + "wkv"), q: l.vector(e + "q_weight"), k: l.vector(e + "k_weight")}
		if t, ok := l.tensor(e + "embed.weight"); ok {
			w.engram.rows = int(t.Shape[0])
		}
		if m.inPlace() {
			w.engram.table, w.engram.scales = l.bytes(e+"embed.weight"), l.bytes(e+"embed.scale")
		}
		w.engram.fetch = m.newRowFetch(l, e)
	}
	return w
}

// load resolves every backbone tensor; experts become one table of addresses per layer in stream memory.
func (m *Model) load() error {
	l, c := &loader{ck: m.ck}, m.cfg
	if !m.s.Host() {
		l.arena, l.host = &arena{m: m}, &arena{m: m, host: true}
		defer func() { m.s.HostFree(l.stage) }()
	}
	if err := m.newHostExperts(); err != nil {
		return err
	}
	slots, err := m.newExpertSlots(l)
	if err != nil {
		return err
	}
	m.w.embed, m.w.head, m.w.norm = l.linear("embed"), l.linear("head"), l.vector("norm.weight")
	for i, s := range m.schedule {
		w := m.layerWeights(l, s, i)
		table := make([]ced.Expert, c.Experts)
		var tensors [][][]byte
		for e := range table {
			stem := fmt.Sprintf("layers.%d.ffn.experts.%d.", i, e)
			if m.byHost != nil {
				table[e] = m.byHost.place(l, experts.Key{Layer: i, Expert: e}, stem)
				continue
			}
			if slots != nil {
				table[e] = slots.place(l, experts.Key{Layer: i, Expert: e}, stem)
				continue
			}
			if !m.s.Host() {
				table[e] = l.packed(shapeOf(c), stem)
				continue
			}
			table[e] = l.expert(stem)
			if m.opt.Prefetch && !(m.opt.Warmed && m.opt.Stays) && m.inPlace() {
				var parts [][]byte
				for _, n := range expertTensors {
					parts = append(parts, l.data(stem+n))
				}
				tensors = append(tensors, parts)
			}
		}
		if l.err != nil {
			return l.err
		}
		m.byHost.readAhead(m, i)
		if w.experts, err = m.upload(bytesOf(table)); err != nil {
			return fmt.Errorf("layer %d: expert table: %w", i, err)
		}
		if slots != nil {
			slots.tables = append(slots.tables, w.experts)
		}
		if tensors != nil {
			w.pages = newExpertPages(tensors, m.opt.StepRows*c.ExpertsPerToken, !m.ck.Observable())
		}
		m.w.layers = append(m.w.layers, w)
	}
	return l.err
}
