package synth

import "math"

// format is a block-scaled number format.
type format struct {
	values []float64 // magnitudes by code, ascending
	sign   byte      // bit of the code
}

func fp4() format {
	return format{values: []float64{0, 0.5, 1, 1.5, 2, 3, 4, 6}, sign: 1 << 3}
}

func fp8() format {
	f := format{sign: 1 << 7}
	for code := range 127 { // 127 is NaN
		exponent, fraction := code>>3, float64(code&7)
		if exponent == 0 {
			f.values = append(f.values, math.Ldexp(fraction, -9))
		} else {
			f.values = append(f.values, math.Ldexp(8+fraction, exponent-10))
		}
	}
	return f
}

// coder turns ranks into codes of normal values of one standard deviation. A block's scale is the least power of two
// that keeps its largest magnitude within the format.
type coder struct {
	format
	level  []uint8 // by the largest rank of a block: which of the scales
	scales []byte  // E8M0, by level
	codes  [][]uint8
}

// levels is how many scales a coder has: a block whose largest magnitude is smaller by 2^levels than the largest
// possible keeps the last.
const levels = 6

func newCoder(f format, normal []float32, deviation float64) *coder {
	top := f.values[len(f.values)-1]
	exponent := func(rank int) int { return int(math.Ceil(math.Log2(deviation * float64(normal[rank]) / top))) }
	highest := exponent(ranks - 1)
	c := &coder{format: f, level: make([]uint8, ranks)}
	for r := range c.level {
		c.level[r] = uint8(min(highest-exponent(r), levels-1))
	}
	for l := range levels {
		c.scales = append(c.scales, byte(127+highest-l))
		c.codes = append(c.codes, f.quantise(normal, math.Ldexp(deviation, l-highest)))
	}
	return c
}

// quantise rounds every magnitude times factor to the nearest code.
func (f *format) quantise(normal []float32, factor float64) []uint8 {
	codes := make([]uint8, len(normal))
	code := 0
	for r, q := range normal { // ascending
		x := factor * float64(q)
		for code+1 < len(f.values) && x > (f.values[code]+f.values[code+1])/2 {
			code++
		}
		codes[r] = uint8(code)
	}
	return codes
}
