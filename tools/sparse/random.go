package main

import (
	"encoding/binary"
	"math"
	"strings"

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

// magnitude returns mean and deviation of a tensor: the release's where measured (spec model.md
// section 11), else those of the mini checkpoints' generator.
func magnitude(s *checkpoint.Spec) (mean, deviation float32) {
	name := s.Name[strings.LastIndex(strings.TrimSuffix(s.Name, ".weight"), ".")+1:]
	columns := float64(s.Shape[len(s.Shape)-1])
	scaled := func(gain float64) float32 { return float32(gain / math.Sqrt(columns)) }
	switch strings.TrimSuffix(name, ".weight") {
	case "embed":
		return 0, 0.12
	case "attn_norm":
		return 0.025, 0.0025
	case "ffn_norm":
		return 0.2, 0.02
	case "q_norm":
		return 0.97, 0.1
	case "kv_norm":
		return 0.4, 0.04
	case "k_norm":
		return 0.5, 0.05
	case "norm":
		if strings.Contains(s.Name, "compressor") {
			return 0.6, 0.06
		}
		return 1, 0.1
	case "main_norm", "norm1", "norm2":
		return 1, 0.1
	case "q_weight", "k_weight":
		return 1, 0.5
	case "attn_sink", "hc_attn_base", "hc_attn_scale", "hc_ffn_base", "hc_ffn_scale", "bias", "bias_vl":
		return 0, 0.5
	case "gate":
		return 0, scaled(2.9)
	case "wkv":
		return 0, scaled(1.8)
	}
	return 0, scaled(1)
}
