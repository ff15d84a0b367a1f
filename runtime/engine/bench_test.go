package engine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ced "cedrun/cuda"
	"cedrun/runtime/model"
	"cedrun/runtime/sample"
)

// BenchmarkStep is what the engine adds to a decode step of 64 sequences: a model that computes nothing stands in for the
// real one, and each sequence has a reader that waits for its tokens. It reports the time from the end of one step to the
// end of the next, and reading the row of logits (53 tokens), sampling and handing over are in it.
//
//	go test -run - -bench Step ./runtime/engine
func BenchmarkStep(b *testing.B) {
	const sequences, length = 64, 1000
	for _, tc := range []struct {
		name  string
		tweak func(*Request)
	}{
		{"greedy", func(*Request) {}},
		{"sampled", func(r *Request) { r.Sampling = sample.Params{Temperature: 1, TopP: 0.95, Seed: 3} }},
	} {
		b.Run(tc.name, func(b *testing.B) {
			var took time.Duration
			var all []float64
			i, err := Open(Source{Dir: mini + "edge"}, Setup{
				Backend: ced.CPU, Threads: 1, Context: length + 64, Slots: sequences, NoSelfTest: true,
				Observe: func(s Step) {
					if s.Decode == sequences && s.Prefill == 0 {
						took += s.Took
						all = append(all, float64(s.Took.Nanoseconds())/1e3)
					}
				},
			})
			if err != nil {
				b.Fatal(err)
			}
			defer i.Close()
			var here atomic.Bool // all sequences
			i.forward = func(spans []model.Span) (ced.Addr, int, error) {
				if !here.Load() {
					time.Sleep(100 * time.Microsecond) // so that the first are not done before the last has come
				}
				logits, n := i.model.Skip(spans)
				return logits, n, nil
			}
			b.ReportAllocs()
			for len(all) < b.N {
				r := Request{Prompt: []int32{1, 2, 3}, MaxTokens: length, Sampling: sample.Params{TopP: 1}}
				tc.tweak(&r)
				here.Store(false)
				var readers sync.WaitGroup
				for range sequences {
					g, err := i.Submit(context.Background(), r)
					if err != nil {
						b.Fatal(err)
					}
					readers.Go(func() {
						if r := g.Wait(); r.Err != nil {
							b.Error(r.Err)
						}
					})
				}
				here.Store(true)
				readers.Wait()
			}
			b.StopTimer()
			slices.Sort(all)
			b.ReportMetric(float64(took.Nanoseconds())/1e3/float64(len(all)), "us/step")
			b.ReportMetric(all[len(all)/2], "us/median")
			b.ReportMetric(all[len(all)/10], "us/p10")
			b.ReportMetric(all[len(all)*99/100], "us/p99")
			b.ReportMetric(0, "ns/op")
		})
	}
}
