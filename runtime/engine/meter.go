package engine

import (
	"sync/atomic"
	"time"

	"cedrun/runtime/model"
)

// Counters are what an engine did since it started; two of them, some time apart, make rates. The loop only stores and
// adds: some ten atomics a step.
type Counters struct {
	Prefill, Decode PhaseCount
	Batch           int // sequences that decoded in the last step
	Depth           int // their mean position

	Requests, PromptTokens uint64 // admitted
	Hits, HitTokens        uint64 // requests that began on the cache or a session, and the tokens they found there
	Replayed, Loaded       uint64 // of the tokens found: run again, to fill the windows; read from disk
	Prompt                 int    // tokens of the last prompt that was admitted
	Mode                   model.Prefill
	Model                  model.Use
}

// PhaseCount counts prefill or decode.
type PhaseCount struct {
	Tokens, Steps uint64
	Time          time.Duration // of steps that had any of it, each counted whole
}

type phaseMeter struct {
	tokens, steps atomic.Uint64
	time          atomic.Int64
}

func (p *phaseMeter) add(rows int, took time.Duration) {
	if rows > 0 {
		p.tokens.Add(uint64(rows))
		p.steps.Add(1)
		p.time.Add(int64(took))
	}
}

func (p *phaseMeter) count() PhaseCount {
	return PhaseCount{p.tokens.Load(), p.steps.Load(), time.Duration(p.time.Load())}
}

type meter struct {
	prefill, decode                                      phaseMeter
	batch, depth                                         atomic.Int64
	requests, prompts, hits, hitTokens, replayed, loaded atomic.Uint64
	prompt, mode                                         atomic.Int64
}

// step counts a batch that has run.
func (m *meter) step(b *batch, took time.Duration) {
	m.prefill.add(b.prefill, took)
	m.decode.add(b.decode, took)
	m.batch.Store(int64(b.decode))
	if b.decode > 0 {
		m.depth.Store(int64(b.depth / b.decode))
	}
}

// admit counts a request that has got its place.
func (m *meter) admit(q *run) {
	m.requests.Add(1)
	m.prompts.Add(uint64(len(q.Prompt)))
	if found := q.stats.Reused + q.stats.Cache.Rerun; found > 0 {
		m.hits.Add(1)
		m.hitTokens.Add(uint64(found))
		m.replayed.Add(uint64(q.stats.Cache.Rerun))
		m.loaded.Add(uint64(q.stats.Cache.Loaded))
	}
	m.prompt.Store(int64(len(q.Prompt)))
	m.mode.Store(int64(q.Prefill))
}

// Counters can be called from any goroutine.
func (e *Engine) Counters() Counters {
	m := &e.meter
	return Counters{
		Prefill: m.prefill.count(), Decode: m.decode.count(), Batch: int(m.batch.Load()), Depth: int(m.depth.Load()),
		Requests: m.requests.Load(), PromptTokens: m.prompts.Load(), Hits: m.hits.Load(), HitTokens: m.hitTokens.Load(),
		Replayed: m.replayed.Load(), Loaded: m.loaded.Load(), Prompt: int(m.prompt.Load()), Mode: model.Prefill(m.mode.Load()), Model: e.model.Use(),
	}
}
