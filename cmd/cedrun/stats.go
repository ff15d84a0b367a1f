package main

import (
	"fmt"
	"io"
	"time"

	"cedrun/runtime/engine"
	"cedrun/runtime/model"
)

// phase measures prefill or decode.
type phase struct {
	Tokens  int     `json:"tokens"`
	Seconds float64 `json:"seconds"`
	Rate    float64 `json:"tokens_per_second"`
	Active  int64   `json:"active_parameters"` // per token
}

// stats measures a generation. The first new token comes out of the last prompt row: it is counted in neither phase.
type stats struct {
	PromptTokens int   `json:"prompt_tokens"`
	NewTokens    int   `json:"new_tokens"`
	Prefill      phase `json:"prefill"`
	Decode       phase `json:"decode"`
}

func newStats(inst *engine.Instance, mode model.Prefill, s engine.Stats, written int) *stats {
	a := engine.CountActive(inst.Config)
	plan := model.NewPlan(inst.Config, mode, s.PromptTokens)
	return &stats{
		PromptTokens: s.PromptTokens, NewTokens: written,
		Prefill: newPhase(s.PromptTokens-s.Reused, s.Prefill, a.Prefill(plan, s.PromptTokens)),
		Decode:  newPhase(s.DecodeSteps, s.Decode, a.Decode()),
	}
}

func newPhase(tokens int, d time.Duration, active int64) phase {
	p := phase{Tokens: tokens, Seconds: d.Seconds(), Active: active}
	if tokens > 0 && d > 0 {
		p.Rate = float64(tokens) / p.Seconds
	}
	return p
}

func (s *stats) print(w io.Writer) {
	for _, p := range []struct {
		name string
		phase
	}{{"prefill", s.Prefill}, {"decode", s.Decode}} {
		fmt.Fprintf(w, "%-8s %6d tokens  %8.2f s  %8.1f tok/s  %s active parameters per token\n", p.name, p.Tokens, p.Seconds, p.Rate, short(p.Active))
	}
}

// short writes 15468700000 as 15.5 B.
func short(n int64) string {
	for _, u := range []struct {
		one  int64
		name string
	}{{1e9, " B"}, {1e6, " M"}, {1e3, " k"}} {
		if n >= u.one {
			return fmt.Sprintf("%.3g%s", float64(n)/float64(u.one), u.name)
		}
	}
	return fmt.Sprint(n)
}
