package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const releasePath = "../../testdata/release/config.json"

func load(t *testing.T, path string) *Config {
	t.Helper()
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mini(name string) string { return filepath.Join("../../testdata/mini", name, "config.json") }

func TestReleaseGeometry(t *testing.T) {
	want := &Config{
		VocabSize: 129280, HiddenSize: 5120, Layers: 40, Heads: 64, HeadDim: 512, RopeDim: 64,
		QLoraRank: 1280, OGroups: 8, OLoraRank: 1024, MoEIntermediate: 2304,
		Experts: 384, ExpertsPerToken: 6, SharedExperts: 1,
		RouteScale: 1.5, NormTopK: true, GateTemp: 1, SwiGLULimit: 10, NormEps: 1e-20,
		Window: 128, MaxPositions: 1048576, RopeTheta: 10000, CompressRopeTheta: 160000,
		Yarn:           Yarn{Factor: 16, BetaFast: 32, BetaSlow: 1, Original: 65536},
		CompressRatios: slices.Concat(slices.Repeat([]int{0}, 2), slices.Repeat([]int{2}, 18), slices.Repeat([]int{1}, 20)),
		KVSources:      []int{2, 8, 14, 20}, IndexSources: []int{2, 8, 14, 20, 24, 28, 32, 36},
		IndexHeads: 32, IndexHeadDim: 128, IndexTopK: 512,
		CandidateSource: 20, CandidateTopKBlocks: 2048, CandidateBlock: 8,
		HCMult: 4, HCSinkhornIters: 20, HCEps: 1e-6,
		Engram: Engram{
			Layers: []int{1, 14}, Rows: []int64{384006168, 384016682}, MaxNgram: 4, VocabSize: 16000000,
			Heads: 8, HeadDim: 256, PadToken: 2, Classes: 99092,
		},
		Draft: Draft{
			Layers: 3, BlockSize: 5, NoiseToken: 128799, Targets: []int{37, 38, 39}, MarkovRank: 256,
			Experts: 128, ExpertsPerToken: 3,
		},
		Vision: &Vision{
			Layers: 32, HiddenSize: 1024, Heads: 16, Intermediate: 2816, PatchSize: 14, RopeTheta: 10000,
			Downsample: 3, MaxTokens: 1024, MinPixels: 295936,
		},
		BOS: 0, EOS: 1, Pad: 2, ImageToken: 129264,
	}
	got := load(t, releasePath)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if n := got.BytesPerToken(); n != 890 {
		t.Errorf("BytesPerToken = %d, want 890", n)
	}
	if m, i, w := got.MainRowBytes(), got.IndexRowBytes(), got.WindowRowBytes(); m != 288 || i != 68 || w != 528 {
		t.Errorf("row bytes = %d %d %d, want 288 68 528", m, i, w)
	}
	if n := got.Engram.Columns(); n != 24 {
		t.Errorf("Columns = %d, want 24", n)
	}
}

func TestSpellings(t *testing.T) {
	want := load(t, releasePath)
	var root map[string]any
	read(t, releasePath, &root)

	t.Run("flat", func(t *testing.T) { check(t, want, flat(root)) })
	t.Run("text keys at top level", func(t *testing.T) {
		m := maps.Clone(root)
		maps.Copy(m, root["text_config"].(map[string]any))
		m["model_type"] = "deepseek_v41"
		delete(m, "text_config")
		check(t, want, m)
	})
	t.Run("both spellings that agree", func(t *testing.T) {
		m := flat(root)
		maps.Copy(m, root)
		check(t, want, m)
	})
	t.Run("every split between nested and flat", func(t *testing.T) {
		whole := flat(root)
		for _, key := range slices.Sorted(maps.Keys(whole)) {
			m := maps.Clone(root)
			m[key] = whole[key]
			if key == "dtype" {
				continue // bfloat16 or fp8: says nothing about the geometry
			}
			check(t, want, m)
		}
	})
}

func check(t *testing.T, want *Config, m map[string]any) {
	t.Helper()
	got, err := Parse(encode(t, m))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// flat rewrites the released config in the spelling of the reference's inference/config.json.
func flat(root map[string]any) map[string]any {
	renamed := map[string]string{
		"hidden_size": "dim", "moe_intermediate_size": "moe_inter_dim", "num_hidden_layers": "n_layers",
		"num_attention_heads": "n_heads", "qk_rope_head_dim": "rope_head_dim", "rms_norm_eps": "norm_eps",
		"max_position_embeddings": "max_seq_len", "num_experts_per_tok": "n_activated_experts",
		"scoring_func": "score_func", "routed_scaling_factor": "route_scale", "sliding_window": "window_size",
		"kv_source_layer_ids": "kv_source_layers", "index_source_layer_ids": "index_source_layers",
		"candidate_source_layer_id": "candidate_source_layer", "engram_pad_token_id": "engram_pad_id",
		"num_nextn_predict_layers": "n_mtp_layers", "dspark_num_experts_per_tok": "dspark_n_activated_experts",
	}
	vision := map[string]string{
		"num_hidden_layers": "vision_n_layers", "hidden_size": "vision_dim", "num_attention_heads": "vision_n_heads",
		"intermediate_size": "vision_inter_dim", "patch_size": "vision_patch_size", "rope_theta": "vision_rope_theta",
		"downsample_ratio": "vision_downsample_ratio", "max_image_tokens": "vision_max_n_token",
		"min_pixels": "vision_min_pixels", "max_wh_ratio": "vision_max_wh_ratio",
	}
	m := map[string]any{"dtype": "fp8", "expert_dtype": "fp4", "image_token_id": root["image_token_id"]}
	for k, v := range root["text_config"].(map[string]any) {
		switch k {
		case "model_type", "norm_topk_prob", "topk_method", "hidden_act", "num_key_value_heads":
			continue
		case "rope_scaling":
			r := v.(map[string]any)
			m["rope_factor"], m["beta_fast"], m["beta_slow"] = r["factor"], r["beta_fast"], r["beta_slow"]
			m["original_seq_len"] = r["original_max_position_embeddings"]
			continue
		}
		if n, ok := renamed[k]; ok {
			k = n
		}
		m[k] = v
	}
	for k, v := range root["vision_config"].(map[string]any) {
		if n, ok := vision[k]; ok {
			m[n] = v
		}
	}
	return m
}

func read(t testing.TB, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.UseNumber()
	if err := dec.Decode(v); err != nil {
		t.Fatal(err)
	}
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// raw is a JSON value that a test writes verbatim.
type raw = json.RawMessage

func TestBadConfigIsRefused(t *testing.T) {
	tests := []struct {
		name string
		set  map[string]any // path -> value; nil deletes
		want string         // part of the error
	}{
		{"alias disagrees", map[string]any{"dim": 4096}, "text_config.hidden_size = 5120 and dim = 4096 disagree"},
		{"alias of a list disagrees", map[string]any{"kv_source_layers": []int{2, 8}}, "kv_source_layers = [2 8] disagree"},
		{"draft alias disagrees", map[string]any{"dspark_n_activated_experts": 2}, "text_config.dspark_num_experts_per_tok = 3 and dspark_n_activated_experts = 2"},
		{"rope alias disagrees", map[string]any{"rope_factor": 8}, "rope_factor = 8 disagree"},
		{"alias disagrees beyond float64", map[string]any{"text_config.vocab_size": raw("9007199254740993"), "vocab_size": raw("9007199254740992")}, "disagree"},
		{"missing key", map[string]any{"text_config.hidden_size": nil}, "text_config.hidden_size is missing"},
		{"negative", map[string]any{"text_config.num_attention_heads": -64}, "num_attention_heads = -64 is outside"},
		{"zero", map[string]any{"text_config.o_groups": 0}, "o_groups = 0 is outside"},
		{"huge", map[string]any{"text_config.hidden_size": raw("99999999999999999999")}, "hidden_size = 99999999999999999999 is outside"},
		{"fractional", map[string]any{"text_config.head_dim": 512.5}, "head_dim = 512.5 is not an integer"},
		{"exponent", map[string]any{"text_config.head_dim": raw("1e2")}, "head_dim = 1e2 is not an integer"},
		{"string for a number", map[string]any{"text_config.head_dim": "512"}, "head_dim = 512 is not an integer"},
		{"number for a list", map[string]any{"text_config.compress_ratios": 2}, "compress_ratios = 2 is not a list"},
		{"zero eps", map[string]any{"text_config.rms_norm_eps": 0}, "rms_norm_eps = 0 is outside"},
		{"short ratios", map[string]any{"text_config.compress_ratios": []int{0, 0, 2}}, "compress_ratios has 3 entries for 40 layers"},
		{"ratio 4", map[string]any{"text_config.compress_ratios": append(slices.Repeat([]int{0}, 39), 4)}, "compress_ratios[39] = 4 is outside 0..2"},
		{"kv source on an SWA layer", map[string]any{"text_config.kv_source_layer_ids": []int{1, 8, 14, 20}}, "layer 1 is in kv_source_layer_ids but has compress ratio 0"},
		{"kv sources unsorted", map[string]any{"text_config.kv_source_layer_ids": []int{8, 2, 14, 20}}, "is not strictly ascending"},
		{"kv source repeated", map[string]any{"text_config.kv_source_layer_ids": []int{2, 8, 8, 20}}, "is not strictly ascending"},
		{"kv source beyond the layers", map[string]any{"text_config.kv_source_layer_ids": []int{2, 8, 14, 40}}, "contains 40, but there are 40 layers"},
		{"compressed layer before any source", map[string]any{"text_config.kv_source_layer_ids": []int{8, 14, 20}}, "layer 2 has compress ratio 2 but no KV source"},
		{"ratio differs from the source's", map[string]any{"text_config.kv_source_layer_ids": []int{2, 8, 14, 24}, "text_config.candidate_source_layer_id": 24}, "layer 20 has compress ratio 1 but reads the rows of layer 14"},
		{"kv source without selection", map[string]any{"text_config.index_source_layer_ids": []int{2, 14, 20}}, "layer 8 is in kv_source_layer_ids but not in index_source_layer_ids"},
		{"candidate source is not the last", map[string]any{"text_config.candidate_source_layer_id": 14}, "candidate_source_layer_id = 14 is not the last KV source (20)"},
		{"too few candidates", map[string]any{"text_config.candidate_topk_blocks": 64}, "can leave 505 candidates, fewer than index_topk = 512"},
		{"rope wider than the index head", map[string]any{"text_config.qk_rope_head_dim": 256}, "qk_rope_head_dim = 256 exceeds index_head_dim = 128"},
		{"odd rope", map[string]any{"text_config.qk_rope_head_dim": 63}, "qk_rope_head_dim = 63 is not a multiple of 2"},
		{"hidden size off the block grid", map[string]any{"text_config.hidden_size": 5104}, "hidden_size = 5104 is not a multiple of 32"},
		{"index head off the block grid", map[string]any{"text_config.index_head_dim": 80}, "index_head_dim = 80 is not a multiple of 32"},
		{"groups do not divide heads", map[string]any{"text_config.o_groups": 7}, "is not a multiple of 7"},
		{"more active experts than experts", map[string]any{"text_config.n_routed_experts": 5}, "num_experts_per_tok = 6 exceeds n_routed_experts = 5"},
		{"more tensors than any model", map[string]any{"text_config.n_routed_experts": 4096, "text_config.num_hidden_layers": 16384}, "16384 layers of 4096 experts"},
		{"index head wider than the kernel's", map[string]any{"text_config.index_head_dim": 544}, "index_head_dim = 544 is outside 1..512"},
		{"more index heads than the kernel's", map[string]any{"text_config.index_n_heads": 257}, "index_n_heads = 257 is outside 1..256"},
		{"more active experts than the kernel's", map[string]any{"text_config.num_experts_per_tok": 65}, "num_experts_per_tok = 65 is outside 1..64"},
		{"more experts than the kernel's", map[string]any{"text_config.n_routed_experts": 4097}, "n_routed_experts = 4097 is outside 1..4096"},
		{"more streams than the kernel's", map[string]any{"text_config.hc_mult": 9}, "hc_mult = 9 is outside 1..8"},
		{"head wider than the kernel's", map[string]any{"text_config.head_dim": 8224}, "head_dim = 8224 is outside 1..8192"},
		{"engram row counts", map[string]any{"text_config.engram_num_embeddings": []int{384006168}}, "engram_num_embeddings has 1 entries for 2 layers"},
		{"engram table smaller than its primes", map[string]any{"text_config.engram_num_embeddings": []int{384006168, 1000}}, "engram_num_embeddings contains 1000"},
		{"engram layer out of range", map[string]any{"text_config.engram_layer_ids": []int{1, 44}}, "engram_layer_ids contains 44"},
		{"draft target out of range", map[string]any{"text_config.dspark_target_layer_ids": []int{37, 38, 40}}, "dspark_target_layer_ids contains 40"},
		{"token outside the vocabulary", map[string]any{"image_token_id": 129280}, "image_token_id = 129280 is outside the vocabulary"},
		{"other model", map[string]any{"model_type": "deepseek_v4"}, "model_type = deepseek_v4 is not supported, only deepseek_v41"},
		{"other block size", map[string]any{"quantization_config.weight_block_size": []int{128, 128}}, "weight_block_size = [128 128] is not supported, only [32 32]"},
		{"FP8 experts", map[string]any{"quantization_config.expert_dtype": "fp8"}, "expert_dtype = fp8 is not supported, only fp4"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var root map[string]any
			read(t, releasePath, &root)
			for path, v := range tt.set {
				set(root, path, v)
			}
			_, err := Parse(encode(t, root))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q does not contain %q", fmt.Sprint(err), tt.want)
			}
		})
	}
}

func set(m map[string]any, path string, v any) {
	if scope, key, ok := strings.Cut(path, "."); ok {
		m, path = m[scope].(map[string]any), key
	}
	if v == nil {
		delete(m, path)
		return
	}
	m[path] = v
}

func TestMalformedJSONIsRefused(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", "not a JSON object"},
		{"[]", "not a JSON object"},
		{"<html>", "not a JSON object"},
		{`{"dim": 1`, "malformed JSON"},
		{`{"dim": 1} x`, "data after the JSON object"},
		{`{"dim": 1, "dim": 2}`, "dim occurs twice"},
		{`{"text_config": {"dim": 1}, "text_config": {"dim": 2}}`, "text_config occurs twice"},
		{strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40), "nested deeper"},
		{`{"a":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + "}", "nested deeper"},
	} {
		if _, err := Parse([]byte(tt.in)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Parse(%.40q) = %v, want %q", tt.in, err, tt.want)
		}
	}
}

func TestEveryFaultIsReportedAtOnce(t *testing.T) {
	var root map[string]any
	read(t, releasePath, &root)
	set(root, "text_config.hidden_size", 5104)
	set(root, "text_config.q_lora_rank", 1281)
	_, err := Parse(encode(t, root))
	for _, want := range []string{"hidden_size", "q_lora_rank"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	paths, err := filepath.Glob("../../testdata/mini/*/config.json")
	if err != nil || len(paths) == 0 {
		f.Fatal("no mini configs", err)
	}
	for _, p := range append(paths, releasePath) {
		data, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	var root map[string]any
	read(f, releasePath, &root)
	f.Add(encode(f, flat(root)))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse(data)
		if err != nil {
			return
		}
		if len(c.Schedule()) != c.Layers || len(c.RopeFreqs(true)) != c.RopeDim/2 || c.BytesPerToken() < 0 {
			t.Error("accepted config derives inconsistent values")
		}
		for _, l := range c.Schedule() {
			if l.Ratio > 0 && (l.KVSource < 0 || l.IndexSource < l.KVSource || c.CompressRatios[l.KVSource] != l.Ratio) {
				t.Errorf("layer %+v has no usable source", l)
			}
		}
	})
}
