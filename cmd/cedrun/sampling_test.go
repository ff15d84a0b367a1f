package main

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestLogprobsStandInTheJSON(t *testing.T) {
	m := []string{"-m", small(t), "--raw", "-p", "Hello", "--max-tokens", "12", "--seed", "7", "--temperature", "1"}
	plain := generated(t, "", m...)
	o := generated(t, "", append(m, "--logprobs", "3")...)
	if !slices.Equal(o.TokenIDs, plain.TokenIDs) || plain.Logprobs != nil {
		t.Fatalf("log-probabilities changed the text: %v and %v", o.TokenIDs, plain.TokenIDs)
	}
	if len(o.Logprobs) != len(o.TokenIDs) {
		t.Fatalf("%d log-probabilities of %d tokens", len(o.Logprobs), len(o.TokenIDs))
	}
	for i, p := range o.Logprobs {
		if p.ID != o.TokenIDs[i] || p.Logprob > 0 || math.IsInf(p.Logprob, 0) || len(p.Bytes) == 0 || len(p.Top) != 3 {
			t.Errorf("token %d: %+v", i, p)
		}
		for k, alt := range p.Top {
			if k > 0 && alt.Logprob > p.Top[k-1].Logprob {
				t.Errorf("token %d: alternatives out of order: %+v", i, p.Top)
			}
			if alt.ID == p.ID && alt.Logprob != p.Logprob {
				t.Errorf("token %d has two probabilities: %+v", i, p)
			}
		}
	}
	if o := generated(t, "", append(m, "--logprobs", "0")...); len(o.Logprobs) != len(o.TokenIDs) || o.Logprobs[0].Top != nil {
		t.Errorf("without alternatives: %+v", o.Logprobs)
	}
}

func TestSamplingFlagsReachTheSampler(t *testing.T) {
	m := []string{"-m", small(t), "--raw", "-p", "Hello", "--max-tokens", "40", "--temperature", "0"}
	plain := generated(t, "", m...)
	if o := generated(t, "", append(m, "--repetition-penalty", "1", "--presence-penalty", "0", "--frequency-penalty", "0")...); !slices.Equal(o.TokenIDs, plain.TokenIDs) {
		t.Errorf("penalties that are off changed the text")
	}
	for _, args := range [][]string{
		{"--repetition-penalty", "2"}, {"--presence-penalty", "2"}, {"--frequency-penalty", "2"}, {"--logit-bias", "70=100"},
	} {
		if o := generated(t, "", append(m, args...)...); slices.Equal(o.TokenIDs, plain.TokenIDs) {
			t.Errorf("%v changed nothing", args)
		}
	}
	o := generated(t, "", append(m, "--logit-bias", "70=100", "--logit-bias", "71=99.5")...)
	for _, id := range o.TokenIDs {
		if id != 70 && id != 71 {
			t.Errorf("token %d in spite of the bias", id)
		}
	}
}

func TestSamplingFlagsOutOfRange(t *testing.T) {
	m := []string{"generate", "-m", small(t), "-p", "x"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--repetition-penalty", "-1"}, "repetition_penalty is -1"},
		{[]string{"--presence-penalty", "3"}, "presence_penalty is 3"},
		{[]string{"--frequency-penalty", "NaN"}, "frequency_penalty is NaN"},
		{[]string{"--logit-bias", "x=1"}, `--logit-bias "x=1": give a token id`},
		{[]string{"--logit-bias", "7"}, `--logit-bias "7": give a token id`},
		{[]string{"--logit-bias", "7=101"}, "logit_bias of token 7 is 101"},
		{[]string{"--logit-bias", "7=1", "--logit-bias", "7=2"}, "token 7 is given twice"},
		{[]string{"--logprobs", "2"}, "--logprobs needs --json"},
		{[]string{"--json", "--logprobs", "21"}, "--logprobs 21: use 0 to 20"},
		{[]string{"--json", "--logprobs", "-1"}, "--logprobs -1: use 0 or more"},
	} {
		r := cedrun(t, "", append(m, c.args...)...)
		if r.status != exitError || r.out != "" || !strings.Contains(r.err, c.want) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%v: status %d, stderr %q; want %q", c.args, r.status, r.err, c.want)
		}
	}
}
