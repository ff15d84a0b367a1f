package sample

import "fmt"

const (
	// MaxTemperature is the largest temperature that Validate accepts.
	MaxTemperature = 5
	// greedyBelow is the temperature under which the largest logit is taken.
	greedyBelow = 1e-6
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
	}
	return nil
}
