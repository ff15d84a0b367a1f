package synth

import "math"

// Element i of a tensor depends on seed, name and i only, so that any part of it can be made by any thread, or again.

const golden = 0x9E3779B97F4A7C15

func mix64(z uint64) uint64 {
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// stream keys a tensor's generator.
func stream(seed uint64, name string) uint64 {
	h := uint64(0xCBF29CE484222325)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 0x100000001B3
	}
	return mix64(seed ^ h)
}

// draw returns four elements, number 4·i and after: 15 bits of rank and a sign bit each.
func draw(stream uint64, i int64) uint64 { return mix64(stream + uint64(i+1)*golden) }

const (
	ranks    = 1 << 15
	rankMask = ranks - 1
	signBit  = ranks
)

// normal maps a rank to the magnitude of a standard normal value: the middle of one of 32,768 slices of equal
// probability. The largest is 4.32.
func normal() []float32 {
	q := make([]float32, ranks)
	for r := range q {
		q[r] = float32(math.Sqrt2 * math.Erfinv((float64(r)+0.5)/ranks))
	}
	return q
}
