package profile

import (
	"cmp"
	"errors"
	"io"
	"math"
	"slices"
)

// point is a kernel in the plane of the plot.
type point struct {
	phase     string
	label     string
	intensity float64 // FLOPs per byte
	rate      float64 // GFLOP/s
	share     float64 // of the phase
	ofLimit   float64
}

// points are the kernels whose bytes and FLOPs are known, by phase, the longest first.
func (r *Report) points() (out []point) {
	for i := range r.Phases {
		p := &r.Phases[i]
		rows := p.Kernels()
		slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Compare(b.Took, a.Took) })
		for _, x := range rows {
			if x.Bytes <= 0 || x.FLOPs <= 0 || x.Took <= 0 {
				continue
			}
			out = append(out, point{
				phase: p.Name, label: x.Part + ", " + x.Kernel, intensity: x.FLOPs / x.Bytes, rate: x.FLOPs / 1e9 / x.Took.Seconds(),
				share: x.Share, ofLimit: x.OfLimit,
			})
		}
	}
	return out
}

// WriteRoofline draws kernels under the machine's ceilings as SVG: GFLOP/s over FLOPs per byte of weights, cache and table
// rows, both axes logarithmic. Kernels without counted FLOPs have no place in it.
func (r *Report) WriteRoofline(w io.Writer) error {
	if r.Limits == nil || r.Limits.Read <= 0 || r.Limits.F32 <= 0 {
		return errors.New("the machine's rates were not measured")
	}
	d := newDrawing(r)
	if len(d.points) == 0 {
		return errors.New("no step was recorded whose work is known")
	}
	d.grid()
	d.markers()
	d.ceilings()
	d.numbers()
	d.legend()
	return d.write(w)
}

// scale maps a logarithmic axis to pixels.
type scale struct {
	low, high float64 // exponents of ten
	from, to  float64 // pixels
}

func (s *scale) at(v float64) float64 {
	return s.from + (math.Log10(v)-s.low)/(s.high-s.low)*(s.to-s.from)
}

// newScale covers values with some air, on whole halves of a decade.
func newScale(from, to float64, values ...float64) scale {
	low, high := math.Log10(slices.Min(values)), math.Log10(slices.Max(values))
	return scale{low: math.Floor(2*(low-0.15)) / 2, high: math.Ceil(2*(high+0.15)) / 2, from: from, to: to}
}

// ticks are the values 1..9 times a power of ten within a scale; major ones are powers of ten, or with few of those 2 and
// 5 times them too.
func (s *scale) ticks() (all, major []float64) {
	const eps = 1e-9
	for e := math.Floor(s.low); e <= s.high; e++ {
		for m := 1.; m < 10; m++ {
			v := m * math.Pow(10, e)
			if l := math.Log10(v); l < s.low-eps || l > s.high+eps {
				continue
			}
			all = append(all, v)
			if m == 1 || s.high-s.low <= 3 && (m == 2 || m == 5) {
				major = append(major, v)
			}
		}
	}
	return all, major
}

// box is a rectangle that nothing else may be written over.
type box struct{ x0, y0, x1, y1 float64 }

func (b box) hits(c box) bool { return b.x0 < c.x1 && c.x0 < b.x1 && b.y0 < c.y1 && c.y0 < b.y1 }

// round is the box of a disc, or of a line's piece.
func round(x, y, r float64) box { return box{x - r, y - r, x + r, y + r} }
