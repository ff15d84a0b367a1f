package config

import (
	"errors"
	"fmt"
	"slices"
)

// maxTensors bounds layers × experts, and with it the size of the census (release: 15,744 with drafts).
const maxTensors = 1 << 20

// maxEngramLayers keeps the sum of all table sizes inside an int64.
const maxEngramLayers = 64

// validate checks every relation between fields, spec model.md sections 1.1, 1.2 and 4.
// It reports all faults at once.
func (c *Config) validate() error {
	var errs []error
	require := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	divisible := func(name string, n, by int) {
		require(n%by == 0, "%s = %d is not a multiple of %d", name, n, by)
	}

	// Quantisation blocks of 32 run along the input side of every FP8 and FP4 linear and along window
	// rows and index keys; main KV rows use blocks of 16.
	divisible("hidden_size", c.HiddenSize, 32)
	divisible("q_lora_rank", c.QLoraRank, 32)
	divisible("moe_intermediate_size", c.MoEIntermediate, 32)
	divisible("head_dim", c.HeadDim, 32)
	divisible("index_head_dim", c.IndexHeadDim, 32)
	divisible("num_attention_heads × head_dim", c.Heads*c.HeadDim, c.OGroups)
	divisible("num_attention_heads × head_dim / o_groups", c.Heads*c.HeadDim/c.OGroups, 32)
	divisible("o_groups × o_lora_rank", c.OGroups*c.OLoraRank, 32)
	divisible("qk_rope_head_dim", c.RopeDim, 2)
	require(c.RopeDim <= c.HeadDim, "qk_rope_head_dim = %d exceeds head_dim = %d", c.RopeDim, c.HeadDim)
	require(c.RopeDim <= c.IndexHeadDim, "qk_rope_head_dim = %d exceeds index_head_dim = %d", c.RopeDim, c.IndexHeadDim)

	require(c.ExpertsPerToken <= c.Experts, "num_experts_per_tok = %d exceeds n_routed_experts = %d", c.ExpertsPerToken, c.Experts)
	require(int64(c.Layers)*int64(c.Experts) <= maxTensors, "%d layers of %d experts are more than %d", c.Layers, c.Experts, maxTensors)
	require(c.MaxPositions >= c.Window, "max_position_embeddings = %d is smaller than sliding_window = %d", c.MaxPositions, c.Window)
	require(c.Yarn.BetaFast >= c.Yarn.BetaSlow, "beta_fast = %g is smaller than beta_slow = %g", c.Yarn.BetaFast, c.Yarn.BetaSlow)

	for _, t := range []struct {
		name string
		id   int
	}{{"bos_token_id", c.BOS}, {"eos_token_id", c.EOS}, {"pad_token_id", c.Pad}, {"image_token_id", c.ImageToken}} {
		require(t.id < c.VocabSize, "%s = %d is outside the vocabulary of %d", t.name, t.id, c.VocabSize)
	}

	errs = append(errs, c.validateSources()...)
	errs = append(errs, c.validateEngram()...)
	errs = append(errs, c.validateDraft()...)
	if v := c.Vision; v != nil {
		divisible("vision hidden_size", v.HiddenSize, v.Heads)
		require(v.HiddenSize/v.Heads%4 == 0, "vision head width %d / %d is not a multiple of 4", v.HiddenSize, v.Heads)
		require(c.ImageToken >= 0, "image_token_id is missing although there is a vision tower")
	}
	return errors.Join(errs...)
}

// layerList reports a list of layer ids that is not ascending, repeats or leaves the backbone.
func (c *Config) layerList(name string, ids []int) error {
	for i, id := range ids {
		if id >= c.Layers {
			return fmt.Errorf("%s contains %d, but there are %d layers", name, id, c.Layers)
		}
		if i > 0 && id <= ids[i-1] {
			return fmt.Errorf("%s = %v is not strictly ascending", name, ids)
		}
	}
	return nil
}

func (c *Config) validateSources() []error {
	var errs []error
	require := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	if len(c.CompressRatios) < c.Layers {
		return []error{fmt.Errorf("compress_ratios has %d entries for %d layers", len(c.CompressRatios), c.Layers)}
	}
	for _, r := range c.CompressRatios[c.Layers:] {
		require(r == 0, "compress_ratios gives a draft block ratio %d; draft blocks use the window only", r)
	}
	c.CompressRatios = c.CompressRatios[:c.Layers]
	if err := errors.Join(c.layerList("kv_source_layer_ids", c.KVSources), c.layerList("index_source_layer_ids", c.IndexSources)); err != nil {
		return append(errs, err)
	}
	source := -1
	for l, r := range c.CompressRatios {
		owns, indexes := slices.Contains(c.KVSources, l), slices.Contains(c.IndexSources, l)
		if owns {
			source = l
		}
		switch {
		case r == 0:
			require(!owns, "layer %d is in kv_source_layer_ids but has compress ratio 0", l)
			require(!indexes, "layer %d is in index_source_layer_ids but has compress ratio 0", l)
		case source < 0:
			require(false, "layer %d has compress ratio %d but no KV source at or before it", l, r)
		case r != c.CompressRatios[source]:
			require(false, "layer %d has compress ratio %d but reads the rows of layer %d, which has ratio %d", l, r, source, c.CompressRatios[source])
		case owns:
			// A selection is a list of rows of one cache, so a new cache needs a new selection.
			require(indexes, "layer %d is in kv_source_layer_ids but not in index_source_layer_ids", l)
		}
	}
	if c.CandidateSource >= 0 {
		last := -1
		if n := len(c.KVSources); n > 0 {
			last = c.KVSources[n-1]
		}
		require(c.CandidateSource == last, "candidate_source_layer_id = %d is not the last KV source (%d)", c.CandidateSource, last)
		require(c.CandidateBlock >= 1, "candidate_block_size is missing or 0")
		require(c.CandidateTopKBlocks >= 1, "candidate_topk_blocks is missing or 0")
		// The last block may be short: with fewer candidates than picks, masked rows would leak in (4.9).
		rows := int64(c.CandidateTopKBlocks)*int64(c.CandidateBlock) - int64(c.CandidateBlock) + 1
		require(rows >= int64(c.IndexTopK), "candidate_topk_blocks × candidate_block_size can leave %d candidates, fewer than index_topk = %d", rows, c.IndexTopK)
	}
	return errs
}

func (c *Config) validateEngram() []error {
	e := &c.Engram
	if len(e.Layers) == 0 {
		return nil
	}
	if err := c.layerList("engram_layer_ids", e.Layers); err != nil {
		return []error{err}
	}
	var errs []error
	if len(e.Layers) > maxEngramLayers {
		errs = append(errs, fmt.Errorf("engram_layer_ids has %d entries, more than %d", len(e.Layers), maxEngramLayers))
	}
	if len(e.Rows) != len(e.Layers) {
		errs = append(errs, fmt.Errorf("engram_num_embeddings has %d entries for %d layers in engram_layer_ids", len(e.Rows), len(e.Layers)))
	}
	// Every hash head has its own prime number of rows, at least the bucket size (4.12).
	least := int64(e.Columns()) * int64(e.VocabSize)
	for _, rows := range e.Rows {
		if rows < least {
			errs = append(errs, fmt.Errorf("engram_num_embeddings contains %d, fewer rows than %d hash columns of at least %d", rows, e.Columns(), e.VocabSize))
		}
	}
	if e.HeadDim%32 != 0 {
		errs = append(errs, fmt.Errorf("engram_head_dim = %d is not a multiple of 32", e.HeadDim))
	}
	if e.PadToken >= c.VocabSize {
		errs = append(errs, fmt.Errorf("engram_pad_token_id = %d is outside the vocabulary of %d", e.PadToken, c.VocabSize))
	}
	if e.Classes > c.VocabSize {
		errs = append(errs, fmt.Errorf("engram_compressed_vocab_size = %d exceeds vocab_size = %d", e.Classes, c.VocabSize))
	}
	return errs
}

func (c *Config) validateDraft() []error {
	d := &c.Draft
	if d.Layers == 0 {
		return nil
	}
	var errs []error
	if len(d.Targets) == 0 {
		errs = append(errs, errors.New("dspark_target_layer_ids is missing or empty although there are draft blocks"))
	}
	if err := c.layerList("dspark_target_layer_ids", d.Targets); err != nil {
		errs = append(errs, err)
	}
	if d.ExpertsPerToken > d.Experts {
		errs = append(errs, fmt.Errorf("dspark_num_experts_per_tok = %d exceeds dspark_n_routed_experts = %d", d.ExpertsPerToken, d.Experts))
	}
	if d.NoiseToken >= c.VocabSize {
		errs = append(errs, fmt.Errorf("dspark_noise_token_id = %d is outside the vocabulary of %d", d.NoiseToken, c.VocabSize))
	}
	return errs
}
