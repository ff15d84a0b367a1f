//go:build sim || cuda

package engine

import (
	"maps"
	"slices"
	"testing"

	ced "cedrun/cuda"
	"cedrun/runtime/model"
)

// Requests that share steps have the same bits whether a device replays decode steps or not.
func TestCapturedStepsServeTheSameBits(t *testing.T) {
	if ced.Devices(ced.CUDA) == 0 {
		t.Skip("no CUDA device")
	}
	serve := func(noGraphs bool) ([]*job, model.GraphUse) {
		var said []string
		i := open(t, "calm", Setup{
			Backend: ced.CUDA, Context: 64, Slots: 3, Chunk: 8, Outputs: 11, NoSelfTest: true, NoGraphs: noGraphs,
			Warn: func(s string) { said = append(said, s) },
		})
		ids := goldenIDs(t, "calm")
		jobs := watched(i.Config, []*job{
			{Request: Request{Prompt: ids[:11], MaxTokens: 6}},
			{Request: Request{Prompt: ids[:2], MaxTokens: 8}},
			{Request: Request{Prompt: ids[3:7], MaxTokens: 4, Prefill: model.Replay}},
		})
		runAll(t, i, jobs)
		if len(said) > 0 {
			t.Errorf("told %q", said)
		}
		return jobs, i.Load().Graphs
	}
	want, use := serve(true)
	if use != (model.GraphUse{}) {
		t.Errorf("without graphs: %+v", use)
	}
	got, use := serve(false)
	if use.Captured != 3 || use.Plain != 0 { // at the start: of 1, 2 and 3 texts, whose steps do not count
		t.Errorf("%+v", use)
	}
	if use.Captured == 0 || use.Replayed == 0 || use.Failed > 0 {
		t.Errorf("with graphs: %+v", use)
	}
	for n := range want {
		if !slices.Equal(got[n].tokens, want[n].tokens) || !maps.EqualFunc(got[n].logits, want[n].logits, slices.Equal[[]float32]) {
			t.Errorf("request %d: other tokens or logits", n)
		}
	}
}
