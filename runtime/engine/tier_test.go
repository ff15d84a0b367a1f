package engine

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ced "cedrun/cuda"
	"cedrun/runtime/kv"
	"cedrun/runtime/kv/disk"
	"cedrun/runtime/model"
	"cedrun/runtime/sample"
)

// seed is that of the random requests.
var seed = flag.Int("seed", 1, "of random requests")

// onDisk is a setup whose pages are kept in a directory.
func onDisk(dir string) Setup {
	return Setup{Backend: ced.CPU, Context: 512, Chunk: 50, Slots: 2, KVTokens: 1 << 15, Snapshots: 1 << 30, KVDir: dir, KVDisk: 64 << 20}
}

// started opens an engine that the test closes, once.
func started(t *testing.T, name string, setup Setup) (i *Instance, end func()) {
	t.Helper()
	i, err := Open(Source{Dir: mini + name}, setup)
	if err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	return i, end
}

// written waits until nothing is left to be written.
func written(t *testing.T, i *Instance) disk.Stats {
	t.Helper()
	for range 2000 {
		if l := i.Load(); l.Spilling == 0 && l.Disk.Queued == 0 {
			return l.Disk
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("still not written: %+v", i.Load())
	return disk.Stats{}
}

// Prefixes of every length come back after a restart, in whole pages: snapshot with the bits of a cold run, replay with
// those of the clipped windows.
func TestEveryHitLengthComesBackFromDisk(t *testing.T) {
	dir := t.TempDir()
	before, end := started(t, "base", onDisk(dir))
	o := newOracle(t, "base")
	window, ids := before.Config.Window, someIDs(before, 300, 1)
	modes, caches := []model.Prefill{model.Exact, model.Replay}, []Cache{CacheSnapshot, CacheReplay}
	salt := func(prefill model.Prefill, cache Cache, hit int) string { return fmt.Sprint(prefill, cache, hit) }
	for _, prefill := range modes {
		for _, cache := range caches {
			for _, hit := range hits {
				prompt := slices.Concat(ids[:hit], tail(before, 0, 9))
				say(t, before, nil, Request{Prompt: prompt, MaxTokens: 1, Prefill: prefill, Cache: CacheSnapshot, Salt: salt(prefill, cache, hit)})
			}
		}
	}
	if s := written(t, before); s.State != disk.StateOn || s.Pages == 0 || s.Dropped > 0 {
		t.Fatalf("%+v", s)
	}
	end()
	i := open(t, "base", onDisk(dir))
	for _, prefill := range modes {
		for _, cache := range caches {
			for k, hit := range hits {
				t.Run(fmt.Sprint(prefill, " ", []string{"", "snapshot", "replay"}[cache], " ", hit), func(t *testing.T) {
					prompt := slices.Concat(ids[:hit], tail(i, 1, []int{1, 20, 91}[k%3]))
					got := say(t, i, nil, Request{Prompt: prompt, MaxTokens: 4, Prefill: prefill, Cache: cache, Salt: salt(prefill, cache, hit)})
					pages, c := hit/kv.PageTokens*kv.PageTokens, got.result.Stats.Cache
					want := map[bool]Restore{true: RestoreRows, false: RestoreNone}[pages > 0]
					if cache == CacheReplay && pages > window {
						want = RestoreReplay
					}
					if c.Hit != pages || c.Loaded != pages || c.Restore != want {
						t.Errorf("%+v, want %q on %d tokens from disk", c, want, pages)
					}
					var cold job
					if want == RestoreReplay {
						cold.result, cold.tokens, cold.logits = got.result, got.tokens, o.replay(prompt, got.tokens[:len(got.tokens)-1], pages, prefill)
					} else {
						cold = say(t, i, nil, Request{Prompt: prompt, MaxTokens: 4, Prefill: prefill}).job
					}
					cold.Request = got.Request
					if why := differ(&got.job, &cold); why != "" {
						t.Error(why)
					}
				})
			}
		}
	}
}

// What memory had no room for comes back from disk, while others run.
func TestEvictedPagesComeBackFromDisk(t *testing.T) {
	setup := onDisk(t.TempDir())
	setup.KVTokens = 640
	i := open(t, "base", setup)
	ids := someIDs(i, 300, 1)
	first := Request{Prompt: ids, MaxTokens: 3, Cache: CacheSnapshot}
	say(t, i, nil, first)
	written(t, i)
	for n := range 3 { // others take its place
		say(t, i, nil, Request{Prompt: someIDs(i, 500, uint64(50+n)), MaxTokens: 3, Cache: CacheSnapshot})
		written(t, i)
	}
	if i.Load().Evictions == 0 {
		t.Fatal("nothing was evicted")
	}
	other, err := i.Submit(context.Background(), Request{Prompt: ids[5:50], MaxTokens: 40, Sampling: sample.Params{TopP: 1}})
	if err != nil {
		t.Fatal(err)
	}
	got := say(t, i, nil, first)
	if c := got.result.Stats.Cache; c.Loaded == 0 || c.Hit < 256 || c.Hit%kv.PageTokens != 0 {
		t.Errorf("%+v", c)
	}
	if r := other.Wait(); r.Err != nil {
		t.Error(r.Err)
	}
	cold := first
	cold.Cache = CacheOff
	want := say(t, i, nil, cold)
	if why := differ(&got.job, &want.job); why != "" {
		t.Error(why)
	}
}

// Provenance is on disk too: what was computed after a replay is not read by exact requests, and gives way to exact pages.
func TestReplayedPagesOnDiskAreNotExact(t *testing.T) {
	dir := t.TempDir()
	i, end := started(t, "base", onDisk(dir))
	ids := someIDs(i, 300, 1)
	say(t, i, nil, Request{Prompt: slices.Concat(ids[:70], tail(i, 0, 5)), MaxTokens: 1, Cache: CacheSnapshot})
	say(t, i, nil, Request{Prompt: ids[:280], MaxTokens: 1, Cache: CacheReplay})
	written(t, i)
	end()
	next := Request{Prompt: ids, MaxTokens: 4}
	for _, c := range []struct {
		cache Cache
		hit   int
	}{{CacheSnapshot, 64}, {CacheReplay, 256}, {CacheSnapshot, 256}} { // the first has left exact pages
		i, end := started(t, "base", onDisk(dir))
		next.Cache = c.cache
		got := say(t, i, nil, next)
		if r := got.result.Stats.Cache; r.Hit != c.hit || r.Loaded != c.hit {
			t.Errorf("%+v, want a hit of %d tokens", r, c.hit)
		}
		if c.cache == CacheSnapshot {
			next.Cache = CacheOff
			want := say(t, i, nil, next)
			if why := differ(&got.job, &want.job); why != "" {
				t.Error(why)
			}
		}
		written(t, i)
		end()
	}
}

// Requests that all need the disk, and memory for two of them only, some of them cancelled: all end, nothing leaks.
func TestManyRequestsWaitForTheDisk(t *testing.T) {
	dir := t.TempDir()
	setup := onDisk(dir)
	i, end := started(t, "base", setup)
	var prompts [][]int32
	for n := range 6 {
		prompts = append(prompts, someIDs(i, 400, uint64(n)))
		say(t, i, nil, Request{Prompt: prompts[n], MaxTokens: 1, Cache: CacheSnapshot})
	}
	lone := map[int][]int32{}
	for n, p := range prompts {
		lone[n] = say(t, i, nil, Request{Prompt: p, MaxTokens: 4, Sampling: sample.Params{TopP: 1}}).tokens
	}
	written(t, i)
	end()
	setup.KVTokens = 960
	i = open(t, "base", setup)
	type asked struct {
		n      int
		g      *Generation
		cancel context.CancelFunc
	}
	var all []asked
	for k := range 30 {
		ctx, cancel := context.WithCancel(context.Background())
		g, err := i.Submit(ctx, Request{Prompt: prompts[k%6], MaxTokens: 4, Sampling: sample.Params{TopP: 1}, Cache: CacheSnapshot})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, asked{k % 6, g, cancel})
	}
	for k, a := range all {
		if k%4 == 1 {
			a.cancel()
		}
	}
	loaded := 0
	for k, a := range all {
		var got []int32
		for {
			tok, ok := a.g.Next(context.Background())
			if !ok {
				break
			}
			got = append(got, tok.ID)
		}
		r := a.g.Result()
		a.cancel()
		loaded += r.Stats.Cache.Loaded
		if k%4 == 1 {
			continue
		}
		if r.Err != nil || !slices.Equal(got, lone[a.n]) {
			t.Errorf("request %d: %v, alone %v: %+v", k, got, lone[a.n], r)
		}
	}
	if loaded == 0 {
		t.Error("nothing came from disk")
	}
	written(t, i)
	if pool := i.model.Pool(); pool.Free()+pool.Idle() != pool.Pages() {
		t.Errorf("%d pages free, %d cached, of %d", pool.Free(), pool.Idle(), pool.Pages())
	}
}

// A directory that cannot be used costs the disk tier only, and says so; two engines do not share one.
func TestAnUnusableDirectoryIsLoud(t *testing.T) {
	dir := t.TempDir()
	file := dir + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, "base", onDisk(dir+"/used"))
	for name, where := range map[string]string{"a file": file, "in use": dir + "/used"} {
		var said []string
		setup := onDisk(where)
		setup.Warn = func(s string) { said = append(said, s) }
		i := open(t, "base", setup)
		ids := someIDs(i, 100, 1)
		for range 2 {
			say(t, i, nil, Request{Prompt: ids, MaxTokens: 2, Cache: CacheSnapshot})
		}
		if len(said) != 1 || !strings.Contains(said[0], "not kept on disk") || !strings.Contains(said[0], where) {
			t.Errorf("%s: said %q", name, said)
		}
		if l := i.Load(); l.Disk.State != disk.StateOff || l.Disk.Trouble == "" {
			t.Errorf("%s: %+v", name, l.Disk)
		}
	}
}

// Another model's pages are not used, nor those of the same model with other weights.
func TestPagesOfAnotherModelAreNotUsed(t *testing.T) {
	dir := t.TempDir()
	for n, name := range []string{"base", "calm", "base"} {
		i, end := started(t, name, onDisk(dir))
		c := say(t, i, nil, Request{Prompt: someIDs(i, 200, 1), MaxTokens: 1, Cache: CacheSnapshot}).result.Stats.Cache
		if want := []int{0, 0, 192}[n]; c.Loaded != want {
			t.Errorf("%s: %+v, want %d tokens from disk", name, c, want)
		}
		written(t, i)
		end()
	}
}

// Whatever tier, snapshot, branch or neighbour a request begins on, and whoever is cancelled meanwhile: the text of a lone
// cold run, and nothing is lost.
func TestRandomRequestsOnEveryTierEqualLoneRuns(t *testing.T) {
	r := rand.New(rand.NewPCG(uint64(*seed), 5))
	setup := onDisk(t.TempDir())
	setup.Slots, setup.KVTokens, setup.Snapshots, setup.KVDisk, setup.Chunk = 6, 2048, 300<<10, 160<<10, 30
	i := open(t, "base", setup)
	var bases [][]int32
	for n := range 4 {
		bases = append(bases, someIDs(i, 300, uint64(n)+uint64(*seed)*10))
	}
	type asked struct {
		Request
		want []int32
	}
	prefills := []model.Prefill{model.Exact, model.Cone, model.Replay}
	var all []asked
	for range 24 {
		base := bases[r.IntN(len(bases))]
		q := Request{
			Prompt: slices.Concat(base[:1+r.IntN(len(base))], tail(i, r.IntN(3), 1+r.IntN(30))), MaxTokens: 1 + r.IntN(12),
			Prefill: prefills[r.IntN(3)], Sampling: sample.Params{Temperature: 1, TopP: 1, Seed: r.Uint64()},
		}
		j := &job{Request: q}
		runAll(t, i, []*job{j})
		all = append(all, asked{q, j.tokens})
	}
	var wait sync.WaitGroup
	hit, loaded := atomic.Int64{}, atomic.Int64{}
	for k := range 150 {
		a := all[r.IntN(len(all))]
		a.Cache, a.Salt = CacheSnapshot, fmt.Sprint(r.IntN(2))
		ctx, cancel := context.WithCancel(context.Background())
		if r.IntN(4) == 0 {
			left := r.IntN(200)
			a.OnPrefill = func(done, _ int) {
				if done >= left {
					cancel()
				}
			}
		}
		g, err := i.Submit(ctx, a.Request)
		if err != nil {
			t.Fatal(err)
		}
		wait.Go(func() {
			defer cancel()
			var got []int32
			for {
				tok, ok := g.Next(context.Background())
				if !ok {
					break
				}
				got = append(got, tok.ID)
			}
			res := g.Result()
			hit.Add(int64(res.Stats.Cache.Hit))
			loaded.Add(int64(res.Stats.Cache.Loaded))
			if res.Finish == FinishCancelled && len(got) <= len(a.want) {
				a.want = a.want[:len(got)]
			} else if res.Err != nil {
				t.Error(res.Err)
			}
			if !slices.Equal(got, a.want) {
				t.Errorf("request %d, %v, prompt of %d tokens, %+v: %v, alone %v", k, a.Prefill, len(a.Prompt), res.Stats.Cache, got, a.want)
			}
		})
		if k%25 == 24 {
			wait.Wait()
			written(t, i)
		}
	}
	wait.Wait()
	written(t, i)
	if hit.Load() == 0 || loaded.Load() == 0 || i.Load().SnapshotEvictions == 0 || i.Load().Evictions == 0 || i.Load().Disk.Evicted == 0 {
		t.Errorf("%d tokens hit, %d from disk, %+v", hit.Load(), loaded.Load(), i.Load())
	}
	if pool := i.model.Pool(); pool.Free()+pool.Idle() != pool.Pages() || pool.Shared() != 0 {
		t.Errorf("%d pages free, %d cached, of %d", pool.Free(), pool.Idle(), pool.Pages())
	}
}
