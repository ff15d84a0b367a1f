package sample

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

const (
	// MaxTemperature is the largest temperature that Validate accepts.
	MaxTemperature = 5
	// greedyBelow is the temperature under which the largest logit is taken.
	greedyBelow = 1e-6
	// Bounds of the penalties and of a bias, as in the APIs that made them known.
	maxPenalty, maxBias                        = 2, 100
	minRepetitionPenalty, maxRepetitionPenalty = 0.01, 10
)

// Params are the sampling settings of a request.
type Params struct {
	Temperature float64 // 0: greedy
	TopP        float64 // in (0, 1]; 1: off
	TopK        int     // 0: off
	MinP        float64 // in [0, 1); 0: off
	Seed        uint64
	Banned      []int // never sampled; ids outside the vocabulary are ignored
	Logprobs    bool  // fill Choice.Logprob, at the cost of one exp per token of the vocabulary

	RepetitionPenalty float64         // divides positive logits, multiplies others, of all tokens seen; 0 or 1: off
	PresencePenalty   float64         // taken from the logits of tokens written before; 0: off
	FrequencyPenalty  float64         // likewise, once for each time
	Bias              map[int]float64 // added to the logits of these ids; ids outside the vocabulary are ignored
}

// Default returns plain sampling: temperature 1, no filters, seed 0.
func Default() Params { return Params{Temperature: 1, TopP: 1} }

// Validate reports the first setting that is out of range, by its request name.
func (p Params) Validate() error {
	switch {
	case !(p.Temperature >= 0 && p.Temperature <= MaxTemperature):
		return fmt.Errorf("temperature is %v, want 0 to %d", p.Temperature, MaxTemperature)
	case !(p.TopP > 0 && p.TopP <= 1):
		return fmt.Errorf("top_p is %v, want more than 0 and at most 1", p.TopP)
	case p.TopK < 0:
		return fmt.Errorf("top_k is %d, want 0 (off) or more", p.TopK)
	case !(p.MinP >= 0 && p.MinP < 1):
		return fmt.Errorf("min_p is %v, want 0 (off) or more and less than 1", p.MinP)
	case p.RepetitionPenalty != 0 && !(p.RepetitionPenalty >= minRepetitionPenalty && p.RepetitionPenalty <= maxRepetitionPenalty):
		return fmt.Errorf("repetition_penalty is %v, want %v to %v; 1 is off", p.RepetitionPenalty, minRepetitionPenalty, maxRepetitionPenalty)
	case !(math.Abs(p.PresencePenalty) <= maxPenalty):
		return fmt.Errorf("presence_penalty is %v, want -%d to %d", p.PresencePenalty, maxPenalty, maxPenalty)
	case !(math.Abs(p.FrequencyPenalty) <= maxPenalty):
		return fmt.Errorf("frequency_penalty is %v, want -%d to %d", p.FrequencyPenalty, maxPenalty, maxPenalty)
	}
	for _, id := range slices.Sorted(maps.Keys(p.Bias)) {
		if b := p.Bias[id]; id < 0 || !(math.Abs(b) <= maxBias) {
			return fmt.Errorf("logit_bias of token %d is %v, want ids from 0 and values from -%d to %d", id, b, maxBias, maxBias)
		}
	}
	return nil
}

// Largest reports whether the choice is the token of the largest logit, whatever was written before.
func (p Params) Largest() bool {
	return p.Temperature < greedyBelow && !p.Logprobs && !p.Penalises() && len(p.Banned)+len(p.Bias) == 0
}

// Penalises reports whether the choice depends on the tokens seen before.
func (p Params) Penalises() bool {
	return p.repeats() || p.PresencePenalty != 0 || p.FrequencyPenalty != 0
}

func (p Params) repeats() bool { return p.RepetitionPenalty != 0 && p.RepetitionPenalty != 1 }
