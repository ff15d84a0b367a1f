package engine

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	ced "cedrun/cuda"
	"cedrun/runtime/sample"
)

// tokensOf runs a request and returns its tokens.
func tokensOf(t *testing.T, i *Instance, r Request) []Token {
	t.Helper()
	g, err := i.Submit(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	var out []Token
	for {
		tok, ok := g.Next(context.Background())
		if !ok {
			break
		}
		out = append(out, tok)
	}
	if err := g.Result().Err; err != nil {
		t.Fatal(err)
	}
	return out
}

func TestTokensCarryTheLogprobsOfTheirRow(t *testing.T) {
	i := open(t, "base", Setup{Backend: ced.CPU, Context: 64})
	ids := goldenIDs(t, "base")[:17]
	p := sample.Params{Temperature: 1, TopP: 1, Seed: 3, Logprobs: true, RepetitionPenalty: 1.5}
	rows := map[int][]float32{}
	toks := tokensOf(t, i, Request{Prompt: ids, MaxTokens: 8, Sampling: p, TopLogprobs: 4, LogitsFrom: len(ids) - 1, OnLogits: func(pos int, row []float32) error {
		rows[pos] = slices.Clone(row)
		return nil
	}})
	for n, tok := range toks {
		row := rows[len(ids)-1+n]
		top, err := sample.Top(row, 4)
		if err != nil || !slices.Equal(tok.Top, top) || tok.Logprob != sample.Logprob(row, int(tok.ID)) || math.IsNaN(tok.Logprob) {
			t.Errorf("token %d: %+v, want %v", n, tok, top)
		}
	}
	for _, n := range []int{-1, MaxTopLogprobs + 1} {
		if _, err := i.Submit(context.Background(), Request{Prompt: ids, TopLogprobs: n}); err == nil || !strings.Contains(err.Error(), "use 0 to 20") {
			t.Errorf("%d alternatives: %v", n, err)
		}
	}
}

// What was sampled before counts: with a heavy frequency penalty a greedy text never falls into a loop of one token.
func TestSampledTokensArePenalised(t *testing.T) {
	i := open(t, "base", Setup{Backend: ced.CPU, Context: 256})
	ids := goldenIDs(t, "base")[:9]
	most := func(p sample.Params) (n int) {
		counts := map[int32]int{}
		for _, tok := range tokensOf(t, i, Request{Prompt: ids, MaxTokens: 60, Sampling: p}) {
			counts[tok.ID]++
			n = max(n, counts[tok.ID])
		}
		return n
	}
	plain, penalised := most(sample.Params{TopP: 1}), most(sample.Params{TopP: 1, FrequencyPenalty: 2})
	if penalised >= plain && plain > 1 {
		t.Errorf("the most frequent token came %d times, %d with a penalty", plain, penalised)
	}
}
