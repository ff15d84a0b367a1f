package serve_test

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"cedrun/runtime/kv"
	"cedrun/runtime/serve"
)

// scrape reads /metrics as a gateway does.
func (s *server) scrape() map[string]*dto.MetricFamily {
	s.t.Helper()
	r := s.send(context.Background(), "/metrics", nil)
	defer r.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(r.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return families
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// scalar is the value of a metric with one series.
func scalar(t *testing.T, families map[string]*dto.MetricFamily, name string, kind dto.MetricType) float64 {
	t.Helper()
	f := families[name]
	if f == nil || f.GetType() != kind || len(f.GetMetric()) != 1 {
		t.Fatalf("%s: %v", name, f)
	}
	m := f.GetMetric()[0]
	switch kind {
	case dto.MetricType_HISTOGRAM:
		return float64(m.GetHistogram().GetSampleCount())
	case dto.MetricType_COUNTER:
		return m.GetCounter().GetValue()
	}
	return m.GetGauge().GetValue()
}

func TestGatewaysFindTheNamesOfVLLM(t *testing.T) {
	s := start(t, setup{engine: newEngine(t), options: serve.Options{VLLMNames: true}})
	const prompt = "And Moses said unto the people, and unto all the children of Israel"
	for range 2 {
		s.must("/v1/completions", object{"prompt": prompt, "max_tokens": 6, "temperature": 0, "ignore_eos": true, "cache_salt": t.Name()})
	}
	got := s.scrape()
	for name, want := range map[string]float64{
		"vllm:num_requests_running": 0, "vllm:num_requests_waiting": 0, "vllm:kv_cache_usage_perc": 0, "vllm:gpu_cache_usage_perc": 0,
	} {
		if v := scalar(t, got, name, dto.MetricType_GAUGE); v != want {
			t.Errorf("%s is %v, want %v", name, v, want)
		}
	}
	if v := scalar(t, got, "vllm:generation_tokens_total", dto.MetricType_COUNTER); v != 12 {
		t.Errorf("%v tokens written", v)
	}
	queries, hits := scalar(t, got, "vllm:prefix_cache_queries_total", dto.MetricType_COUNTER), scalar(t, got, "vllm:prefix_cache_hits_total", dto.MetricType_COUNTER)
	if queries == 0 || math.Mod(queries, 2) != 0 || hits != queries/2 { // the second time all of it
		t.Errorf("%v of %v prompt tokens were cached", hits, queries)
	}
	if v := scalar(t, got, "vllm:prompt_tokens_total", dto.MetricType_COUNTER); v != queries {
		t.Errorf("%v prompt tokens, %v looked up", v, queries)
	}
	if v := scalar(t, got, "vllm:num_preemptions_total", dto.MetricType_COUNTER); v != 0 {
		t.Errorf("%v preemptions", v)
	}
	for name, want := range map[string]float64{
		"vllm:time_to_first_token_seconds": 2, "vllm:inter_token_latency_seconds": 10, "vllm:time_per_output_token_seconds": 10,
		"vllm:e2e_request_latency_seconds": 2, "vllm:request_queue_time_seconds": 2,
	} {
		if v := scalar(t, got, name, dto.MetricType_HISTOGRAM); v != want {
			t.Errorf("%s has %v observations, want %v", name, v, want)
		}
	}
	if v := scalar(t, got, "vllm:request_success_total", dto.MetricType_COUNTER); v != 2 {
		t.Errorf("%v requests succeeded", v)
	}
	if why := labelOf(got["vllm:request_success_total"].GetMetric()[0], "finished_reason"); why != "length" {
		t.Errorf("they ended by %q", why)
	}
	if v := scalar(t, got, "vllm:cache_config_info", dto.MetricType_GAUGE); v != 1 {
		t.Errorf("the cache's description is %v", v)
	}
	cache := got["vllm:cache_config_info"].GetMetric()[0]
	pages, err := strconv.Atoi(labelOf(cache, "num_gpu_blocks"))
	if size := labelOf(cache, "block_size"); err != nil || size != strconv.Itoa(kv.PageTokens) || pages != int(scalar(t, got, "cedrun_kv_cache_tokens", dto.MetricType_GAUGE))/kv.PageTokens {
		t.Errorf("%q pages of %q tokens", labelOf(cache, "num_gpu_blocks"), size)
	}
	for _, name := range []string{"vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:request_success_total", "vllm:time_to_first_token_seconds"} {
		if m := labelOf(got[name].GetMetric()[0], "model_name"); m != "demo" {
			t.Errorf("%s is of the model %q", name, m)
		}
	}

	// While texts run, their pages are in use and further texts wait.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for range slots + 1 {
		r := s.send(ctx, "/v1/completions", object{"prompt": prompt, "max_tokens": 900, "ignore_eos": true, "stream": true, "cache": "off"})
		defer r.Body.Close()
	}
	got = s.scrape()
	running, waiting := scalar(t, got, "vllm:num_requests_running", dto.MetricType_GAUGE), scalar(t, got, "vllm:num_requests_waiting", dto.MetricType_GAUGE)
	if running+waiting != slots+1 {
		t.Errorf("%v run and %v wait, of %d", running, waiting, slots+1)
	}
	if v := scalar(t, got, "vllm:kv_cache_usage_perc", dto.MetricType_GAUGE); v <= 0 || v > 1 {
		t.Errorf("usage %v", v)
	}
}

func TestMetricsKeepToTheirNames(t *testing.T) {
	s := start(t, setup{options: serve.Options{Keys: []string{"k"}}})
	if code, _ := s.call("/metrics", nil); code != http.StatusUnauthorized {
		t.Errorf("without a key: %d", code)
	}
	s.key = "k"
	for name := range s.scrape() {
		if len(name) > 5 && name[:5] == "vllm:" {
			t.Errorf("%s is there unasked", name)
		}
	}
	open := start(t, setup{options: serve.Options{Keys: []string{"k"}, OpenMetrics: true}})
	if open.scrape()["cedrun_ready"] == nil {
		t.Error("metrics that are open lack the state of the server")
	}
	if code, _ := open.call("/v1/models", nil); code != http.StatusUnauthorized {
		t.Errorf("models, without a key: %d", code)
	}
}
