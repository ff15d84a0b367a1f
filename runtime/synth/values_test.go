package synth

import (
	"math"
	"math/rand/v2"
	"testing"

	"cedrun/runtime/checkpoint"
)

// quantised are histograms of codes and scales.
type quantised struct {
	codes  [256]float64
	scales [256]float64
}

func (q *quantised) add(codes, scales []byte, packed bool) {
	for _, c := range codes {
		if packed {
			q.codes[c&15]++
			q.codes[c>>4]++
		} else {
			q.codes[c]++
		}
	}
	for _, s := range scales {
		q.scales[s]++
	}
}

// distance is half the sum of the differences of two histograms' shares.
func distance(a, b [256]float64) float64 {
	var sa, sb, d float64
	for i := range a {
		sa += a[i]
		sb += b[i]
	}
	for i := range a {
		d += math.Abs(a[i]/sa - b[i]/sb)
	}
	return d / 2
}

// reference quantises real normal values, block by block, as the release does (spec model.md 2.3).
func reference(f format, deviation float64, blocks, length int) *quantised {
	r := rand.New(rand.NewPCG(1, 2))
	top := f.values[len(f.values)-1]
	q := &quantised{}
	w := make([]float64, length)
	for range blocks {
		largest := 0.
		for i := range w {
			w[i] = deviation * r.NormFloat64()
			largest = max(largest, math.Abs(w[i]))
		}
		exponent := math.Ceil(math.Log2(largest / top))
		q.scales[int(exponent)+127]++
		for _, x := range w {
			x /= math.Exp2(exponent)
			code := 0
			for c, v := range f.values {
				if math.Abs(v-math.Abs(x)) < math.Abs(f.values[code]-math.Abs(x)) {
					code = c
				}
			}
			if x < 0 {
				code |= int(f.sign)
			}
			q.codes[code]++
		}
	}
	return q
}

func TestCodesAreDistributedAsThoseOfQuantisedNormalValues(t *testing.T) {
	for _, c := range []struct {
		name   string
		spec   checkpoint.Spec
		height int64 // rows that share a scale; 0 = FP4
		format format
	}{
		{"fp4", checkpoint.Spec{Name: "layers.0.ffn.experts.0.w1.weight", Stored: checkpoint.I8, Shape: []int64{1024, 1024}}, 0, fp4()},
		{"fp8 blocks", checkpoint.Spec{Name: "layers.0.attn.wq_a.weight", Stored: checkpoint.F8E4M3, Shape: []int64{1024, 1536}}, block, fp8()},
		{"fp8 rows", checkpoint.Spec{Name: "layers.0.engram.embed.weight", Stored: checkpoint.F8E4M3, Shape: []int64{2048, 256}, Role: checkpoint.Engram}, 1, fp8()},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMaker(7, []checkpoint.File{{Tensors: []checkpoint.Spec{c.spec}}})
			var codes, scales []byte
			length := block * int(max(c.height, 1))
			if c.height == 0 {
				codes, scales = m.packed(&c.spec, 0, c.spec.Shape[0], nil, nil)
			} else {
				codes, scales = m.blocked(&c.spec, c.height, 0, c.spec.Shape[0], nil, nil)
			}
			if want := int(c.spec.Shape[0] * c.spec.Shape[1]); len(codes) != want {
				t.Fatalf("%d bytes of codes, want %d", len(codes), want)
			}
			got := &quantised{}
			got.add(codes, scales, c.height == 0)
			_, deviation := Magnitude(&c.spec)
			want := reference(c.format, deviation, len(scales), length)
			// Two samples of this size differ by a few parts in a thousand.
			if d := distance(got.codes, want.codes); d > 0.01 {
				t.Errorf("codes differ by %.4f", d)
			}
			if d := distance(got.scales, want.scales); d > 0.05 {
				t.Errorf("scales differ by %.4f", d)
			}
		})
	}
}

func TestAPartOfATensorIsThePartOfTheWhole(t *testing.T) {
	fp4 := checkpoint.Spec{Name: "a.w1.weight", Stored: checkpoint.I8, Shape: []int64{100, 64}}
	fp8 := checkpoint.Spec{Name: "a.wq_a.weight", Stored: checkpoint.F8E4M3, Shape: []int64{100, 96}}
	norm := checkpoint.Spec{Name: "a.attn_norm.weight", Stored: checkpoint.BF16, Shape: []int64{101}}
	m := newMaker(1, []checkpoint.File{{Tensors: []checkpoint.Spec{fp4, fp8, norm}}})

	codes, scales := m.packed(&fp4, 0, 100, nil, nil)
	part, partScales := m.packed(&fp4, 33, 20, nil, nil)
	if string(part) != string(codes[33*64:53*64]) || string(partScales) != string(scales[33*4:53*4]) {
		t.Error("FP4 rows differ")
	}
	codes, scales = m.blocked(&fp8, block, 0, 100, nil, nil)
	part, partScales = m.blocked(&fp8, block, 64, 36, nil, nil)
	if string(part) != string(codes[64*96:]) || string(partScales) != string(scales[2*3:]) || len(scales) != 4*3 {
		t.Error("FP8 rows differ")
	}
	values := m.plain(&norm, 0, 101, nil)
	if part := m.plain(&norm, 64, 37, nil); string(part) != string(values[128:]) || len(values) != 202 {
		t.Error("BF16 elements differ")
	}
}

func TestCodecTables(t *testing.T) {
	f := fp8()
	for code, want := range map[int]float64{0: 0, 1: math.Exp2(-9), 8: math.Exp2(-6), 0x38: 1, 0x39: 1.125, 126: 448} {
		if f.values[code] != want {
			t.Errorf("e4m3 %#x is %g, want %g", code, f.values[code], want)
		}
	}
	if q := normal(); math.Abs(float64(q[ranks/2])-0.6745) > 1e-3 || q[ranks-1] < 4.32 || q[ranks-1] > 4.33 {
		t.Errorf("median %g, largest %g", q[ranks/2], q[ranks-1])
	}
}
