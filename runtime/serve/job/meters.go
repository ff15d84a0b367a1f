package job

import (
	"cedrun/runtime/engine"
	"cedrun/runtime/kv/disk"
	"cedrun/runtime/model"
	"cedrun/runtime/serve/metrics"
)

// meters are the metrics of what a Runner does.
type meters struct {
	queued, first, between, whole                                       metrics.Histogram
	prompt, cached, written, reasoning, ended, refused, prefill, decode metrics.Counter
	restored, rerun, loaded                                             metrics.Counter
}

var (
	longTimes  = []float64{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000}
	shortTimes = []float64{0.001, 0.003, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 3, 10}
)

func newMeters(s *metrics.Set) meters {
	return meters{
		queued:    s.Histogram("cedrun_queue_seconds", "Time from arrival to a place in the engine, by text.", longTimes),
		first:     s.Histogram("cedrun_time_to_first_token_seconds", "Time from arrival to the first token, by text.", longTimes),
		between:   s.Histogram("cedrun_inter_token_seconds", "Time between tokens of a text.", shortTimes),
		whole:     s.Histogram("cedrun_generation_seconds", "Time from arrival to the end, by text.", longTimes),
		prompt:    s.Counter("cedrun_prompt_tokens_total", "Prompt tokens, cached ones included."),
		cached:    s.Counter("cedrun_cached_tokens_total", "Prompt tokens whose global KV was in the cache."),
		restored:  s.Counter("cedrun_cache_restores_total", "Texts by what they began on: none, snapshot, rows or replay.", "restore"),
		rerun:     s.Counter("cedrun_cache_replayed_tokens_total", "Cached prompt tokens that were run again to fill windows."),
		loaded:    s.Counter("cedrun_cache_disk_tokens_total", "Cached prompt tokens whose pages were read from disk."),
		written:   s.Counter("cedrun_generated_tokens_total", "Tokens written."),
		reasoning: s.Counter("cedrun_reasoning_tokens_total", "Tokens written that are reasoning."),
		ended:     s.Counter("cedrun_generations_total", "Texts ended, by reason.", "finish"),
		refused:   s.Counter("cedrun_requests_refused_total", "Requests refused at admission, by reason.", "reason"),
		prefill:   s.Counter("cedrun_prefill_seconds_total", "Time that texts spent in steps before their first token."),
		decode:    s.Counter("cedrun_decode_seconds_total", "Time that texts spent in steps after their first token."),
	}
}

// gauges shows the state of the engine and of the queue.
func (r *Runner) gauges(s *metrics.Set) {
	s.Gauge("cedrun_requests_running", "Texts that take part in steps.", func() float64 {
		running, _ := r.Load()
		return float64(running)
	})
	s.Gauge("cedrun_requests_waiting", "Texts that wait for a place.", func() float64 {
		_, waiting := r.Load()
		return float64(waiting)
	})
	s.Gauge("cedrun_kv_cache_tokens", "Tokens that the KV cache holds at most.", func() float64 { return float64(r.engine.Load().KVTokens) })
	s.Gauge("cedrun_kv_cache_usage_ratio", "Share of the KV cache in use, cached pages included.", func() float64 {
		l := r.engine.Load()
		return float64(l.KVInUse) / float64(max(l.KVTokens, 1))
	})
	s.Gauges("cedrun_kv_pages", "Pages of the prefix cache, by tier.", "tier", map[string]func() float64{
		"backend": func() float64 { return float64(r.engine.Load().CachePages) },
		"host":    func() float64 { return 0 }, // the CPU back end's memory is the host's
		"disk":    func() float64 { return float64(r.engine.Load().Disk.Pages) },
	})
	r.diskGauges(s)
	r.graphTotals(s)
	r.expertGauges(s)
	s.Gauge("cedrun_kv_held_tokens", "Tokens of pages that running texts hold; 0 when none runs.", func() float64 {
		l := r.engine.Load()
		return float64(l.KVInUse - l.KVCached)
	})
	s.Gauge("cedrun_kv_shared_tokens", "Tokens of pages that several running texts share.", func() float64 { return float64(r.engine.Load().KVShared) })
	s.Gauge("cedrun_snapshots", "Snapshots of sequences.", func() float64 { return float64(r.engine.Load().Snapshots) })
	s.Gauge("cedrun_snapshot_bytes", "Bytes of snapshots.", func() float64 { return float64(r.engine.Load().SnapshotBytes) })
	s.Total("cedrun_cache_evictions_total", "Pages that the prefix cache gave up for others.", func() float64 { return float64(r.engine.Load().Evictions) })
	s.Total("cedrun_snapshot_evictions_total", "Snapshots dropped for others or for their age.", func() float64 { return float64(r.engine.Load().SnapshotEvictions) })
}

// graphTotals shows how a device ran decode steps.
func (r *Runner) graphTotals(s *metrics.Set) {
	count := func(of func(*model.GraphUse) uint64) func() float64 {
		return func() float64 {
			g := r.engine.Load().Graphs
			return float64(of(&g))
		}
	}
	s.Total("cedrun_graphs_captured_total", "Batch sizes whose decode step a GPU captured.", count(func(g *model.GraphUse) uint64 { return g.Captured }))
	s.Totals("cedrun_graph_steps_total", "Decode steps of a GPU, unless --no-graphs: replayed by one launch, or plain, kernel by kernel.", "run", map[string]func() float64{
		"replayed": count(func(g *model.GraphUse) uint64 { return g.Replayed }), "plain": count(func(g *model.GraphUse) uint64 { return g.Plain }),
	})
	s.Total("cedrun_graph_failures_total", "Captures and launches that a GPU refused; those steps ran plainly.", count(func(g *model.GraphUse) uint64 { return g.Failed }))
}

// expertGauges shows where steps find their experts, on a device that has room for a part of them.
func (r *Runner) expertGauges(s *metrics.Set) {
	if r.engine.Load().Experts.Experts == 0 {
		return
	}
	of := func(value func(*engine.ExpertLoad) float64) func() float64 {
		return func() float64 {
			x := r.engine.Load().Experts
			return value(&x)
		}
	}
	s.Gauge("cedrun_expert_slots", "Routed experts that have room on the device.", of(func(x *engine.ExpertLoad) float64 { return float64(x.Slots) }))
	s.Total("cedrun_expert_hits_total", "Experts that a step used and that were on the device, each once a layer and step.", of(func(x *engine.ExpertLoad) float64 { return float64(x.Hits) }))
	s.Total("cedrun_expert_misses_total", "Experts that a step read from host memory over the bus or, with --expert-compute cpu, let the CPU compute, each once a layer and step.", of(func(x *engine.ExpertLoad) float64 { return float64(x.Misses) }))
	s.Total("cedrun_expert_moved_bytes_total", "Bytes of experts that were brought to the device between steps.", of(func(x *engine.ExpertLoad) float64 { return float64(x.MovedBytes) }))
	s.Total("cedrun_expert_streamed_bytes_total", "Bytes of experts that were brought to the device for one step of a prompt.", of(func(x *engine.ExpertLoad) float64 { return float64(x.StreamedBytes) }))
	s.Total("cedrun_expert_stalled_seconds_total", "Time that steps waited for the log of routers; they never wait for a copy.", of(func(x *engine.ExpertLoad) float64 { return x.Stalled.Seconds() }))
}

// diskGauges shows the state of the pages on disk.
func (r *Runner) diskGauges(s *metrics.Set) {
	state := func(is disk.State) func() float64 {
		return func() float64 {
			if r.engine.Load().Disk.State == is {
				return 1
			}
			return 0
		}
	}
	s.Gauges("cedrun_kv_disk_state", "1 for what the disk tier does: on, full (writes in place of its pages), paused (reads only) or off.", "state", map[string]func() float64{
		"on": state(disk.StateOn), "full": state(disk.StateFull), "paused": state(disk.StatePaused), "off": state(disk.StateOff),
	})
	s.Gauge("cedrun_kv_disk_bytes", "Bytes of the files of the disk tier.", func() float64 { return float64(r.engine.Load().Disk.Bytes) })
	s.Gauge("cedrun_kv_disk_queue", "Pages that wait to be written.", func() float64 {
		l := r.engine.Load()
		return float64(l.Disk.Queued + l.Spilling)
	})
	s.Gauge("cedrun_requests_fetching", "Waiting texts whose pages are being read from disk.", func() float64 { return float64(r.engine.Load().Fetching) })
	count := func(of func(*disk.Stats) int64) func() float64 {
		return func() float64 {
			d := r.engine.Load().Disk
			return float64(of(&d))
		}
	}
	s.Totals("cedrun_kv_disk_pages_total", "Pages of the disk tier by what happened to them.", "event", map[string]func() float64{
		"written": count(func(d *disk.Stats) int64 { return d.Written }), "read": count(func(d *disk.Stats) int64 { return d.Reads }),
		"dropped": count(func(d *disk.Stats) int64 { return d.Dropped }), "evicted": count(func(d *disk.Stats) int64 { return d.Evicted }),
		"corrupt": count(func(d *disk.Stats) int64 { return d.Corrupt }),
		"failed":  count(func(d *disk.Stats) int64 { return d.ReadErrors + d.WriteErrors }),
	})
}
