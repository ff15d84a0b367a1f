package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	ced "cedrun/cuda"
	"cedrun/runtime/model"
	"cedrun/runtime/sample"
)

// random is a request of any kind; some fail in their callback.
func random(r *rand.Rand, ids []int32, sessions []*Session) Request {
	q := Request{Prompt: ids[:1+r.IntN(len(ids))], Prefill: model.Prefill(r.IntN(3)), MaxTokens: r.IntN(20), Sampling: sample.Params{TopP: 1, Temperature: 1}}
	if r.IntN(3) == 0 {
		q.Session = sessions[r.IntN(len(sessions))]
	} else {
		q.Cache, q.Salt = Cache(r.IntN(3)), []string{"a", "b"}[r.IntN(2)]
	}
	if r.IntN(4) == 0 {
		q.LogitsFrom = len(q.Prompt) - 1
		fail := r.IntN(2) == 0
		q.OnLogits = func(int, []float32) error {
			if fail {
				return errors.New("refused")
			}
			return nil
		}
	}
	return q
}

// Whatever requests, cancellations and failures come together: each ends, and slots, pages and goroutines come back.
func TestNothingIsLostOverManyRequests(t *testing.T) {
	before := runtime.NumGoroutine()
	i, err := Open(Source{Dir: mini + "edge"}, Setup{Backend: ced.CPU, Context: 64, Slots: 3, Chunk: 7, KVTokens: 128, Snapshots: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	all, ids := i.model.FreeTokens(), goldenIDs(t, "edge")
	sessions := []*Session{{}, {}}
	var wait sync.WaitGroup
	for n := range 12 {
		wait.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(n)))
			for range 8 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(30))*time.Millisecond)
				if r.IntN(2) == 0 {
					ctx, cancel = context.WithCancel(context.Background())
				}
				g, err := i.Submit(ctx, random(r, ids, sessions))
				if err == nil && g.Wait().Finish == "" {
					t.Error("a request ended without a reason")
				}
				cancel()
			}
		})
	}
	wait.Wait()

	// With all done, requests that need every slot and page in turn still run.
	for range 4 {
		runAll(t, i, []*job{{Request: Request{Prompt: ids, MaxTokens: 45, Sampling: sample.Params{TopP: 1}}}})
	}
	i.Engine.Close()
	for _, s := range i.Engine.idle {
		if err := i.model.Release(s.seq); err != nil {
			t.Error(err)
		}
	}
	i.Engine.tree.Evict(i.model.Pool().Pages())
	if free := i.model.FreeTokens(); free != all {
		t.Errorf("%d tokens of KV are free, %d were at the start", free, all)
	}
	for range i.Setup.Slots {
		if _, err := i.model.NewSequence(model.Exact, 1); err != nil {
			t.Error(err)
		}
	}
	if err := i.Close(); err != nil {
		t.Error(err)
	}
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if now := runtime.NumGoroutine(); now > before {
		t.Errorf("%d goroutines, %d at the start", now, before)
	}
}

// Requests that meet a closing engine are refused or end as cancelled.
func TestCloseMeetsSubmit(t *testing.T) {
	i, err := Open(Source{Dir: mini + "edge"}, Setup{Backend: ced.CPU, Context: 64, Slots: 2, Chunk: 4})
	if err != nil {
		t.Fatal(err)
	}
	ids := goldenIDs(t, "edge")
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for {
				g, err := i.Submit(context.Background(), Request{Prompt: ids, MaxTokens: 40, Sampling: sample.Params{TopP: 1}})
				if err != nil {
					if !errors.Is(err, ErrClosed) {
						t.Error(err)
					}
					return
				}
				if r := g.Wait(); r.Err != nil && !errors.Is(r.Err, ErrClosed) {
					t.Error(r.Err)
				}
			}
		})
	}
	time.Sleep(10 * time.Millisecond)
	i.Engine.Close()
	wait.Wait()
	if err := i.Close(); err != nil {
		t.Error(err)
	}
}
