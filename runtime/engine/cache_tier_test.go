package engine

import (
	"fmt"
	"slices"
	"testing"
	"unsafe"

	ced "cedrun/cuda"
	"cedrun/runtime/model"
	"cedrun/runtime/sample"
)

// hits are the lengths at which pages, windows and groups begin and end, and odd ones.
var hits = []int{0, 1, 63, 64, 65, 127, 128, 129, 255, 256, 257}

// oracle computes on a model of its own what bounded replay is: a sequence that processed the hit, was rewound and went on
// from clipped windows. conform compares such sequences with the reference.
type oracle struct {
	t testing.TB
	i *Instance
}

func newOracle(t testing.TB, name string) oracle {
	t.Helper()
	i, err := Open(Source{Dir: mini + name}, Setup{Backend: ced.CPU, Context: 512, Chunk: 50})
	if err != nil {
		t.Fatal(err)
	}
	i.Engine.Close() // the model is the test's now
	t.Cleanup(func() {
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	})
	return oracle{t, i}
}

// replay is the logits of the last token of a prompt and of the tokens after it, with a hit of so many tokens.
func (o oracle) replay(prompt, after []int32, hit int, mode model.Prefill) map[int][]float32 {
	o.t.Helper()
	m := o.i.model
	check := func(err error) {
		if err != nil {
			o.t.Helper()
			o.t.Fatal(err)
		}
	}
	q, err := m.NewSequence(model.Exact, hit)
	check(err)
	check(m.Reserve(q, len(prompt)+len(after)))
	rows := map[int][]float32{}
	feed := func(ids []int32, from int) {
		for n := range slices.Chunk(ids, 50) {
			at, count, err := m.Forward([]model.Span{{Seq: q, Tokens: n, Logits: max(from, q.Pos())}}, nil)
			check(err)
			for k := range count {
				row := make([]float32, o.i.Config.VocabSize)
				check(o.i.stream.Download(unsafe.Slice((*byte)(unsafe.Pointer(&row[0])), 4*len(row)), at+ced.Addr(4*k*len(row))))
				rows[q.Pos()-count+k] = row
			}
		}
	}
	feed(prompt[:hit], hit)
	check(m.Rewind(q, mode, len(prompt)))
	feed(prompt[q.Pos():], len(prompt)-1)
	for _, id := range after {
		feed([]int32{id}, q.Pos())
	}
	check(m.Release(q))
	return rows
}

// Every hit length in each cache mode: snapshot has the bits of a cold run, replay those of the clipped windows, or, within
// the first window, of a cold run too; and all that is known is hit, but for the token that gives the logits.
func TestEveryHitLengthInEveryMode(t *testing.T) {
	for _, name := range []string{"base", "wide"} {
		lengths := hits
		if name == "wide" {
			lengths = []int{64, 257}
		}
		i, o := open(t, name, Setup{Backend: ced.CPU, Context: 512, Chunk: 50, Slots: 2, Snapshots: 1 << 30}), newOracle(t, name)
		window, ids := i.Config.Window, someIDs(i, 300, 1)
		for _, prefill := range []model.Prefill{model.Exact, model.Replay} {
			for _, cache := range []Cache{CacheSnapshot, CacheReplay} {
				for k, hit := range lengths {
					t.Run(fmt.Sprint(name, " ", prefill, " ", []string{"", "snapshot", "replay"}[cache], " ", hit), func(t *testing.T) {
						salt := fmt.Sprint(prefill, cache, hit)
						say(t, i, nil, Request{Prompt: slices.Concat(ids[:hit], tail(i, 0, 9)), MaxTokens: 1, Cache: CacheSnapshot, Salt: salt})
						prompt := slices.Concat(ids[:hit], tail(i, 1, []int{1, 20, 91}[k%3]))
						got := say(t, i, nil, Request{Prompt: prompt, MaxTokens: 4, Prefill: prefill, Cache: cache, Salt: salt})
						c := got.result.Stats.Cache
						if c.Hit != hit || c.Agreed != hit || got.result.Stats.Reused != hit-c.Rerun {
							t.Errorf("%+v with %d reused, want a hit of %d", c, got.result.Stats.Reused, hit)
						}
						want := Restore(RestoreNone)
						switch {
						case hit > window && cache == CacheReplay:
							want = RestoreReplay
						case hit > 0:
							want = RestoreRows
						}
						if c.Restore != want || want == RestoreReplay && c.Rerun != window {
							t.Errorf("restored as %+v, want %q", c, want)
						}
						var cold job
						if want == RestoreReplay {
							cold.result, cold.tokens, cold.logits = got.result, got.tokens, o.replay(prompt, got.tokens[:len(got.tokens)-1], hit, prefill)
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
}

// The same prompt again yields its text: from its snapshot without running a token, without snapshots by running the last
// one at least. So does a beginning of what is known.
func TestAPromptThatIsKnownWhollyYieldsLogits(t *testing.T) {
	for _, snapshots := range []int{0, 1 << 30} {
		i := open(t, "base", Setup{Backend: ced.CPU, Context: 512, Slots: 2, Snapshots: snapshots})
		for _, prefill := range []model.Prefill{model.Exact, model.Cone, model.Replay} {
			for _, n := range []int{1, 64, 65, 130} {
				for _, cache := range []Cache{CacheSnapshot, CacheReplay} {
					r := Request{Prompt: someIDs(i, n, uint64(n)), MaxTokens: 5, Prefill: prefill, Cache: cache, Salt: fmt.Sprint(prefill, cache)}
					first, again := say(t, i, nil, r), say(t, i, nil, r)
					c := again.result.Stats.Cache
					if whole := snapshots > 0; whole && (c.Hit != n || c.Rerun != 0 || again.result.Stats.Reused != n) || !whole && c.Hit != n-1 {
						t.Errorf("%v, a prompt of %d tokens again: %+v", prefill, n, c)
					}
					r.Prompt = first.history()[:n+3] // regenerated from within the text
					part := say(t, i, nil, r)
					if c := part.result.Stats.Cache; c.Hit != n+2 {
						t.Errorf("%v, a beginning of %d tokens: %+v", prefill, n+3, c)
					}
					for _, x := range []*turn{again, part} {
						if x.result.Stats.Cache.Restore == RestoreReplay {
							continue // TestEveryHitLengthInEveryMode
						}
						r.Prompt, r.Cache = x.Prompt, CacheOff
						cold := say(t, i, nil, r)
						if why := differ(&x.job, &cold.job); why != "" {
							t.Errorf("%v, a prompt of %d tokens, %+v: %s", prefill, n, x.result.Stats.Cache, why)
						}
						r.Cache = cache
					}
				}
			}
		}
	}
}

// The turn after a text that was generated without running its prompt equals a cold one.
func TestAConversationGoesOnFromARegeneratedText(t *testing.T) {
	i := open(t, "base", Setup{Backend: ced.CPU, Context: 512, Slots: 2, Snapshots: 1 << 30})
	for _, prefill := range []model.Prefill{model.Exact, model.Cone, model.Replay} {
		r := Request{Prompt: someIDs(i, 100, 7), MaxTokens: 30, Prefill: prefill, Cache: CacheSnapshot, Salt: prefill.String()}
		say(t, i, nil, r)
		r.Sampling = sample.Params{Temperature: 1, TopP: 1, Seed: 99} // another text
		again := say(t, i, nil, r)
		for _, more := range []int{1, 40} {
			next := Request{Prompt: slices.Concat(again.history(), someIDs(i, more, 8)), MaxTokens: 6, Prefill: prefill, Cache: CacheSnapshot, Salt: prefill.String()}
			got := say(t, i, nil, next)
			next.Cache = CacheOff
			want := say(t, i, nil, next)
			if why := differ(&got.job, &want.job); why != "" {
				t.Errorf("%v, %d more tokens, %+v: %s", prefill, more, got.result.Stats.Cache, why)
			}
		}
	}
}

// Texts of one prompt that come together read it once; so do prompts with a long common beginning.
func TestPromptsThatBeginAlikeAreReadOnce(t *testing.T) {
	const n, chunk = 400, 40
	for _, snapshots := range []int{0, 1 << 30} {
		i := open(t, "base", Setup{Backend: ced.CPU, Context: 512, Chunk: chunk, Slots: 8, Snapshots: snapshots})
		ids := someIDs(i, n, 3)
		lone := func(r Request) []int32 {
			r.Cache = CacheOff
			j := &job{Request: r}
			runAll(t, i, []*job{j})
			return j.tokens
		}
		for name, more := range map[string]int{"the same": 0, "alike": 11} {
			var jobs []*job
			var want [][]int32
			for k := range 6 {
				r := Request{Prompt: ids, MaxTokens: 6, Choice: k, Sampling: sample.Params{Temperature: 1, TopP: 1, Seed: 4}, Prefill: model.Cone, Cache: CacheSnapshot, Salt: name}
				if more > 0 {
					r.Prompt = slices.Concat(ids, tail(i, k, more))
				}
				jobs, want = append(jobs, &job{Request: r}), append(want, lone(r))
			}
			before := i.Counters().Prefill.Tokens
			runAll(t, i, jobs)
			for k, j := range jobs {
				if !slices.Equal(j.tokens, want[k]) {
					t.Errorf("%s, text %d: %v, alone %v", name, k, j.tokens, want[k])
				}
			}
			if ran := int(i.Counters().Prefill.Tokens - before); ran > 2*n {
				t.Errorf("%s: %d rows for six prompts of %d tokens", name, ran, n+more)
			}
		}
	}
}

// Where a prompt leaves what the cache knows, the next one that does goes on from a snapshot.
func TestABranchIsKept(t *testing.T) {
	i := open(t, "wide", Setup{Backend: ced.CPU, Context: 512, Chunk: 40, Slots: 2, Snapshots: 1 << 30})
	ids := someIDs(i, 333, 3)
	for _, prefill := range []model.Prefill{model.Exact, model.Cone, model.Replay} {
		for k, want := range []Restore{RestoreNone, RestoreRows, RestoreSnapshot, RestoreSnapshot} {
			r := Request{Prompt: slices.Concat(ids, tail(i, k, 30)), MaxTokens: 4, Prefill: prefill, Cache: CacheSnapshot, Salt: prefill.String()}
			got := say(t, i, nil, r)
			c := got.result.Stats.Cache
			if c.Restore != want || k > 0 && c.Hit != len(ids) || want == RestoreSnapshot && c.Rerun != 0 {
				t.Errorf("%v, prompt %d: %+v, want %q", prefill, k, c, want)
			}
			r.Cache = CacheOff
			cold := say(t, i, nil, r)
			if why := differ(&got.job, &cold.job); why != "" {
				t.Errorf("%v, prompt %d: %s", prefill, k, why)
			}
		}
	}
}

// A prompt whose last token the next one replaces, as that of a turn whose reasoning goes: where it said that they part,
// they go on from a snapshot.
func TestAnAnnouncedBranchIsKept(t *testing.T) {
	i := open(t, "wide", Setup{Backend: ced.CPU, Context: 512, Chunk: 40, Slots: 2, Snapshots: 1 << 30})
	for _, prefill := range []model.Prefill{model.Exact, model.Cone, model.Replay} {
		prompt := someIDs(i, 200, 3)
		for turn := range 3 {
			r := Request{Prompt: append(slices.Clone(prompt), 5), Branch: len(prompt), MaxTokens: 4, Prefill: prefill, Cache: CacheSnapshot, Salt: prefill.String()}
			got := say(t, i, nil, r)
			if c := got.result.Stats.Cache; turn > 0 && (c.Restore != RestoreSnapshot || c.Rerun != 0 || c.Hit < len(prompt)-40) {
				t.Errorf("%v, turn %d: %+v", prefill, turn, c)
			}
			r.Cache = CacheOff
			cold := say(t, i, nil, r)
			if why := differ(&got.job, &cold.job); why != "" {
				t.Errorf("%v, turn %d: %s", prefill, turn, why)
			}
			prompt = append(prompt, tail(i, turn+7, 40)...)
		}
	}
}

// Three times the same prompts, each time among many others: 32 sequences at a time, every one that of a lone cold run.
func TestTheSamePromptsThreeTimesAmongOthers(t *testing.T) {
	const together = 32
	i := open(t, "base", Setup{Backend: ced.CPU, Context: 256, Chunk: 64, Slots: together, KVTokens: together * 192, Snapshots: 1 << 20})
	ids := someIDs(i, 200, 1)
	greedy := sample.Params{TopP: 1}
	prompt := func(k int) []int32 { return slices.Concat(ids[:(37*k)%150], tail(i, k%5, 1+k%7)) }
	lone := map[int][]int32{}
	for round := range 3 {
		var jobs []*job
		var which []int
		for k := range together {
			if k%2 > 0 {
				k += together * round // others
			}
			which = append(which, k)
			jobs = append(jobs, &job{Request: Request{Prompt: prompt(k), MaxTokens: 8, Sampling: greedy, Prefill: model.Cone, Cache: CacheSnapshot}})
		}
		for n, k := range which {
			if lone[k] == nil {
				cold := &job{Request: jobs[n].Request}
				cold.Cache = CacheOff
				runAll(t, i, []*job{cold})
				lone[k] = cold.tokens
			}
		}
		runAll(t, i, jobs)
		found := 0
		for n, j := range jobs {
			found += j.result.Stats.Cache.Hit
			if !slices.Equal(j.tokens, lone[which[n]]) {
				t.Errorf("round %d, request %d, %+v: %v, alone %v", round, n, j.result.Stats.Cache, j.tokens, lone[which[n]])
			}
		}
		if round > 0 && found < 1000 {
			t.Errorf("round %d: %d tokens are hit in all", round, found)
		}
		if pool := i.model.Pool(); pool.Free()+pool.Idle() != pool.Pages() || pool.Shared() != 0 {
			t.Errorf("round %d: %d pages free, %d cached, of %d", round, pool.Free(), pool.Idle(), pool.Pages())
		}
	}
}
