package conform

import (
	"encoding/binary"
	"math"
)

// Values of the packed formats (spec 2.3), for reading caches back.

var e2m1 = [16]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, float32(math.Copysign(0, -1)), -0.5, -1, -1.5, -2, -3, -4, -6}

func e4m3(c byte) float32 {
	e, m := int(c>>3&15), float64(c&7)
	v := (1 + m/8) * math.Pow(2, float64(e-7))
	switch {
	case c&127 == 127:
		v = math.NaN()
	case e == 0:
		v = m / 8 * math.Pow(2, -6)
	}
	return float32(math.Copysign(v, float64(1-int(c>>7)*2)))
}

func e8m0(c byte) float32 { return float32(math.Ldexp(1, int(c)-127)) }

// fp4Rows dequantises packed rows with one scale per block values.
func fp4Rows(codes, scales []byte, block int, scale func(byte) float32) []float32 {
	out := make([]float32, 2*len(codes))
	for i := range out {
		c := codes[i/2] >> (4 * (i % 2)) & 15
		out[i] = e2m1[c] * scale(scales[i/block])
	}
	return out
}

// windowRow dequantises dim e4m3 codes followed by a UE8M0 scale per 32.
func windowRow(b []byte, dim int) []float32 {
	out := make([]float32, dim)
	for i := range out {
		out[i] = e4m3(b[i]) * e8m0(b[dim+i/32])
	}
	return out
}

func bf16s(b []byte) []float32 {
	out := make([]float32, len(b)/2)
	for i := range out {
		out[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*i:])) << 16)
	}
	return out
}

func f32s(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

// encode writes values as BF16 (they must be exact in it) or F32.
func encode(v []float32, bf16 bool) []byte {
	var b []byte
	for _, x := range v {
		u := math.Float32bits(x)
		if bf16 {
			b = binary.LittleEndian.AppendUint16(b, uint16(u>>16))
		} else {
			b = binary.LittleEndian.AppendUint32(b, u)
		}
	}
	return b
}
