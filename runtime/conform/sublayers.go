package conform

import (
	"fmt"
	"math"
	"slices"

	ced "cedrun/cuda"
	"cedrun/runtime/model"
)

const subLayerSection = "sub-layers"

// subLayers feeds golden inputs into every sub-layer of one exact prefill.
func (r *run) subLayers() error {
	if r.robust() {
		return nil
	}
	r.hashes()
	return r.with(model.Exact, len(r.ids), false, func(s *session) error {
		_, err := s.feed(r.ids, 0, &feedProbe{run: r, s: s})
		return err
	})
}

// hashes compares the Engram row ids, which no kernel computes.
func (r *run) hashes() {
	for _, l := range r.Config.Engram.Layers {
		name := fmt.Sprintf("L%d.engram_hash", l)
		if want, ok := r.g.get(name); ok {
			r.add(subLayerSection, name, "R0", bitEqual, floats(r.Rows.AppendRows(nil, l, nil, r.Rows.Compress(nil, r.ids, nil))), want, r.g.width(name))
		}
	}
}

// feedProbe compares each sub-layer tensor and then replaces it by the golden.
type feedProbe struct {
	*run
	s *session
}

func (p *feedProbe) level(name string) (string, rule) {
	if p.canonical {
		return "R1", bitEqual
	}
	return "R2", subLayerRule(name)
}

// Sub implements model.Probe.
func (p *feedProbe) Sub(name string, t model.Tensor) error {
	want, ok := p.g.get(name)
	if !ok {
		return nil
	}
	b := make([]byte, t.Bytes())
	if err := p.Stream.Download(b, t.Addr); err != nil {
		return err
	}
	level, ru := p.level(name)
	if t.Int {
		got, ru := p.integers(name, ints(b), t.Width, want, ru)
		p.add(subLayerSection, name, level, ru, got, p.padded(name, want), p.g.width(name))
		return nil
	}
	got := f32s(b)
	if t.Format == ced.BF16 {
		got = bf16s(b)
	}
	p.add(subLayerSection, name, level, ru, got, want, t.Width)
	if len(got) != len(want) {
		return nil
	}
	switch suffix(name) {
	case "qr", "latent", "index_score", "logits": // compared only, as the goldens' own check does
		return nil
	}
	return p.Stream.Upload(t.Addr, encode(want, t.Format == ced.BF16))
}

// padded turns a golden selection (ascending, -1 anywhere) into rows that end in -1.
func (p *feedProbe) padded(name string, want []float32) []float32 {
	if suffix(name) != "sel" {
		return want
	}
	w := p.g.width(name)
	out := slices.Clone(want)
	for i := 0; i+w <= len(out); i += w {
		row := out[i : i+w]
		k := 0
		for _, x := range row {
			if x >= 0 {
				row[k] = x
				k++
			}
		}
		for ; k < w; k++ {
			row[k] = -1
		}
	}
	return out
}

// integers brings routes, selections and candidate blocks into the golden's form and picks their rule.
func (p *feedProbe) integers(name string, got []int32, width int, want []float32, ru rule) ([]float32, rule) {
	w := p.g.width(name)
	rows := len(got) / width
	switch suffix(name) {
	case "sel":
		if w > width {
			return floats(got), ru // too wide to be compared
		}
		out := make([]float32, 0, rows*w)
		for i := 0; i < rows; i++ {
			out = append(out, floats(got[i*width:i*width+w])...)
		}
		if !p.canonical {
			ru = p.nearTies(name)
		}
		return out, ru
	case "candidates":
		out := make([]float32, rows*w)
		for i := 0; i < rows; i++ {
			for _, b := range got[i*width : (i+1)*width] {
				for j := int(b) * p.Config.CandidateBlock; b >= 0 && j < min((int(b)+1)*p.Config.CandidateBlock, w); j++ {
					out[i*w+j] = 1
				}
			}
		}
		return out, ru
	}
	return floats(got), ru
}

// nearTies forgives a selection whose exchanged rows score within one bf16 ulp of each other in the golden.
func (p *feedProbe) nearTies(name string) rule {
	return rule{"equal but for scores within 1 bf16 ulp of the k-th", func(got, want []float32, width int) string {
		scoreName := name[:len(name)-len("sel")] + "index_score"
		groups := p.g.width(scoreName)
		score := func(row int, x float32) float64 {
			if g := int(x); g >= 0 && g < groups && row < p.g.rows(scoreName) {
				return float64(p.g.vals[scoreName][row*groups+g])
			}
			return math.NaN()
		}
		for i := 0; i*width < len(want); i++ {
			g, w := got[i*width:(i+1)*width], want[i*width:(i+1)*width]
			kth := math.Inf(1)
			for _, x := range w {
				if x >= 0 {
					kth = min(kth, score(i, x))
				}
			}
			for _, pair := range [][2][]float32{{g, w}, {w, g}} {
				for _, x := range pair[0] {
					if !slices.Contains(pair[1], x) && !(math.Abs(score(i, x)-kth) <= ulp(kth)) {
						return fmt.Sprintf("row %d: selected %v, want %v", i, g, w)
					}
				}
			}
		}
		return ""
	}}
}

// KV implements model.Probe: the caches that the layer's attention left behind.
func (p *feedProbe) KV(l int) error {
	c, q := p.Config, p.s.q
	n := len(p.ids)
	if slices.Contains(c.KVSources, l) {
		groups := n / c.CompressRatios[l]
		for _, k := range []struct {
			name string
			read func(*model.Sequence, int, int) ([]byte, []byte, error)
			fp4  func(codes, scales []byte) []float32
		}{
			{"compress_kv", p.s.m.MainKVRows, func(a, b []byte) []float32 { return fp4Rows(a, b, 16, e4m3) }},
			{"index_k", p.s.m.IndexKeyRows, func(a, b []byte) []float32 { return fp4Rows(a, b, 32, e8m0) }},
		} {
			name := fmt.Sprintf("L%d.%s", l, k.name)
			want, ok := p.g.get(name)
			if !ok {
				continue
			}
			codes, scales, err := k.read(q, l, groups)
			if err != nil {
				return err
			}
			level, ru := p.level(name)
			p.add(subLayerSection, name, level, ru, k.fp4(codes, scales), want, p.g.width(name))
		}
	}
	name := fmt.Sprintf("L%d.window_ring", l)
	want, ok := p.g.get(name)
	if !ok {
		return nil
	}
	got := make([]float32, c.Window*c.HeadDim)
	for pos := max(0, n-c.Window); pos < n; pos++ {
		b, err := p.s.m.WindowRow(q, l, pos)
		if err != nil {
			return err
		}
		copy(got[pos%c.Window*c.HeadDim:], windowRow(b, c.HeadDim))
	}
	level, ru := p.level(name)
	p.add(subLayerSection, name, level, ru, got, want, c.HeadDim)
	return nil
}

// tapProbe collects the draft taps of a prefill.
type tapProbe struct {
	*run
	taps [][]float32
}

// Sub implements model.Probe.
func (p *tapProbe) Sub(name string, t model.Tensor) error {
	if suffix(name) != "main_hidden" {
		return nil
	}
	b := make([]byte, t.Bytes())
	err := p.Stream.Download(b, t.Addr)
	p.taps = append(p.taps, bf16s(b))
	return err
}

// KV implements model.Probe.
func (p *tapProbe) KV(int) error { return nil }

// joined concatenates the taps of each row.
func (p *tapProbe) joined(rows int) []float32 {
	var out []float32
	for i := 0; i < rows; i++ {
		for _, t := range p.taps {
			w := len(t) / rows
			out = append(out, t[i*w:(i+1)*w]...)
		}
	}
	return out
}

func suffix(name string) string {
	for i := len(name) - 1; i >= 0; i-- {
		if name[i] == '.' {
			return name[i+1:]
		}
	}
	return name
}

func ints(b []byte) []int32 {
	out := make([]int32, len(b)/4)
	for i := range out {
		out[i] = int32(b[4*i]) | int32(b[4*i+1])<<8 | int32(b[4*i+2])<<16 | int32(b[4*i+3])<<24
	}
	return out
}
