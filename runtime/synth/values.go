package synth

import (
	"encoding/binary"
	"math"
	"strings"

	"cedrun/runtime/checkpoint"
)

// block is the side of an FP8 weight's block, and the length of an FP4 weight's.
const block = 32

// Magnitude returns mean and standard deviation of a tensor's elements: the release's where they were measured (spec
// model.md section 11), else a guess that keeps the streams within bounds.
func Magnitude(s *checkpoint.Spec) (mean, deviation float64) {
	stem := strings.TrimSuffix(s.Name, ".weight")
	name := stem[strings.LastIndex(stem, ".")+1:]
	columns := s.Shape[len(s.Shape)-1]
	if s.Stored == checkpoint.I8 {
		columns *= 2
	}
	scaled := func(gain float64) float64 { return gain / math.Sqrt(float64(columns)) }
	switch name {
	case "embed":
		if s.Role == checkpoint.Engram {
			return 0, 0.1
		}
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
	case "bias", "bias_vl":
		if strings.Contains(s.Name, "gate") {
			return 0, 0.02 // trained to balance the experts: small beside the spread of the scores
		}
		return 0, 0.2
	case "attn_sink", "hc_attn_base", "hc_attn_scale", "hc_ffn_base", "hc_ffn_scale":
		return 0, 0.5
	case "wq_a":
		return 0, scaled(1.6)
	case "wq_b":
		return 0, scaled(0.95)
	case "wkv":
		if s.Role == checkpoint.Engram {
			return 0, scaled(1)
		}
		return 0, scaled(1.8)
	case "wo_a":
		return 0, scaled(1.6)
	case "wo_b":
		return 0, scaled(1.9)
	case "gate":
		return 0, scaled(2.9)
	case "w1", "w3":
		return 0, scaled(1.5)
	case "w2":
		return 0, scaled(1.05)
	}
	return 0, scaled(1)
}

// branchBase is what the streams' share of an attention's output starts from: 2·sigmoid(-3.5) = 0.06 of it. Random
// attention is an average over its keys, much the same for every token; taken in full it would make all tokens alike in
// a few layers, and the router choose the same experts for all.
const branchBase = -3.5

// branch returns the elements of an attention's mHC base that stand for that share, none for other tensors.
func branch(t *checkpoint.Spec) (first, last int64) {
	if !strings.HasSuffix(t.Name, ".hc_attn_base") {
		return 0, 0
	}
	streams := int64(1)
	for streams*(streams+2) < t.Shape[0] {
		streams++
	}
	return streams, 2 * streams
}

// maker makes the bytes of tensors. It is immutable.
type maker struct {
	seed   uint64
	normal []float32
	coders map[coderKey]*coder
}

type coderKey struct {
	stored    checkpoint.DType
	deviation float64
}

// newMaker prepares the tables of all quantised tensors of files.
func newMaker(seed uint64, files []checkpoint.File) *maker {
	m := &maker{seed: seed, normal: normal(), coders: map[coderKey]*coder{}}
	formats := map[checkpoint.DType]format{checkpoint.F8E4M3: fp8(), checkpoint.I8: fp4()}
	for i := range files {
		for j := range files[i].Tensors {
			t := &files[i].Tensors[j]
			f, ok := formats[t.Stored]
			if !ok {
				continue
			}
			if k := keyOf(t); m.coders[k] == nil {
				m.coders[k] = newCoder(f, m.normal, k.deviation)
			}
		}
	}
	return m
}

func keyOf(t *checkpoint.Spec) coderKey {
	_, deviation := Magnitude(t)
	return coderKey{t.Stored, deviation}
}

// plain makes elements from..from+n-1 of a BF16 or F32 tensor. from is a multiple of 4.
func (m *maker) plain(t *checkpoint.Spec, from, n int64, dst []byte) []byte {
	mean, deviation := Magnitude(t)
	key := stream(m.seed, t.Name)
	first, last := branch(t)
	for i := from; i < from+n; i += 4 {
		u := draw(key, i/4)
		for j := i; j < min(i+4, from+n); j++ {
			x := float64(m.normal[u&rankMask]) * deviation
			if u&signBit != 0 {
				x = -x
			}
			if j >= first && j < last {
				x += branchBase
			}
			b := math.Float32bits(float32(mean + x))
			if t.Stored == checkpoint.F32 {
				dst = binary.LittleEndian.AppendUint32(dst, b)
			} else {
				dst = binary.LittleEndian.AppendUint16(dst, uint16((b+(b>>16&1+0x7FFF))>>16))
			}
			u >>= 16
		}
	}
	return dst
}

// packed makes rows from..from+n-1 of an FP4 weight: codes and one scale per row and block.
func (m *maker) packed(t *checkpoint.Spec, from, n int64, codes, scales []byte) ([]byte, []byte) {
	c := m.coders[keyOf(t)]
	key := stream(m.seed, t.Name)
	blocks := t.Shape[1] * 2 / block
	var draws [block / 4]uint64
	for g := from * blocks; g < (from+n)*blocks; g++ {
		top := uint64(0)
		for i := range draws {
			u := draw(key, g*int64(len(draws))+int64(i))
			draws[i] = u
			top = max(top, u&rankMask, u>>16&rankMask, u>>32&rankMask, u>>48&rankMask)
		}
		level := c.level[top]
		table := (*[ranks]uint8)(c.codes[level])
		scales = append(scales, c.scales[level])
		for _, u := range draws {
			codes = append(codes,
				table[u&rankMask]|byte(u>>15&1)<<3|table[u>>16&rankMask]<<4|byte(u>>31&1)<<7,
				table[u>>32&rankMask]|byte(u>>47&1)<<3|table[u>>48&rankMask]<<4|byte(u>>63)<<7)
		}
	}
	return codes, scales
}

// blocked makes rows from..from+n-1 of an FP8 weight: codes and one scale per block of height rows and 32 columns. from
// is a multiple of height.
func (m *maker) blocked(t *checkpoint.Spec, height, from, n int64, codes, scales []byte) ([]byte, []byte) {
	c := m.coders[keyOf(t)]
	key := stream(m.seed, t.Name)
	columns := t.Shape[1]
	blocks := columns / block
	draws := make([]uint64, height*columns/4)
	tops := make([]uint64, blocks)
	for row := from; row < from+n; row += height {
		rows := min(height, from+n-row)
		clear(tops)
		for i := range rows * columns / 4 {
			u := draw(key, row*columns/4+i)
			draws[i] = u
			b := i * 4 / block % blocks
			tops[b] = max(tops[b], u&rankMask, u>>16&rankMask, u>>32&rankMask, u>>48&rankMask)
		}
		for _, top := range tops {
			scales = append(scales, c.scales[c.level[top]])
		}
		for r := range rows {
			for b, top := range tops {
				table := (*[ranks]uint8)(c.codes[c.level[top]])
				at := r*columns/4 + int64(b)*block/4
				for _, u := range draws[at : at+block/4] {
					w := uint64(table[u&rankMask]) | uint64(table[u>>16&rankMask])<<8 | uint64(table[u>>32&rankMask])<<16 | uint64(table[u>>48&rankMask])<<24
					sign := u>>8&0x80 | u>>16&0x8000 | u>>24&0x800000 | u>>32&0x80000000
					codes = binary.LittleEndian.AppendUint32(codes, uint32(w|sign))
				}
			}
		}
	}
	return codes, scales
}
