package main

import (
	"encoding/binary"
	"math"

	"cedrun/runtime/checkpoint"
)

// The generator of the conformance data: element i of a tensor depends on seed, name and i only.

const golden = 0x9E3779B97F4A7C15

func mix64(z uint64) uint64 {
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

func stream(seed uint64, name string) uint64 {
	h := uint64(0xCBF29CE484222325)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 0x100000001B3
	}
	return mix64(seed ^ h)
}

// gauss is element i of a stream as a bell-shaped value of standard deviation 1.1547, exact in f32.
func gauss(stream uint64, i int64) float32 {
	r := mix64(stream + uint64(i+1)*golden)
	k := int32(r&0xFFFF) + int32(r>>16&0xFFFF) + int32(r>>32&0xFFFF) + int32(r>>48)
	return float32(k-131070) / (1 << 15)
}

// fill returns n elements mean + deviation·gauss, rounded to nearest even in BF16.
func fill(stream uint64, d checkpoint.DType, n int64, mean, deviation float32) []byte {
	b := make([]byte, 0, n*d.Size())
	for i := range n {
		u := math.Float32bits(mean + deviation*gauss(stream, i))
		if d == checkpoint.F32 {
			b = binary.LittleEndian.AppendUint32(b, u)
		} else {
			b = binary.LittleEndian.AppendUint16(b, uint16((u+(u>>16&1+0x7FFF))>>16))
		}
	}
	return b
}
