package synth

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"cedrun/runtime/config"
	"cedrun/runtime/engram"
	"cedrun/runtime/tokenizer"
)

// Preset is a geometry. What it does not name is the release's.
type Preset struct {
	Name string
	What string // one line for the help; "" keeps the preset out of lists

	Vocabulary, Tokens int // ids of the model, and of its tokenizer
	Hidden             int
	Ratios             []int // of the layers
	KVSources          []int
	IndexSources       []int
	Heads, HeadDim     int
	RopeDim            int
	QLoraRank          int
	OGroups, OLoraRank int
	Experts, Chosen    int
	ExpertWidth        int
	Window, TopK       int
	IndexHeads         int
	IndexHeadDim       int
	CandidateBlocks    int // of 8 rows
	EngramLayers       []int
	EngramRows         int // least rows of each of the 24 hash heads
	EngramHeadDim      int
}

var presets = []Preset{
	{
		Name: "bench-s", What: "0.3 GB: 10 layers of hidden 1024, 24 experts",
		Vocabulary: 32768, Tokens: 32768, Hidden: 1024,
		Ratios: []int{0, 0, 2, 2, 2, 1, 1, 1, 1, 1}, KVSources: []int{2, 5}, IndexSources: []int{2, 5, 8},
		Heads: 8, HeadDim: 512, RopeDim: 64, QLoraRank: 256, OGroups: 4, OLoraRank: 256,
		Experts: 24, Chosen: 6, ExpertWidth: 256, Window: 128, TopK: 256,
		IndexHeads: 4, IndexHeadDim: 128, CandidateBlocks: 512,
		EngramLayers: []int{1, 2}, EngramRows: 8192, EngramHeadDim: 32,
	},
	{
		Name: "bench-m", What: "2.4 GB: 16 layers of hidden 2048, 64 experts",
		Vocabulary: 32768, Tokens: 32768, Hidden: 2048,
		Ratios: []int{0, 0, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1}, KVSources: []int{2, 5, 8}, IndexSources: []int{2, 5, 8, 12},
		Heads: 16, HeadDim: 512, RopeDim: 64, QLoraRank: 512, OGroups: 4, OLoraRank: 512,
		Experts: 64, Chosen: 6, ExpertWidth: 512, Window: 128, TopK: 512,
		IndexHeads: 8, IndexHeadDim: 128, CandidateBlocks: 1024,
		EngramLayers: []int{1, 5}, EngramRows: 32768, EngramHeadDim: 32,
	},
	{
		Name: "layer", What: "4.4 GB: 5 layers, one of each mode, with the released width of every matrix; 8 experts instead of 384",
		Vocabulary: 129280, Tokens: 32768, Hidden: 5120,
		Ratios: []int{0, 2, 2, 1, 1}, KVSources: []int{1, 3}, IndexSources: []int{1, 3, 4},
		Heads: 64, HeadDim: 512, RopeDim: 64, QLoraRank: 1280, OGroups: 8, OLoraRank: 1024,
		Experts: 8, Chosen: 6, ExpertWidth: 2304, Window: 128, TopK: 512,
		IndexHeads: 32, IndexHeadDim: 128, CandidateBlocks: 2048,
		EngramLayers: []int{0}, EngramRows: 4096, EngramHeadDim: 256,
	},
	{
		Name:       "tiny", // for tests: 7 MB with every kind of tensor, and experts enough to see them chosen
		Vocabulary: 1024, Tokens: 512, Hidden: 128,
		Ratios: []int{0, 0, 2, 2, 1, 1, 1}, KVSources: []int{2, 4}, IndexSources: []int{2, 4, 6},
		Heads: 4, HeadDim: 64, RopeDim: 16, QLoraRank: 64, OGroups: 2, OLoraRank: 64,
		Experts: 64, Chosen: 6, ExpertWidth: 32, Window: 32, TopK: 32,
		IndexHeads: 2, IndexHeadDim: 32, CandidateBlocks: 8,
		EngramLayers: []int{1, 2}, EngramRows: 256, EngramHeadDim: 32,
	},
}

// Presets lists what Write can make.
func Presets() []Preset {
	return slices.DeleteFunc(slices.Clone(presets), func(p Preset) bool { return p.What == "" })
}

// find returns the preset of a name.
func find(name string) (*Preset, error) {
	for i := range presets {
		if presets[i].Name == name {
			return &presets[i], nil
		}
	}
	var names []string
	for _, p := range Presets() {
		names = append(names, p.Name)
	}
	return nil, fmt.Errorf("preset %q: use %s", name, strings.Join(names, ", "))
}

type object map[string]any

// files returns the parts of the checkpoint beside its shards.
func (p *Preset) files() (cfg *config.Config, configJSON, tokenizerJSON []byte, err error) {
	fail := func(err error) (*config.Config, []byte, []byte, error) {
		return nil, nil, nil, fmt.Errorf("preset %s: %w", p.Name, err)
	}
	if tokenizerJSON, err = truncated(p.Tokens); err != nil {
		return fail(err)
	}
	t, err := tokenizer.Parse(tokenizerJSON)
	if err != nil {
		return fail(err)
	}
	image, ok := t.ID("<｜deepseek_image｜>")
	if !ok {
		return fail(fmt.Errorf("the tokenizer has no image token"))
	}
	_, classes := engram.DeriveTokenMap(t)
	params := engram.Params{Layers: p.EngramLayers, MaxNgram: 4, Bucket: p.EngramRows, Heads: 8, Classes: classes, PadToken: 2}
	tables, err := engram.Derive(params)
	if err != nil {
		return fail(err)
	}
	var rows []int64
	for _, l := range tables {
		rows = append(rows, l.Rows)
	}
	configJSON, err = json.MarshalIndent(object{
		"architectures": []string{"DeepseekV41ForCausalLM"}, "model_type": "deepseek_v41", "dtype": "bfloat16",
		"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": params.PadToken, "image_token_id": image,
		"quantization_config": object{
			"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": []int{32, 32}, "scale_fmt": "ue8m0", "expert_dtype": "fp4",
		},
		"text_config": object{
			"model_type": "deepseek_v41_text", "vocab_size": p.Vocabulary, "hidden_size": p.Hidden, "moe_intermediate_size": p.ExpertWidth,
			"num_hidden_layers": len(p.Ratios), "num_attention_heads": p.Heads, "num_key_value_heads": 1, "head_dim": p.HeadDim,
			"qk_rope_head_dim": p.RopeDim, "q_lora_rank": p.QLoraRank, "o_groups": p.OGroups, "o_lora_rank": p.OLoraRank,
			"hidden_act": "silu", "swiglu_limit": 10.0, "rms_norm_eps": 1e-20, "attention_bias": false, "attention_dropout": 0.0,
			"tie_word_embeddings": false, "max_position_embeddings": 1048576, "rope_theta": 10000, "compress_rope_theta": 160000,
			"rope_scaling": object{
				"rope_type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 65536,
			},
			"n_routed_experts": p.Experts, "n_shared_experts": 1, "num_experts_per_tok": p.Chosen, "scoring_func": "sqrtsoftplus",
			"topk_method": "noaux_tc", "norm_topk_prob": true, "routed_scaling_factor": 1.5, "sliding_window": p.Window,
			"compress_ratios": p.Ratios, "kv_source_layer_ids": p.KVSources, "index_source_layer_ids": p.IndexSources,
			"index_n_heads": p.IndexHeads, "index_head_dim": p.IndexHeadDim, "index_topk": p.TopK,
			"candidate_source_layer_id": p.KVSources[len(p.KVSources)-1], "candidate_topk_blocks": p.CandidateBlocks, "candidate_block_size": 8,
			"hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6,
			"engram_layer_ids": p.EngramLayers, "engram_num_embeddings": rows, "engram_max_ngram_size": params.MaxNgram,
			"engram_vocab_size": p.EngramRows, "engram_n_heads": params.Heads, "engram_head_dim": p.EngramHeadDim,
			"engram_pad_token_id": params.PadToken, "engram_compressed_vocab_size": classes,
			"num_nextn_predict_layers": 0, "initializer_range": 0.02, "use_cache": true,
		},
	}, "", " ")
	if err != nil {
		return fail(err)
	}
	if cfg, err = config.Parse(configJSON); err != nil {
		return fail(err)
	}
	return cfg, configJSON, tokenizerJSON, nil
}
