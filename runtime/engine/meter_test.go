package engine

import (
	"testing"

	ced "cedrun/cuda"
	"cedrun/runtime/model"
	"cedrun/runtime/sample"
)

// What an engine counts is what its requests did.
func TestCountersAddUpToWhatRan(t *testing.T) {
	i := open(t, "base", Setup{Backend: ced.CPU, Context: 512, Chunk: 50, Slots: 2})
	before := i.Counters() // the self-test ran the model
	if before.Prefill != (PhaseCount{}) || before.Requests != 0 {
		t.Fatalf("an engine that did nothing: %+v", before)
	}
	ids := someIDs(i, 200, 3)
	run := func(n, write int) Stats {
		return say(t, i, nil, Request{Prompt: ids[:n], MaxTokens: write, Prefill: model.Cone, Cache: CacheReplay, Sampling: sample.Params{TopP: 1}}).result.Stats
	}
	first := run(130, 5)
	c := i.Counters()
	if c.Prefill.Tokens != 130 || c.Prefill.Steps != 3 || c.Decode.Tokens != 4 || c.Decode.Steps != 4 || c.Batch != 1 || c.Depth != 133 {
		t.Errorf("130 tokens in chunks of 50, then 4 steps: %+v", c)
	}
	if c.Requests != 1 || c.Hits != 0 || c.PromptTokens != 130 || c.Prompt != 130 || c.Mode != model.Cone {
		t.Errorf("one cold request: %+v", c)
	}
	if c.Prefill.Time <= 0 || c.Decode.Time > first.Prefill+first.Decode {
		t.Errorf("times %v and %v of %+v", c.Prefill.Time, c.Decode.Time, first)
	}
	second := run(200, 1)
	c = i.Counters()
	if c.Hits != 1 || c.HitTokens != uint64(second.Cache.Hit) || c.Replayed != uint64(second.Cache.Rerun) || second.Cache.Hit == 0 {
		t.Errorf("a prompt on cached pages, %+v: %+v", second.Cache, c)
	}
	rows := uint64(0)
	for _, l := range c.Model.Experts {
		if l.Missed > l.Chosen {
			t.Errorf("%d of %d experts missed", l.Missed, l.Chosen)
		}
		rows += l.Chosen
	}
	if len(c.Model.Experts) != i.Config.Layers || rows == 0 || c.Model.EngramRows <= before.Model.EngramRows {
		t.Errorf("%+v", c.Model)
	}
}

// What a step pays for being counted, on the engine's side.
func BenchmarkCountingAStep(b *testing.B) {
	var m meter
	x := &batch{decode: 4, depth: 4000}
	for range b.N {
		m.step(x, 1000)
	}
}
