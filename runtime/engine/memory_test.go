package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	ced "cedrun/cuda"
	"cedrun/runtime/model"
)

// short makes the steps of an engine that have so many requests lack memory after so many calls of the stream, in each of
// their first attempts. No step is run before all requests are there.
func short(i *Instance, requests, after, attempts int, there *sync.WaitGroup) {
	forward := i.Engine.forward
	i.Engine.forward = func(spans []model.Span) (ced.Addr, int, error) {
		there.Wait()
		if attempts > 0 && len(spans) == requests {
			attempts--
			requests--
			seen := 0
			i.stream.SetFault(func(string) error {
				if seen++; seen > after {
					return &ced.Error{Code: ced.ENOMEM, What: "no memory"}
				}
				return nil
			})
			defer i.stream.SetFault(nil)
		}
		return forward(spans)
	}
}

func reading(i *Instance, modes ...model.Prefill) []*job {
	var jobs []*job
	for n, length := range []int{5, 60, 60, 90} {
		jobs = append(jobs, &job{Request: Request{Prompt: someIDs(i, length, uint64(n)), MaxTokens: 25, Prefill: modes[n%len(modes)], Cache: CacheSnapshot}})
	}
	return watched(i.Config, jobs)
}

// together runs jobs in common steps, whatever becomes of them.
func together(t *testing.T, i *Instance, jobs []*job, there *sync.WaitGroup) {
	t.Helper()
	var all sync.WaitGroup
	for _, j := range jobs {
		all.Go(func() {
			time.AfterFunc(5*time.Millisecond, there.Done) // it waits to be taken then
			g, err := i.Submit(context.Background(), j.Request)
			if err != nil {
				t.Error(err)
				return
			}
			j.read(g)
		})
	}
	all.Wait()
}

// Memory that a step lacks costs one request, that of most rows; all others have the bits of a run in which there was enough.
func TestMemoryThatAStepLacksCostsOneRequest(t *testing.T) {
	setup := Setup{Backend: ced.CPU, Context: 128, Slots: 4, Chunk: 24, Outputs: 28, Threads: 1, NoSelfTest: true, Snapshots: 1 << 20}
	modes := []model.Prefill{model.Exact, model.Replay, model.Cone}
	i := open(t, "base", setup)
	want := reading(i, modes...)
	runAll(t, i, want)
	for n, c := range []struct{ attempts, after int }{{1, 0}, {1, 30}, {1, 61}, {1, 110}, {2, 97}, {3, 20}} {
		i := open(t, "base", setup)
		pages := i.model.Pool().Free()
		var there sync.WaitGroup
		there.Add(len(want))
		short(i, 4, c.after, c.attempts, &there)
		got := reading(i, modes...)
		together(t, i, got, &there)
		failed := 0
		for k, j := range got {
			if j.result.Err != nil {
				if failed++; !errors.Is(j.result.Err, ErrNoMemory) || j.result.Finish != FinishError {
					t.Errorf("case %d, request %d: %v", n, k, j.result.Err)
				}
				continue
			}
			if !slices.Equal(j.tokens, want[k].tokens) || !maps.EqualFunc(j.logits, want[k].logits, slices.Equal[[]float32]) {
				t.Errorf("case %d: request %d has other tokens or logits", n, k)
			}
		}
		if failed != c.attempts {
			t.Errorf("case %d: %d requests failed in %d attempts", n, failed, c.attempts)
		}
		i.Engine.Close()
		i.Engine.tree.Evict(pages)
		if now := i.model.Pool().Free(); now != pages {
			t.Errorf("case %d: %d pages are free, %d were", n, now, pages)
		}
	}
}

// Who loses least fails: a prompt before a text that is written, of texts the one that began last.
func TestWhoFailsForMemory(t *testing.T) {
	tokens := make([]int32, 9)
	for _, c := range []struct {
		rows, placed []int
		want         int
	}{
		{[]int{1, 9, 4}, []int{1, 2, 3}, 1}, {[]int{1, 1, 1}, []int{2, 7, 3}, 1}, {[]int{4, 4, 1}, []int{5, 2, 9}, 0}, {[]int{3}, []int{1}, 0},
	} {
		var b batch
		for i, n := range c.rows {
			b.spans = append(b.spans, model.Span{Tokens: tokens[:n]})
			b.owners = append(b.owners, &run{placed: c.placed[i]})
		}
		if got := b.most(); got != c.want {
			t.Errorf("of %v rows, placed %v: %d", c.rows, c.placed, got)
		}
	}
}
