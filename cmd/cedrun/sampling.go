package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"cedrun/runtime/engine"
	"cedrun/runtime/sample"
	"cedrun/runtime/tokenizer"
)

func sampleFlags() []cli.Flag {
	return []cli.Flag{
		intFlag(groupSample, "max-tokens", 0, 0, "512, or what the context leaves", "write at most `N` tokens"),
		floatFlag(groupSample, "temperature", 0.8, "`T` from 0, the most likely token each time, over 1, as the model predicts, to 5"),
		floatFlag(groupSample, "top-p", 0.95, "sample from the most likely tokens that make up the share `P`; 1 = off"),
		intFlag(groupSample, "top-k", 0, 0, "", "sample from the `K` most likely tokens; 0 = off"),
		floatFlag(groupSample, "min-p", 0, "drop tokens less likely than the share `P` of the most likely one; 0 = off"),
		floatFlag(groupSample, "repetition-penalty", 1, "divide positive logits of tokens in prompt and text by `R`, multiply others; 1 = off"),
		floatFlag(groupSample, "presence-penalty", 0, "take `P` from the logits of tokens in the text so far, -2 to 2; 0 = off"),
		floatFlag(groupSample, "frequency-penalty", 0, "take `F` from them for each time they are there, -2 to 2; 0 = off"),
		&cli.StringSliceFlag{Category: groupSample, Name: "logit-bias", Usage: "add a value from -100 to 100 to the logit of a token id, as `ID=V`; repeatable", EnvVars: env("logit-bias")},
		&cli.Uint64Flag{Category: groupSample, Name: "seed", Usage: "the same `SEED` and input give the same text", EnvVars: env("seed")},
		&cli.StringSliceFlag{Category: groupSample, Name: "stop", Usage: "end before this `TEXT`; repeatable", EnvVars: env("stop")},
	}
}

func sampling(c *cli.Context) (sample.Params, error) {
	p := sample.Params{
		Temperature: c.Float64("temperature"), TopP: c.Float64("top-p"), TopK: c.Int("top-k"), MinP: c.Float64("min-p"), Seed: c.Uint64("seed"),
		RepetitionPenalty: c.Float64("repetition-penalty"), PresencePenalty: c.Float64("presence-penalty"), FrequencyPenalty: c.Float64("frequency-penalty"),
	}
	var err error
	if p.Bias, err = logitBias(c.StringSlice("logit-bias")); err != nil {
		return p, err
	}
	return p, p.Validate()
}

// logitBias reads ID=V.
func logitBias(given []string) (map[int]float64, error) {
	bias := map[int]float64{}
	for _, s := range given {
		left, right, _ := strings.Cut(s, "=")
		id, err := strconv.Atoi(left)
		v, verr := strconv.ParseFloat(right, 64)
		if err != nil || verr != nil {
			return nil, fmt.Errorf("--logit-bias %q: give a token id, = and a number, as in 42=-1.5 (cedrun tokenize shows ids)", s)
		}
		if _, twice := bias[id]; twice {
			return nil, fmt.Errorf("--logit-bias: token %d is given twice", id)
		}
		bias[id] = v
	}
	return bias, nil
}

// logprob is the natural log-probability of a token under the model, before sampling settings.
type logprob struct {
	ID      int32   `json:"id"`
	Token   string  `json:"token"`
	Bytes   []int   `json:"bytes"` // of the token, which need not be whole characters
	Logprob float64 `json:"logprob"`
}

type tokenLogprob struct {
	logprob
	Top []logprob `json:"top,omitempty"`
}

func newTokenLogprob(tok *tokenizer.Tokenizer, t engine.Token) tokenLogprob {
	of := func(id int32, p float64) logprob {
		s := tok.Token(int(id))
		l := logprob{ID: id, Token: tok.Decode([]int32{id}), Bytes: make([]int, len(s)), Logprob: p}
		for i := range len(s) {
			l.Bytes[i] = int(s[i])
		}
		return l
	}
	out := tokenLogprob{logprob: of(t.ID, t.Logprob)}
	for _, c := range t.Top {
		out.Top = append(out.Top, of(int32(c.ID), c.Logprob))
	}
	return out
}
