package checkpoint

import (
	"strconv"

	"cedrun/runtime/config"
)

// Role says which part of the model a tensor belongs to.
type Role uint8

const (
	Backbone Role = iota
	Engram
	Draft  // DSpark blocks
	Vision // tower, aligner, image tokens
	numRoles
)

func (r Role) String() string { return [...]string{"backbone", "engram", "draft", "vision"}[r] }

// Spec is what a config implies about one tensor.
type Spec struct {
	Name     string
	Stored   DType  // in the release
	Accepted DTypes // also BF16 for F32 and the other way round; U8 for scales and packed FP4
	Shape    []int64
	Role     Role
	// Optional tensors may be absent: a model without them lacks the named feature.
	Optional bool
}

// Size is the number of bytes of the tensor as stored in the release.
func (s *Spec) Size() int64 {
	n, _ := byteSize(s.Stored, s.Shape)
	return n
}

var accepted = [numDTypes]DTypes{
	BF16: setOf(BF16, F32), F32: setOf(BF16, F32),
	F8E4M3: setOf(F8E4M3), F8E8M0: setOf(F8E8M0, U8), I8: setOf(I8, U8),
}

// Expected lists every tensor of a checkpoint of this geometry, spec model.md section 2.2, each layer's
// together and in ascending order. The config must be one that config.Parse accepted.
func Expected(c *config.Config) []Spec {
	l := census{}
	hidden, vocab := int64(c.HiddenSize), int64(c.VocabSize)
	l.add("embed.weight", BF16, vocab, hidden)
	l.add("norm.weight", BF16, hidden)
	l.add("head.weight", BF16, vocab, hidden)
	for _, layer := range c.Schedule() {
		prefix := "layers." + strconv.Itoa(layer.Index) + "."
		l.block(c, prefix, c.Experts)
		l.compressor(c, prefix+"attn.", &layer)
		if layer.Engram >= 0 {
			l.engram(c, prefix+"engram.", c.Engram.Rows[layer.Engram])
		}
	}
	l.draft(c)
	l.vision(c)
	return l.specs
}

// census accumulates specs of the current role.
type census struct {
	specs []Spec
	role  Role
}

func (l *census) add(name string, d DType, shape ...int64) *Spec {
	l.specs = append(l.specs, Spec{Name: name, Stored: d, Accepted: accepted[d], Shape: shape, Role: l.role})
	return &l.specs[len(l.specs)-1]
}

// fp8 adds an FP8 weight [n, k] and its scales, one per 32×32 block.
func (l *census) fp8(stem string, n, k int) {
	l.add(stem+".weight", F8E4M3, int64(n), int64(k))
	l.add(stem+".scale", F8E8M0, int64(n+31)/32, int64(k/32))
}

// fp4 adds a packed FP4 weight of n rows and k columns and its scales, one per row and 32 columns.
func (l *census) fp4(stem string, n, k int) {
	l.add(stem+".weight", I8, int64(n), int64(k/2))
	l.add(stem+".scale", F8E8M0, int64(n), int64(k/32))
}

func (l *census) bf16(name string, shape ...int) {
	dims := make([]int64, len(shape))
	for i, n := range shape {
		dims[i] = int64(n)
	}
	l.add(name, BF16, dims...)
}

// block adds what backbone layers and draft blocks have in common.
func (l *census) block(c *config.Config, prefix string, experts int) {
	attn, ffn := prefix+"attn.", prefix+"ffn."
	values := c.Heads * c.HeadDim
	l.fp8(attn+"wq_a", c.QLoraRank, c.HiddenSize)
	l.bf16(attn+"q_norm.weight", c.QLoraRank)
	l.fp8(attn+"wq_b", values, c.QLoraRank)
	l.fp8(attn+"wkv", c.HeadDim, c.HiddenSize)
	l.bf16(attn+"kv_norm.weight", c.HeadDim)
	l.fp8(attn+"wo_a", c.OGroups*c.OLoraRank, values/c.OGroups)
	l.fp8(attn+"wo_b", c.HiddenSize, c.OGroups*c.OLoraRank)
	l.add(attn+"attn_sink", F32, int64(c.Heads))
	l.bf16(prefix+"attn_norm.weight", c.HiddenSize)
	l.bf16(prefix+"ffn_norm.weight", c.HiddenSize)
	mixes := int64(c.HCMult * (2 + c.HCMult))
	for _, sub := range []string{"hc_attn_", "hc_ffn_"} {
		l.add(prefix+sub+"fn", F32, mixes, int64(c.HCMult*c.HiddenSize))
		l.add(prefix+sub+"base", F32, mixes)
		l.add(prefix+sub+"scale", F32, 3)
	}
	l.bf16(ffn+"gate.weight", experts, c.HiddenSize)
	l.add(ffn+"gate.bias", F32, int64(experts))
	l.add(ffn+"gate.bias_vl", F32, int64(experts)).Optional = true
	for e := range experts {
		expert := ffn + "experts." + strconv.Itoa(e) + "."
		l.fp4(expert+"w1", c.MoEIntermediate, c.HiddenSize)
		l.fp4(expert+"w2", c.HiddenSize, c.MoEIntermediate)
		l.fp4(expert+"w3", c.MoEIntermediate, c.HiddenSize)
	}
	shared := ffn + "shared_experts."
	l.fp8(shared+"w1", c.MoEIntermediate, c.HiddenSize)
	l.fp8(shared+"w2", c.HiddenSize, c.MoEIntermediate)
	l.fp8(shared+"w3", c.MoEIntermediate, c.HiddenSize)
}

// compressor adds the main KV and indexer tensors of sources.
func (l *census) compressor(c *config.Config, attn string, layer *config.Layer) {
	if layer.OwnsKV {
		l.bf16(attn+"compressor.wkv.weight", c.HeadDim, c.HiddenSize)
		if layer.Ratio > 1 {
			l.bf16(attn+"compressor.wgate.weight", c.HeadDim, c.HiddenSize)
		}
		l.bf16(attn+"compressor.norm.weight", c.HeadDim)
		l.bf16(attn+"indexer.wk.weight", c.IndexHeadDim, c.HeadDim)
		l.bf16(attn+"indexer.k_norm.weight", c.IndexHeadDim)
	}
	if layer.OwnsIndex {
		l.fp8(attn+"indexer.wq_b", c.IndexHeads*c.IndexHeadDim, c.QLoraRank)
		l.bf16(attn+"indexer.weights_proj.weight", c.IndexHeads, c.HiddenSize)
	}
}

func (l *census) engram(c *config.Config, prefix string, rows int64) {
	l.role = Engram
	defer func() { l.role = Backbone }()
	width := int64(c.Engram.HeadDim)
	l.add(prefix+"embed.weight", F8E4M3, rows, width)
	l.add(prefix+"embed.scale", F8E8M0, rows, width/32) // per row, not 32×32
	l.fp8(prefix+"wkv", c.HiddenSize*(c.HCMult+1), c.Engram.Columns()*c.Engram.HeadDim)
	l.bf16(prefix+"q_weight", c.HCMult, c.HiddenSize)
	l.bf16(prefix+"k_weight", c.HCMult, c.HiddenSize)
}

func (l *census) draft(c *config.Config) {
	d := &c.Draft
	if d.Layers == 0 {
		return
	}
	l.role = Draft
	for b := range d.Layers {
		l.block(c, "mtp."+strconv.Itoa(b)+".", d.Experts)
	}
	l.fp8("mtp.0.main_proj", c.HiddenSize, c.HiddenSize*len(d.Targets))
	l.bf16("mtp.0.main_norm.weight", c.HiddenSize)
	last := "mtp." + strconv.Itoa(d.Layers-1) + "."
	l.bf16(last+"norm.weight", c.HiddenSize)
	l.bf16(last+"markov_head.embed.weight", c.VocabSize, d.MarkovRank)
	l.bf16(last+"markov_head.head.weight", c.VocabSize, d.MarkovRank)
	l.bf16(last+"confidence_head.proj.weight", 1, c.HiddenSize+d.MarkovRank)
}

func (l *census) vision(c *config.Config) {
	v := c.Vision
	if v == nil {
		return
	}
	l.role = Vision
	w := v.HiddenSize
	l.bf16("vision.patch_embed.proj.weight", w, 3*v.PatchSize*v.PatchSize)
	l.bf16("vision.patch_embed.proj.bias", w)
	for b := range v.Layers {
		prefix := "vision.blocks." + strconv.Itoa(b) + "."
		l.bf16(prefix+"norm1.weight", w)
		l.bf16(prefix+"norm2.weight", w)
		l.bf16(prefix+"attn.wqkv.weight", 3*w, w)
		l.bf16(prefix+"attn.wqkv.bias", 3*w)
		l.bf16(prefix+"attn.wo.weight", w, w)
		l.bf16(prefix+"attn.wo.bias", w)
		l.bf16(prefix+"mlp.w1.weight", 2*v.Intermediate, w)
		l.bf16(prefix+"mlp.w2.weight", w, v.Intermediate)
	}
	l.bf16("vision.norm.weight", w)
	l.bf16("aligner.w1.weight", c.HiddenSize, w*v.Downsample*v.Downsample)
	l.bf16("aligner.w1.bias", c.HiddenSize)
	l.bf16("aligner.w2.weight", c.HiddenSize, c.HiddenSize)
	l.bf16("aligner.w2.bias", c.HiddenSize)
	for _, name := range []string{"image_start", "image_end", "image_newline"} {
		l.bf16(name, c.HiddenSize)
	}
}
