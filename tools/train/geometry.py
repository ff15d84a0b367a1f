"""Geometry of the demo model and the config.json that describes it (the released key set)."""

TEXT = dict(
    model_type="deepseek_v41_text", num_key_value_heads=1, hidden_act="silu", attention_bias=False, attention_dropout=0.0,
    tie_word_embeddings=False, n_shared_experts=1, scoring_func="sqrtsoftplus", topk_method="noaux_tc", norm_topk_prob=True,
    vocab_size=2560, hidden_size=128, moe_intermediate_size=96, num_hidden_layers=6, num_attention_heads=4, head_dim=64,
    qk_rope_head_dim=16, q_lora_rank=64, o_lora_rank=64, o_groups=2, swiglu_limit=10.0, rms_norm_eps=1e-20,
    max_position_embeddings=131072, rope_theta=10000, n_routed_experts=8, num_experts_per_tok=2, routed_scaling_factor=1.5,
    sliding_window=32, compress_rope_theta=160000, kv_source_layer_ids=[1, 3], index_source_layer_ids=[1, 3, 4],
    index_n_heads=2, index_head_dim=32, index_topk=32, candidate_source_layer_id=3, candidate_topk_blocks=24,
    candidate_block_size=4, hc_mult=4, hc_sinkhorn_iters=20, hc_eps=1e-6, engram_layer_ids=[0, 1], engram_max_ngram_size=4,
    engram_vocab_size=6000, engram_n_heads=2, engram_head_dim=32, engram_pad_token_id=2,
    compress_ratios=[0, 2, 2, 1, 1, 1],
    rope_scaling=dict(rope_type="yarn", factor=16, beta_fast=32, beta_slow=1, original_max_position_embeddings=8192),
    num_nextn_predict_layers=0,
)


def config(engram_rows: list[int], engram_classes: int, image_token_id: int) -> dict:
    text = dict(TEXT, engram_num_embeddings=engram_rows, engram_compressed_vocab_size=engram_classes)
    return dict(
        architectures=["DeepseekV41ForCausalLM"], model_type="deepseek_v41", dtype="bfloat16", bos_token_id=0, eos_token_id=1,
        pad_token_id=2, image_token_id=image_token_id,
        quantization_config=dict(quant_method="fp8", activation_scheme="dynamic", weight_block_size=[32, 32], scale_fmt="ue8m0",
                                 expert_dtype="fp4"),
        text_config=text)
