package engine

import (
	"context"
	"slices"
	"testing"
	"time"

	ced "cedrun/cuda"
	"cedrun/runtime/sample"
)

// Choices of one prompt and seed differ, each the same whenever it runs, and the first is what a request alone gives.
func TestChoicesDiffer(t *testing.T) {
	i := open(t, "base", Setup{Backend: ced.CPU, Context: 64, Slots: 3})
	ids := goldenIDs(t, "base")[:9]
	run := func(choices ...int) (out [][]int32) {
		var jobs []*job
		for _, c := range choices {
			jobs = append(jobs, &job{Request: Request{Prompt: ids, MaxTokens: 8, Choice: c, Sampling: sample.Params{Temperature: 1, TopP: 1, Seed: 5}}})
		}
		runAll(t, i, jobs)
		for _, j := range jobs {
			out = append(out, j.tokens)
		}
		return out
	}
	all, one := run(0, 1, 2), run(0)
	if !slices.Equal(all[0], one[0]) || slices.Equal(all[0], all[1]) || slices.Equal(all[1], all[2]) {
		t.Errorf("choices %v, the first alone %v", all, one)
	}
	if again := run(2); !slices.Equal(again[0], all[2]) {
		t.Errorf("choice 2 alone %v, among others %v", again[0], all[2])
	}
}

func TestARequestIsToldOfItsPlaceAndTheLoadFollows(t *testing.T) {
	i := open(t, "edge", Setup{Backend: ced.CPU, Context: 64, Slots: 1})
	ids := goldenIDs(t, "edge")
	s := &Session{}
	var told []int
	for _, n := range []int{5, 9} {
		loads := make(chan Load, 64)
		runAll(t, i, []*job{{Request: Request{
			Prompt: ids[:n], MaxTokens: 1, Session: s, Sampling: sample.Params{TopP: 1},
			OnAdmit:   func(r Reuse) { told = append(told, r.Hit) },
			OnPrefill: func(int, int) { loads <- i.Load() },
		}}})
		if l := <-loads; l.Running != 1 || l.Waiting != 0 || l.KVInUse == 0 || l.KVTokens != 64 {
			t.Errorf("prompt of %d tokens: %+v while it runs", n, l)
		}
	}
	if !slices.Equal(told, []int{0, 5}) {
		t.Errorf("tokens reused, as told: %v", told)
	}
	ctx, cancel := context.WithCancel(context.Background())
	first, err := i.Submit(ctx, Request{Prompt: ids[:3], MaxTokens: 60, Sampling: sample.Params{TopP: 1}})
	if err != nil {
		t.Fatal(err)
	}
	second, err := i.Submit(ctx, Request{Prompt: ids[:3], MaxTokens: 1, Sampling: sample.Params{TopP: 1}, OnAdmit: func(Reuse) { t.Error("admitted beside another one") }})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := first.Next(ctx); !ok {
		t.Fatal("no token")
	}
	cancel()
	for _, g := range []*Generation{first, second} {
		if r := g.Wait(); r.Finish != FinishCancelled {
			t.Errorf("%+v", r)
		}
	}
}

func TestWhoKnowsOfAnEndSeesTheLoadAndTheCountersWithIt(t *testing.T) {
	i := open(t, "edge", Setup{Backend: ced.CPU, Context: 64, Slots: 1, Observe: func(Step) { time.Sleep(20 * time.Millisecond) }})
	ids := goldenIDs(t, "edge")[:5]
	for n := 1; n <= 3; n++ {
		say(t, i, nil, Request{Prompt: ids, MaxTokens: n, Sampling: sample.Params{TopP: 1}})
		if l := i.Load(); l.Running != 0 || l.KVInUse != 0 {
			t.Errorf("after %d tokens: %+v", n, l)
		}
	}
	// Of three prompts and of the tokens that were fed back.
	if c := i.Counters(); c.Prefill.Tokens != 15 || c.Decode.Tokens != 3 {
		t.Errorf("%+v", c)
	}
}
