//go:build !race

// Not with the race detector, which allocates on its own.

package engine

import (
	"runtime"
	"slices"
	"testing"

	ced "cedrun/cuda"
	"cedrun/runtime/sample"
)

// A decode step uses the memory of the one before: what it allocates is for the reader of its tokens.
func TestADecodeStepAllocatesNothing(t *testing.T) {
	for _, tc := range []struct {
		name  string
		most  float64 // allocations of a step
		tweak func(*Request)
	}{
		{"forced", 0, func(r *Request) { r.Forced, r.MaxTokens = slices.Repeat([]int32{7}, 100), 0 }},
		{"greedy", 0.3, func(*Request) {}},
		{"sampled", 0.3, func(r *Request) { r.Sampling = sample.Params{Temperature: 1, TopP: 0.9, TopK: 20, Seed: 3} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var before, after runtime.MemStats
			steps := 0
			i := open(t, "calm", Setup{Backend: ced.CPU, Context: 128, Observe: func(Step) {
				switch steps++; steps {
				case 40:
					runtime.ReadMemStats(&before)
				case 90:
					runtime.ReadMemStats(&after)
				}
			}})
			j := &job{Request: Request{Prompt: []int32{1, 2, 3}, MaxTokens: 100, Sampling: sample.Params{TopP: 1}}}
			tc.tweak(&j.Request)
			runAll(t, i, []*job{j})
			if n := float64(after.Mallocs-before.Mallocs) / 50; n > tc.most {
				t.Errorf("%.2f allocations a step, more than %.2f", n, tc.most)
			}
		})
	}
}
