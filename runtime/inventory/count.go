package inventory

import (
	"strings"

	"cedrun/runtime/checkpoint"
	"cedrun/runtime/config"
)

// Part is a part of the model that parameters belong to.
type Part uint8

const (
	Embedding Part = iota
	Attention
	Indexing // compressors and indexers
	Router
	Experts // routed
	Shared  // shared experts
	Mixing  // mHC
	Norms
	EngramModules // projection and gates
	Head          // output norm and head
	EngramTables
	Draft
	Vision
	numParts
)

func (p Part) String() string {
	return [...]string{
		"embedding", "attention", "compressors and indexers", "routers", "routed experts", "shared experts",
		"residual mixing (mHC)", "norms", "Engram modules", "output head", "Engram tables", "DSpark", "vision",
	}[p]
}

// backbone reports whether a part belongs to the backbone of spec 1.4.
func (p Part) backbone() bool { return p <= Head }

// Format is how numbers are stored.
type Format uint8

const (
	FP4    Format = iota // two e2m1 codes a byte
	FP8                  // e4m3
	Scales               // e8m0
	BF16
	F32
	Other
	numFormats
)

func (f Format) String() string {
	return [...]string{"FP4", "FP8", "scales (E8M0)", "BF16", "F32", "other"}[f]
}

// Counts are the parameters and the bytes of a part, as released.
type Counts struct {
	Tensors    int
	Parameters int64
	Bytes      int64
}

// Inventory is what a config implies.
type Inventory struct {
	Parts   [numParts]Counts
	Formats [numFormats]int64 // bytes
	Active  Active
}

// Count counts a geometry that config.Parse accepted.
func Count(c *config.Config) *Inventory {
	v := &Inventory{Active: newActive(c)}
	for _, s := range checkpoint.Expected(c) {
		n, part := parameters(&s), PartOf(&s)
		p := &v.Parts[part]
		p.Tensors++
		p.Parameters += n
		p.Bytes += s.Size()
		v.Formats[formatOf(&s, s.Stored)] += s.Size()
		v.Active.add(part, s.Name, n)
	}
	v.Active.finish(c)
	return v
}

// Backbone is the number of parameters of the backbone, Engram modules included, Engram tables not.
func (v *Inventory) Backbone() (n int64) {
	for p, c := range v.Parts {
		if Part(p).backbone() {
			n += c.Parameters
		}
	}
	return n
}

// Total counts everything.
func (v *Inventory) Total() (t Counts) {
	for _, c := range v.Parts {
		t.Tensors += c.Tensors
		t.Parameters += c.Parameters
		t.Bytes += c.Bytes
	}
	return t
}

func parameters(s *checkpoint.Spec) int64 {
	if s.Stored == checkpoint.F8E8M0 {
		return 0
	}
	n := int64(1)
	for _, d := range s.Shape {
		n *= d
	}
	if s.Stored == checkpoint.I8 {
		n *= 2
	}
	return n
}

// formatOf is the format of a tensor that is stored as d.
func formatOf(s *checkpoint.Spec, d checkpoint.DType) Format {
	switch d {
	case checkpoint.U8: // a repack's spelling of what has no type in old safetensors
		if s.Stored != checkpoint.U8 {
			return formatOf(s, s.Stored)
		}
	case checkpoint.I8:
		return FP4
	case checkpoint.F8E4M3:
		return FP8
	case checkpoint.F8E8M0:
		return Scales
	case checkpoint.BF16:
		return BF16
	case checkpoint.F32:
		return F32
	}
	return Other
}

// PartOf is the part of a tensor of the census.
func PartOf(s *checkpoint.Spec) Part {
	switch s.Role {
	case checkpoint.Draft:
		return Draft
	case checkpoint.Vision:
		return Vision
	}
	layer, name, _ := strings.Cut(strings.TrimPrefix(s.Name, "layers."), ".")
	has := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	switch {
	case layer == "embed":
		return Embedding
	case layer == "head", layer == "norm":
		return Head
	case has("engram.embed."):
		return EngramTables
	case has("engram."):
		return EngramModules
	case has("attn.compressor."), has("attn.indexer."):
		return Indexing
	case has("attn_norm."), has("ffn_norm."):
		return Norms
	case has("attn."):
		return Attention
	case has("ffn.experts."):
		return Experts
	case has("ffn.shared_experts."):
		return Shared
	case has("ffn.gate."):
		return Router
	}
	return Mixing
}
