package serve

import (
	"strconv"

	"cedrun/runtime/kv"
	"cedrun/runtime/serve/job"
	"cedrun/runtime/serve/metrics"
)

// vllmNames shows the metrics of a model under the names of vLLM too, which gateways look for: they send a request to the
// server with a short queue and with room in its KV cache. Names that differ between versions of vLLM are all there. What
// this server has not (adapters, preemption) is left out, but for the count of preemptions, which is 0.
func vllmNames(s *metrics.Set, m *job.Model, e job.Engine) {
	labels := []string{"engine", "0", "model_name", m.ID()}
	for _, x := range [][2]string{
		{"vllm:num_requests_running", "cedrun_requests_running"},
		{"vllm:num_requests_waiting", "cedrun_requests_waiting"},
		{"vllm:prompt_tokens_total", "cedrun_prompt_tokens_total"},
		{"vllm:generation_tokens_total", "cedrun_generated_tokens_total"},
		{"vllm:prefix_cache_queries_total", "cedrun_prompt_tokens_total"},
		{"vllm:prefix_cache_hits_total", "cedrun_cached_tokens_total"},
		{"vllm:request_queue_time_seconds", "cedrun_queue_seconds"},
		{"vllm:time_to_first_token_seconds", "cedrun_time_to_first_token_seconds"},
		{"vllm:inter_token_latency_seconds", "cedrun_inter_token_seconds"},
		{"vllm:time_per_output_token_seconds", "cedrun_inter_token_seconds"},
		{"vllm:e2e_request_latency_seconds", "cedrun_generation_seconds"},
	} {
		s.Alias(x[0], x[1], labels...)
	}
	s.Merge("vllm:request_success_total", "cedrun_generations_total", "finished_reason",
		map[string]string{"tool_calls": "stop", "cancelled": "abort"}, labels...)

	// vLLM counts a block of its prefix cache as free while no request holds it.
	s.Gauges("vllm:kv_cache_usage_perc", "Share of the KV cache that running texts hold, from 0 to 1.", "model_name", map[string]func() float64{
		m.ID(): func() float64 {
			l := e.Load()
			return float64(l.KVInUse-l.KVCached) / float64(max(l.KVTokens, 1))
		},
	})
	s.Alias("vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc")
	s.Info("vllm:cache_config_info", "The KV cache.", append(labels,
		"block_size", strconv.Itoa(kv.PageTokens), "num_gpu_blocks", strconv.Itoa(e.Load().KVTokens/kv.PageTokens),
		"enable_prefix_caching", map[bool]string{true: "True", false: "False"}[m.Cache != job.CacheOff])...)
	s.Totals("vllm:num_preemptions_total", "Texts put back to make room for others: never.", "model_name", map[string]func() float64{
		m.ID(): func() float64 { return 0 },
	})
}
