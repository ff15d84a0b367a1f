package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	ced "cedrun/cuda"
	"cedrun/runtime/kv"
	"cedrun/runtime/model"
	"cedrun/runtime/sample"
)

// someIDs are n random tokens.
func someIDs(i *Instance, n int, seed uint64) []int32 {
	r := rand.New(rand.NewPCG(seed, 1))
	v := make([]int32, n)
	for k := range v {
		v[k] = int32(r.IntN(i.Config.VocabSize-10)) + 3
	}
	return v
}

// tail is what follows a prefix; those of different kinds differ at once, and from someIDs.
func tail(i *Instance, kind, n int) []int32 {
	v := someIDs(i, n, uint64(100+kind))
	v[0] = int32(i.Config.VocabSize - 1 - kind)
	return v
}

// Whatever a prompt shares with an earlier one, with snapshots or without: the bits of a cold run, and all of it is hit.
func TestAPromptOnCachedPagesEqualsAColdOne(t *testing.T) {
	hits := []int{0, 1, 31, 63, 65, 128, 257} // all of them: TestEveryHitLengthInEveryMode
	for _, snapshots := range []int{0, 1 << 30} {
		i := open(t, "base", Setup{Backend: ced.CPU, Context: 512, Chunk: 50, Slots: 2, Snapshots: snapshots})
		ids := someIDs(i, 300, 1)
		for _, mode := range []model.Prefill{model.Exact, model.Cone, model.Replay} {
			for k, hit := range hits {
				t.Run(fmt.Sprint(snapshots > 0, " ", mode, " ", hit), func(t *testing.T) {
					salt := fmt.Sprint(mode, hit)
					first := Request{Prompt: slices.Concat(ids[:hit], tail(i, 0, 5)), MaxTokens: 3, Prefill: mode, Cache: CacheSnapshot, Salt: salt}
					if x := say(t, i, nil, first); x.result.Stats.Cache != (Reuse{}) {
						t.Errorf("an empty cache: %+v", x.result.Stats.Cache)
					}
					second := first
					second.Prompt = slices.Concat(ids[:hit], tail(i, 1, []int{1, 20, 90}[k%3]))
					third := Request{MaxTokens: 4, Prefill: mode, Cache: CacheSnapshot, Salt: salt}
					for n, r := range []*Request{&second, &third} {
						cold := *r
						cold.Cache, cold.Salt = CacheOff, ""
						got, want := say(t, i, nil, *r), say(t, i, nil, cold)
						if why := differ(&got.job, &want.job); why != "" {
							t.Fatalf("request %d, %+v: %s", n+2, got.result.Stats.Cache, why)
						}
						c := got.result.Stats.Cache
						known := []int{hit, len(second.Prompt) + second.MaxTokens - 1}[n] // the last token was sampled, not fed
						if c.Hit != known || c.Agreed != known || (c.Differs != nil) != (n == 0) || got.result.Stats.Reused != c.Hit-c.Rerun || want.result.Stats.Cache != (Reuse{}) {
							t.Errorf("request %d: %+v with %d reused, want a hit of %d", n+2, c, got.result.Stats.Reused, known)
						}
						if n == 1 && snapshots > 0 && mode != model.Replay && (c.Restore != RestoreSnapshot || c.Rerun != 0) {
							t.Errorf("the next turn is restored as %+v", c)
						}
						if snapshots == 0 && c.Restore == RestoreSnapshot || c.Restore == RestoreReplay {
							t.Errorf("restored as %+v", c)
						}
						third.Prompt = slices.Concat(got.history(), ids[:11])
					}
				})
			}
		}
	}
}

// Bounded replay is used where it was asked for alone; what it computes is stored as such, and exact requests do not read it.
func TestReplayedPagesAreNotExact(t *testing.T) {
	i := open(t, "base", Setup{Backend: ced.CPU, Context: 512, Chunk: 50, Slots: 2})
	ids, window := someIDs(i, 300, 1), i.Config.Window
	for _, hit := range []int{1, window, window + 1, 63, 64, 65, 129, 256} {
		salt := fmt.Sprint(hit)
		say(t, i, nil, Request{Prompt: ids[:hit], MaxTokens: 1, Cache: CacheSnapshot, Salt: salt})
		prompt := slices.Concat(ids[:hit], tail(i, 1, 40))
		x := say(t, i, nil, Request{Prompt: prompt, MaxTokens: 3, Cache: CacheReplay, Salt: salt})
		c := x.result.Stats.Cache
		replayed := c.Restore == RestoreReplay
		if c.Hit != hit || replayed && c.Rerun != window || hit <= window && replayed || hit > 60 && !replayed {
			t.Errorf("hit of %d tokens: %+v", hit, c)
		}
		next := Request{Prompt: slices.Concat(x.history(), ids[:9]), MaxTokens: 3, Salt: salt}
		want := say(t, i, nil, next)
		next.Cache = CacheSnapshot
		got := say(t, i, nil, next)
		if why := differ(&got.job, &want.job); why != "" {
			t.Errorf("after a replay at %d: %s", hit, why)
		}
		exact := len(prompt) + 2
		if replayed {
			exact = hit
		}
		if c := got.result.Stats.Cache; c.Hit != exact || c.Agreed != len(prompt)+2 || c.Restore == RestoreReplay {
			t.Errorf("after a replay at %d: %+v, want a hit of %d", hit, c, exact)
		}
	}
}

func TestSaltsSeeNothingOfEachOther(t *testing.T) {
	i := open(t, "base", Setup{Backend: ced.CPU, Context: 256, Slots: 2, Snapshots: 1 << 30})
	ids := someIDs(i, 150, 1)
	for n, salt := range []string{"", "a", "b"} {
		for k := range 2 {
			x := say(t, i, nil, Request{Prompt: ids, MaxTokens: 2, Cache: CacheSnapshot, Salt: salt})
			if want := k * len(ids); x.result.Stats.Cache.Hit != want {
				t.Errorf("salt %d, request %d: hit of %d tokens, want %d", n, k, x.result.Stats.Cache.Hit, want)
			}
		}
	}
	if x := say(t, i, nil, Request{Prompt: ids, MaxTokens: 2}); x.result.Stats.Cache != (Reuse{}) || x.result.Stats.Reused != 0 {
		t.Errorf("without a cache: %+v", x.result.Stats)
	}
}

func TestRunningRequestsShareThePagesOfAPrefix(t *testing.T) {
	i := open(t, "base", Setup{Backend: ced.CPU, Context: 256, Slots: 3})
	ids := someIDs(i, 140, 1)
	say(t, i, nil, Request{Prompt: ids, MaxTokens: 1, Cache: CacheSnapshot})
	if l := i.Load(); l.KVCached != 3*kv.PageTokens || l.KVShared != 0 {
		t.Errorf("%+v", l)
	}
	var jobs []*job
	var shared []int
	for k := range 3 {
		jobs = append(jobs, &job{Request: Request{
			Prompt: slices.Concat(ids[:130], tail(i, k, 5)), MaxTokens: 20, Cache: CacheSnapshot, Sampling: sample.Params{TopP: 1},
			OnAdmit: func(Reuse) { shared = append(shared, i.model.Pool().Shared()) },
		}})
	}
	runAll(t, i, jobs)
	if !slices.Equal(shared, []int{0, 2, 2}) {
		t.Errorf("%v pages are shared, want 2 from the second request on", shared)
	}
	for _, j := range jobs {
		if c := j.result.Stats.Cache; c.Hit != 130 {
			t.Errorf("%+v", c)
		}
	}
}

// What is cached never keeps a request from running: unused pages go, the last page of a hit is not copied where there is
// no room for two.
func TestCachedPagesGiveWay(t *testing.T) {
	i := open(t, "base", Setup{Backend: ced.CPU, Context: 256, KVTokens: 256, Slots: 2, Snapshots: 1 << 30})
	ids := someIDs(i, 250, 1)
	for n, prompt := range [][]int32{ids[:200], ids[:230], slices.Concat(tail(i, 0, 1), ids[:240]), slices.Concat(ids[:200], tail(i, 1, 50)), ids} {
		want := say(t, i, nil, Request{Prompt: prompt, MaxTokens: 5})
		got := say(t, i, nil, Request{Prompt: prompt, MaxTokens: 5, Cache: CacheSnapshot})
		if why := differ(&got.job, &want.job); why != "" {
			t.Errorf("request %d: %s", n, why)
		}
		if pool := i.model.Pool(); pool.Free()+pool.Idle() != pool.Pages() {
			t.Errorf("request %d: %d pages free, %d cached, of %d", n, pool.Free(), pool.Idle(), pool.Pages())
		}
	}
}

// A request that is cancelled leaves what it processed.
func TestACancelledRequestLeavesItsPages(t *testing.T) {
	i := open(t, "base", Setup{Backend: ced.CPU, Context: 256, Chunk: 20, Slots: 2, Snapshots: 1 << 30})
	ids := someIDs(i, 200, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := 0
	g, err := i.Submit(ctx, Request{Prompt: ids, MaxTokens: 5, Sampling: sample.Params{TopP: 1}, Cache: CacheSnapshot, OnPrefill: func(n, _ int) {
		if done = n; n >= 90 {
			cancel()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if r := g.Wait(); r.Finish != FinishCancelled {
		t.Fatalf("%+v", r)
	}
	want := say(t, i, nil, Request{Prompt: ids, MaxTokens: 5})
	got := say(t, i, nil, Request{Prompt: ids, MaxTokens: 5, Cache: CacheSnapshot})
	if why := differ(&got.job, &want.job); why != "" {
		t.Error(why)
	}
	if c := got.result.Stats.Cache; c.Hit != done || c.Restore != RestoreSnapshot || c.Rerun != 0 {
		t.Errorf("%d tokens were processed: %+v", done, c)
	}
}

func TestSnapshotsExpire(t *testing.T) {
	i := open(t, "base", Setup{Backend: ced.CPU, Context: 256, Slots: 2, Snapshots: 1 << 30, SnapshotTTL: time.Nanosecond})
	ids := someIDs(i, 100, 1)
	say(t, i, nil, Request{Prompt: ids[:80], MaxTokens: 2, Cache: CacheSnapshot})
	if c := say(t, i, nil, Request{Prompt: ids, MaxTokens: 2, Cache: CacheSnapshot}).result.Stats.Cache; c.Restore != RestoreRows || c.Hit != 80 {
		t.Errorf("%+v", c)
	}
}
