package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"

	ced "cedrun/cuda"
	"cedrun/runtime/model"
	"cedrun/runtime/sample"
)

// turn is one request of a conversation and what came of it.
type turn struct {
	job
	session *Session
}

// say runs a request in a session, watching the logits that predict its tokens.
func say(t *testing.T, i *Instance, s *Session, r Request) *turn {
	t.Helper()
	r.Session = s
	if r.Sampling.TopP == 0 {
		r.Sampling = sample.Params{Temperature: 1, TopP: 1, Seed: 11}
	}
	x := &turn{job: job{Request: r, logits: map[int][]float32{}}, session: s}
	x.LogitsFrom = len(r.Prompt) - 1
	x.OnLogits = func(pos int, row []float32) error {
		x.logits[pos] = slices.Clone(row)
		return nil
	}
	runAll(t, i, []*job{&x.job})
	return x
}

// history is the prompt and what was written after it.
func (x *turn) history() []int32 { return slices.Concat(x.Prompt, x.tokens) }

// A conversation that keeps its sequence has the bits of one that is prefilled anew at each turn: every length of the
// first prompt, so open groups and every place in the ring, three turns, whatever the chunks.
func TestAContinuedSequenceEqualsAColdOne(t *testing.T) {
	for name, step := range map[string]int{"base": 3, "wide": 11} {
		for _, mode := range []model.Prefill{model.Exact, model.Cone} {
			for _, chunk := range []int{128, 5} {
				t.Run(fmt.Sprint(name, " ", mode, " ", chunk), func(t *testing.T) {
					ids := goldenIDs(t, name)
					setup := Setup{Backend: ced.CPU, Context: 128, Chunk: chunk}
					warm, cold := open(t, name, setup), open(t, name, setup)
					for n := 1; n <= 34; n += step {
						s := &Session{}
						prompt := ids[:n]
						for k, more := range []int{7, 12, 19} {
							r := Request{Prompt: prompt, MaxTokens: 3 + k, Prefill: mode}
							got, want := say(t, warm, s, r), say(t, cold, nil, Request{Prompt: prompt, MaxTokens: 3 + k, Prefill: model.Exact})
							if why := differ(&got.job, &want.job); why != "" {
								t.Fatalf("first prompt of %d tokens, turn %d of %d tokens: %s", n, k+1, len(prompt), why)
							}
							reused := 0
							if k > 0 { // all but the last token of the turn before, which was never fed
								reused = len(prompt) - []int{0, 7, 12}[k] - 1
							}
							if got.result.Stats.Reused != reused || want.result.Stats.Reused != 0 {
								t.Fatalf("turn %d reused %d tokens, want %d", k+1, got.result.Stats.Reused, reused)
							}
							prompt = slices.Concat(got.history(), ids[:more])
						}
					}
				})
			}
		}
	}
}

// Replay continues decoder windows where they are, so a conversation of short turns equals exact prefill of all of it.
func TestShortTurnsInReplayAreExact(t *testing.T) {
	ids := goldenIDs(t, "base") // window 8
	i := open(t, "base", Setup{Backend: ced.CPU, Context: 128, Slots: 2})
	s, prompt := &Session{}, ids[:6]
	for k := range 6 {
		got := say(t, i, s, Request{Prompt: prompt, MaxTokens: 4, Prefill: model.Replay})
		want := say(t, i, nil, Request{Prompt: prompt, MaxTokens: 4, Prefill: model.Exact})
		if why := differ(&got.job, &want.job); why != "" {
			t.Fatalf("turn %d: %s", k+1, why)
		}
		prompt = slices.Concat(got.history(), ids[k:k+6])
	}
}

// After a long turn the decoder windows start at its tail, as in a new sequence, and the rest of the sequence is kept.
func TestALongTurnInReplayRunsItsTailOnly(t *testing.T) {
	ids := goldenIDs(t, "base")
	i := open(t, "base", Setup{Backend: ced.CPU, Context: 256, Slots: 2})
	s := &Session{}
	first := say(t, i, s, Request{Prompt: ids[:9], MaxTokens: 3, Prefill: model.Replay})
	prompt := slices.Concat(first.history(), ids[:50])
	second := say(t, i, s, Request{Prompt: prompt, MaxTokens: 5, Prefill: model.Replay})
	if n := second.result.Stats.Reused; n != 11 {
		t.Errorf("reused %d tokens, want 11", n)
	}
	cold := say(t, i, nil, Request{Prompt: prompt, MaxTokens: 5, Prefill: model.Replay})
	// The first prompt was clipped by one row, so encoder and latent rows are the same and the tail starts alike.
	if why := differ(&second.job, &cold.job); why != "" {
		t.Errorf("tail of a long turn: %s", why)
	}
	// What replay clipped cannot be continued exactly.
	exact := say(t, i, s, Request{Prompt: slices.Concat(second.history(), ids[:5]), MaxTokens: 1, Prefill: model.Exact})
	if n := exact.result.Stats.Reused; n != 0 {
		t.Errorf("exact continuation of a replayed sequence reused %d tokens", n)
	}
}

func TestAnotherPromptStartsOver(t *testing.T) {
	ids := goldenIDs(t, "base")
	i := open(t, "base", Setup{Backend: ced.CPU, Context: 64, Slots: 2})
	s := &Session{}
	first := say(t, i, s, Request{Prompt: ids[:20], MaxTokens: 4})
	for name, prompt := range map[string][]int32{
		"the same again": ids[:20], "a beginning": ids[:7], "a change": slices.Concat(ids[:19], []int32{ids[19] ^ 1}, ids[20:30]),
		"what was processed": first.history()[:23],
	} {
		say(t, i, s, Request{Prompt: ids[:20], MaxTokens: 4})
		got, want := say(t, i, s, Request{Prompt: prompt, MaxTokens: 4}), say(t, i, nil, Request{Prompt: prompt, MaxTokens: 4})
		if got.result.Stats.Reused != 0 {
			t.Errorf("%s: reused %d tokens", name, got.result.Stats.Reused)
		}
		if why := differ(&got.job, &want.job); why != "" {
			t.Errorf("%s: %s", name, why)
		}
	}
}

// A cancelled turn leaves what it processed, in prefill and in decode; what follows has the bits of a cold run.
func TestACancelledTurnIsContinued(t *testing.T) {
	ids := goldenIDs(t, "base")
	for _, mode := range []model.Prefill{model.Exact, model.Cone} {
		i := open(t, "base", Setup{Backend: ced.CPU, Context: 256, Chunk: 4, Slots: 2})
		for at := 4; at <= 60; at += 8 {
			s := &Session{}
			ctx, cancel := context.WithCancel(context.Background())
			g, err := i.Submit(ctx, Request{Prompt: ids, MaxTokens: 150, Sampling: sample.Params{TopP: 1}, Prefill: mode, Session: s, OnPrefill: func(done, _ int) {
				if done >= at {
					cancel()
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			if r := g.Wait(); r.Finish != FinishCancelled {
				t.Fatalf("%+v", r)
			}
			cancel()
			prompt := slices.Concat(ids, ids[:9])
			got, want := say(t, i, s, Request{Prompt: prompt, MaxTokens: 4, Prefill: mode}), say(t, i, nil, Request{Prompt: prompt, MaxTokens: 4})
			if why := differ(&got.job, &want.job); why != "" {
				t.Errorf("%s, cancelled after %d tokens, %d reused: %s", mode, at, got.result.Stats.Reused, why)
			}
			if mode == model.Exact && got.result.Stats.Reused == 0 {
				t.Errorf("cancelled after %d tokens: nothing was reused", at)
			}
		}
	}
}

// Idle sessions give way, the longest idle first, and only when slots or pages run out.
func TestIdleSessionsGiveWay(t *testing.T) {
	ids := goldenIDs(t, "base")
	i := open(t, "base", Setup{Backend: ced.CPU, Context: 128, Slots: 2, KVTokens: 256})
	a, b, c := &Session{}, &Session{}, &Session{}
	reused := func(s *Session, n int) int {
		t.Helper()
		return say(t, i, s, Request{Prompt: ids[:n], MaxTokens: 1}).result.Stats.Reused
	}
	reused(a, 20)
	reused(b, 20)
	if reused(a, 22) != 20 || reused(b, 22) != 20 {
		t.Error("two sessions do not live in two slots")
	}
	reused(c, 20) // takes a's slot
	if n := reused(b, 24); n != 22 {
		t.Errorf("b reused %d tokens, want 22", n)
	}
	if n := reused(a, 24); n != 0 { // takes c's
		t.Errorf("a reused %d tokens, want 0", n)
	}
	// Pages: a request for the whole context takes those of the other session.
	long := say(t, i, a, Request{Prompt: slices.Concat(ids[:26]), MaxTokens: 102})
	if long.result.Stats.Reused != 24 {
		t.Errorf("a reused %d tokens, want 24", long.result.Stats.Reused)
	}
}

func TestRequestsOfOneSessionRunOneAfterAnother(t *testing.T) {
	ids := goldenIDs(t, "base")
	i := open(t, "base", Setup{Backend: ced.CPU, Context: 128, Slots: 3})
	s := &Session{}
	want := say(t, i, nil, Request{Prompt: ids[:20], MaxTokens: 6})
	var jobs []*job
	for range 3 {
		jobs = append(jobs, &job{Request: Request{Prompt: ids[:20], MaxTokens: 6, Session: s, Sampling: want.Sampling}})
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancelled, err := i.Submit(ctx, jobs[0].Request)
	cancel()
	if err != nil {
		t.Fatal(err)
	}
	runAll(t, i, jobs)
	cancelled.Wait()
	for n, j := range jobs {
		if !slices.Equal(j.tokens, want.tokens) {
			t.Errorf("request %d: %v, want %v", n, j.tokens, want.tokens)
		}
	}
}
