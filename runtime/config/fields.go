package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// names lists the spellings of one field: released key first, then the flat one. A text key may stand
// inside text_config or at the top level, so each name is looked up in both places.
type names []string

func text(keys ...string) names {
	var n names
	for _, k := range keys {
		n = append(n, "text_config."+k, k)
	}
	return n
}

func vision(key, flat string) names {
	return append(names{"vision_config." + key}, text(flat)...)
}

func yarn(key, flat string) names {
	return append(text("rope_scaling."+key), text(flat)...)
}

// The alias table, spec model.md section 1.1.
var (
	fVocabSize       = text("vocab_size")
	fHiddenSize      = text("hidden_size", "dim")
	fLayers          = text("num_hidden_layers", "n_layers")
	fHeads           = text("num_attention_heads", "n_heads")
	fHeadDim         = text("head_dim")
	fRopeDim         = text("qk_rope_head_dim", "rope_head_dim")
	fQLoraRank       = text("q_lora_rank")
	fOGroups         = text("o_groups")
	fOLoraRank       = text("o_lora_rank")
	fMoEIntermediate = text("moe_intermediate_size", "moe_inter_dim")
	fExperts         = text("n_routed_experts")
	fExpertsPerToken = text("num_experts_per_tok", "n_activated_experts")
	fSharedExperts   = text("n_shared_experts")
	fRouteScale      = text("routed_scaling_factor", "route_scale")
	fNormTopK        = text("norm_topk_prob")
	fGateTemp        = text("gate_temp")
	fSwiGLULimit     = text("swiglu_limit")
	fNormEps         = text("rms_norm_eps", "norm_eps")

	fWindow            = text("sliding_window", "window_size")
	fMaxPositions      = text("max_position_embeddings", "max_seq_len")
	fRopeTheta         = text("rope_theta")
	fCompressRopeTheta = text("compress_rope_theta")
	fYarnFactor        = yarn("factor", "rope_factor")
	fYarnBetaFast      = yarn("beta_fast", "beta_fast")
	fYarnBetaSlow      = yarn("beta_slow", "beta_slow")
	fYarnOriginal      = yarn("original_max_position_embeddings", "original_seq_len")

	fCompressRatios      = text("compress_ratios")
	fKVSources           = text("kv_source_layer_ids", "kv_source_layers")
	fIndexSources        = text("index_source_layer_ids", "index_source_layers")
	fIndexHeads          = text("index_n_heads")
	fIndexHeadDim        = text("index_head_dim")
	fIndexTopK           = text("index_topk")
	fCandidateSource     = text("candidate_source_layer_id", "candidate_source_layer")
	fCandidateTopKBlocks = text("candidate_topk_blocks")
	fCandidateBlock      = text("candidate_block_size")

	fHCMult          = text("hc_mult")
	fHCSinkhornIters = text("hc_sinkhorn_iters")
	fHCEps           = text("hc_eps")

	fEngramLayers    = text("engram_layer_ids")
	fEngramRows      = text("engram_num_embeddings")
	fEngramMaxNgram  = text("engram_max_ngram_size")
	fEngramVocabSize = text("engram_vocab_size")
	fEngramHeads     = text("engram_n_heads")
	fEngramHeadDim   = text("engram_head_dim")
	fEngramPadToken  = text("engram_pad_token_id", "engram_pad_id")
	fEngramClasses   = text("engram_compressed_vocab_size")

	fDraftLayers          = text("num_nextn_predict_layers", "n_mtp_layers")
	fDraftBlockSize       = text("dspark_block_size")
	fDraftNoiseToken      = text("dspark_noise_token_id")
	fDraftTargets         = text("dspark_target_layer_ids")
	fDraftMarkovRank      = text("dspark_markov_rank")
	fDraftExperts         = text("dspark_n_routed_experts")
	fDraftExpertsPerToken = text("dspark_num_experts_per_tok", "dspark_n_activated_experts")

	fVisionLayers       = vision("num_hidden_layers", "vision_n_layers")
	fVisionHiddenSize   = vision("hidden_size", "vision_dim")
	fVisionHeads        = vision("num_attention_heads", "vision_n_heads")
	fVisionIntermediate = vision("intermediate_size", "vision_inter_dim")
	fVisionPatchSize    = vision("patch_size", "vision_patch_size")
	fVisionRopeTheta    = vision("rope_theta", "vision_rope_theta")
	fVisionDownsample   = vision("downsample_ratio", "vision_downsample_ratio")
	fVisionMaxTokens    = vision("max_image_tokens", "vision_max_n_token")
	fVisionMinPixels    = vision("min_pixels", "vision_min_pixels")
	fVisionMaxWHRatio   = vision("max_wh_ratio", "vision_max_wh_ratio")

	fBOS        = text("bos_token_id")
	fEOS        = text("eos_token_id")
	fPad        = text("pad_token_id")
	fImageToken = text("image_token_id")
)

// fixed lists settings of which only one value is implemented. An absent one is fine.
var fixed = []struct {
	names names
	want  string
}{
	{names{"model_type"}, "deepseek_v41"},
	{names{"text_config.model_type"}, "deepseek_v41_text"},
	{text("num_key_value_heads"), "1"},
	{text("hidden_act"), "silu"},
	{text("attention_bias"), "false"},
	{text("tie_word_embeddings"), "false"},
	{text("scoring_func", "score_func"), "sqrtsoftplus"},
	{text("topk_method"), "noaux_tc"},
	{text("rope_scaling.rope_type", "rope_scaling.type"), "yarn"},
	{names{"quantization_config.quant_method"}, "fp8"},
	{append(names{"quantization_config.weight_block_size"}, text("weight_block_size")...), "[32 32]"},
	{append(names{"quantization_config.scale_fmt"}, text("scale_fmt")...), "ue8m0"},
	{append(names{"quantization_config.expert_dtype"}, text("expert_dtype")...), "fp4"},
}

// limit is an inclusive range of an integer. The upper ends are far above any real model and small
// enough that a product of three sizes stays inside an int64.
type limit struct{ min, max int64 }

var (
	dims      = limit{1, 1 << 17} // widths of the stream and of its projections
	counts    = limit{1, 1 << 14} // layers, groups, sizes of parts that no kernel computes yet
	tokens    = limit{0, 1 << 24} // token ids
	positions = limit{1, 1 << 24}
	layerIDs  = limit{0, 1 << 14}
)

// What the kernels take (their checks in cuda/kernel): a model beyond it is refused here, not at its first step.
var (
	heads      = limit{1, 4096}
	headDim    = limit{1, 8192}
	ropeDim    = limit{1, 512}
	indexHeads = limit{1, 256}
	indexDim   = limit{1, 512}
	experts    = limit{1, 4096}
	active     = limit{1, 64}
	streams    = limit{1, 8}
	blocks     = limit{0, 1 << 20}
)

// decoder collects the fields of a Config from flattened values and remembers every fault.
type decoder struct {
	values map[string]any
	errs   []error
}

func (d *decoder) fail(format string, args ...any) {
	d.errs = append(d.errs, fmt.Errorf(format, args...))
}

// find returns the value of a field and the name it was found under; ok is false if it is absent.
// Two names with different values are a fault.
func (d *decoder) find(n names) (name string, value any, ok bool) {
	for _, k := range n {
		v, present := d.values[k]
		switch {
		case !present:
		case !ok:
			name, value, ok = k, v, true
		case !same(value, v):
			d.fail("%s = %v and %s = %v disagree: they are two names of one setting; remove one", name, value, k, v)
		}
	}
	return name, value, ok
}

// same compares two values; numbers by value, so that 10 and 10.0 agree.
func same(a, b any) bool {
	x, xok := a.(json.Number)
	y, yok := b.(json.Number)
	if xok && yok {
		if x == y {
			return true
		}
		_, ex := strconv.ParseInt(x.String(), 10, 64)
		_, ey := strconv.ParseInt(y.String(), 10, 64)
		if ex == nil && ey == nil {
			return false // distinct spellings of integers: a float64 could round them together
		}
		fx, ex := x.Float64()
		fy, ey := y.Float64()
		return ex == nil && ey == nil && fx == fy
	}
	xs, xok := a.([]any)
	ys, yok := b.([]any)
	if xok && yok {
		return slices.EqualFunc(xs, ys, same)
	}
	if xok != yok {
		return false
	}
	return a == b
}

func (d *decoder) parseInt(name string, v any, l limit) int64 {
	num, ok := v.(json.Number)
	if !ok {
		d.fail("%s = %v is not an integer", name, v)
		return l.min
	}
	x, err := strconv.ParseInt(num.String(), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && (x < l.min || x > l.max):
		d.fail("%s = %s is outside %d..%d", name, num, l.min, l.max)
	case err != nil:
		d.fail("%s = %s is not an integer", name, num)
	default:
		return x
	}
	return l.min
}

// integer reads a required integer.
func (d *decoder) integer(n names, l limit) int {
	name, v, ok := d.find(n)
	if !ok {
		d.fail("%s is missing", n[0])
		return int(l.min)
	}
	return int(d.parseInt(name, v, l))
}

// optional reads an integer that may be absent.
func (d *decoder) optional(n names, l limit, otherwise int) int {
	name, v, ok := d.find(n)
	if !ok {
		return otherwise
	}
	return int(d.parseInt(name, v, l))
}

// integers reads a list of integers; an absent list is empty.
func (d *decoder) integers(n names, l limit) []int64 {
	name, v, ok := d.find(n)
	if !ok {
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		d.fail("%s = %v is not a list of integers", name, v)
		return nil
	}
	if int64(len(list)) > counts.max {
		d.fail("%s has %d entries, more than %d", name, len(list), counts.max)
		return nil
	}
	out := make([]int64, len(list))
	for i, e := range list {
		out[i] = d.parseInt(fmt.Sprintf("%s[%d]", name, i), e, l)
	}
	return out
}

func (d *decoder) ints(n names, l limit) []int {
	var out []int
	for _, x := range d.integers(n, l) {
		out = append(out, int(x))
	}
	return out
}

// number reads a finite number in min..max; NaN as otherwise makes it required.
func (d *decoder) number(n names, min, max, otherwise float64) float64 {
	name, v, ok := d.find(n)
	if !ok {
		if math.IsNaN(otherwise) {
			d.fail("%s is missing", n[0])
			return min
		}
		return otherwise
	}
	num, ok := v.(json.Number)
	if !ok {
		d.fail("%s = %v is not a number", name, v)
		return min
	}
	x, err := num.Float64()
	if err != nil || !(x >= min && x <= max) {
		d.fail("%s = %s is outside %g..%g", name, num, min, max)
		return min
	}
	return x
}

func (d *decoder) boolean(n names, otherwise bool) bool {
	name, v, ok := d.find(n)
	if !ok {
		return otherwise
	}
	b, ok := v.(bool)
	if !ok {
		d.fail("%s = %v is neither true nor false", name, v)
	}
	return b
}

// required as the default of number.
var required = math.NaN()

func decode(values map[string]any) (*Config, error) {
	d := &decoder{values: values}
	for _, f := range fixed {
		if name, v, ok := d.find(f.names); ok && fmt.Sprint(v) != f.want {
			d.fail("%s = %v is not supported, only %s", name, v, f.want)
		}
	}
	c := &Config{
		VocabSize:       d.integer(fVocabSize, limit{1, tokens.max}),
		HiddenSize:      d.integer(fHiddenSize, dims),
		Layers:          d.integer(fLayers, counts),
		Heads:           d.integer(fHeads, heads),
		HeadDim:         d.integer(fHeadDim, headDim),
		RopeDim:         d.integer(fRopeDim, ropeDim),
		QLoraRank:       d.integer(fQLoraRank, dims),
		OGroups:         d.integer(fOGroups, counts),
		OLoraRank:       d.integer(fOLoraRank, dims),
		MoEIntermediate: d.integer(fMoEIntermediate, dims),
		Experts:         d.integer(fExperts, experts),
		ExpertsPerToken: d.integer(fExpertsPerToken, active),
		SharedExperts:   d.optional(fSharedExperts, limit{1, 1}, 1),

		RouteScale:  float32(d.number(fRouteScale, 1e-6, 1e6, required)),
		NormTopK:    d.boolean(fNormTopK, true),
		GateTemp:    float32(d.number(fGateTemp, 1e-6, 1e6, 1)),
		SwiGLULimit: float32(d.number(fSwiGLULimit, 1e-6, 1e6, required)),
		NormEps:     float32(d.number(fNormEps, 1e-37, 1, required)),

		Window:            d.integer(fWindow, limit{1, 1 << 20}),
		RopeTheta:         d.number(fRopeTheta, 1.5, 1e12, required),
		CompressRopeTheta: d.number(fCompressRopeTheta, 1.5, 1e12, required),
		Yarn: Yarn{
			Factor:   d.number(fYarnFactor, 1, 1e6, 1),
			BetaFast: d.number(fYarnBetaFast, 1e-3, 1e6, 32),
			BetaSlow: d.number(fYarnBetaSlow, 1e-3, 1e6, 1),
			Original: d.optional(fYarnOriginal, limit{0, positions.max}, 0),
		},

		CompressRatios: d.ints(fCompressRatios, limit{0, 2}),
		KVSources:      d.ints(fKVSources, layerIDs),
		IndexSources:   d.ints(fIndexSources, layerIDs),
		IndexHeads:     d.integer(fIndexHeads, indexHeads),
		IndexHeadDim:   d.integer(fIndexHeadDim, indexDim),
		IndexTopK:      d.integer(fIndexTopK, limit{1, 1 << 20}),

		CandidateSource:     d.optional(fCandidateSource, limit{-1, layerIDs.max}, -1),
		CandidateTopKBlocks: d.optional(fCandidateTopKBlocks, blocks, 0),
		CandidateBlock:      d.optional(fCandidateBlock, limit{0, 1 << 16}, 0),

		HCMult:          d.integer(fHCMult, streams),
		HCSinkhornIters: d.integer(fHCSinkhornIters, limit{1, 1000}),
		HCEps:           float32(d.number(fHCEps, 1e-37, 1, required)),

		BOS:        d.optional(fBOS, tokens, 0),
		EOS:        d.optional(fEOS, tokens, 1),
		Pad:        d.optional(fPad, tokens, 2),
		ImageToken: d.optional(fImageToken, limit{-1, tokens.max}, -1),
	}
	// The flat spelling leaves the context length to the command line: YaRN's range is the trained one.
	trained := int(min(float64(c.Yarn.Original)*c.Yarn.Factor, float64(positions.max)))
	if c.MaxPositions = d.optional(fMaxPositions, positions, trained); c.MaxPositions == 0 {
		d.fail("%s is missing", fMaxPositions[0])
	}
	d.engram(c)
	d.draft(c)
	d.vision(c)
	if len(d.errs) > 0 {
		return nil, errors.Join(d.errs...)
	}
	return c, nil
}

func (d *decoder) engram(c *Config) {
	c.Engram.Layers = d.ints(fEngramLayers, layerIDs)
	if len(c.Engram.Layers) == 0 {
		return
	}
	e := &c.Engram
	e.Rows = d.integers(fEngramRows, limit{1, 1 << 40})
	e.MaxNgram = d.integer(fEngramMaxNgram, limit{2, 16})
	e.VocabSize = d.integer(fEngramVocabSize, limit{2, 1 << 31})
	e.Heads = d.integer(fEngramHeads, limit{1, 256})
	e.HeadDim = d.integer(fEngramHeadDim, limit{1, 1 << 12})
	e.PadToken = d.integer(fEngramPadToken, tokens)
	e.Classes = d.integer(fEngramClasses, limit{1, tokens.max})
}

func (d *decoder) draft(c *Config) {
	c.Draft.Layers = d.optional(fDraftLayers, limit{0, 64}, 0)
	c.Draft.BlockSize = d.optional(fDraftBlockSize, limit{0, 64}, 0)
	if c.Draft.Layers == 0 || c.Draft.BlockSize == 0 {
		c.Draft = Draft{}
		return
	}
	f := &c.Draft
	f.NoiseToken = d.integer(fDraftNoiseToken, tokens)
	f.Targets = d.ints(fDraftTargets, layerIDs)
	f.MarkovRank = d.integer(fDraftMarkovRank, dims)
	f.Experts = d.integer(fDraftExperts, counts)
	f.ExpertsPerToken = d.integer(fDraftExpertsPerToken, counts)
}

func (d *decoder) vision(c *Config) {
	layers := d.optional(fVisionLayers, limit{0, 1024}, 0)
	if layers == 0 {
		return
	}
	c.Vision = &Vision{
		Layers:       layers,
		HiddenSize:   d.integer(fVisionHiddenSize, dims),
		Heads:        d.integer(fVisionHeads, counts),
		Intermediate: d.integer(fVisionIntermediate, dims),
		PatchSize:    d.integer(fVisionPatchSize, limit{1, 256}),
		RopeTheta:    d.number(fVisionRopeTheta, 1.5, 1e12, required),
		Downsample:   d.integer(fVisionDownsample, limit{1, 16}),
		MaxTokens:    d.integer(fVisionMaxTokens, limit{1, 1 << 20}),
		MinPixels:    d.integer(fVisionMinPixels, limit{0, 1 << 30}),
		MaxWHRatio:   d.number(fVisionMaxWHRatio, 0, 1e6, 0),
	}
}
