package engine

import (
	"cedrun/runtime/config"
	"cedrun/runtime/inventory"
	"cedrun/runtime/model"
)

// Active counts the parameters that a model multiplies a token by (spec model.md 1.4).
type Active struct{ *inventory.Active }

// CountActive derives the counts from the geometry.
func CountActive(c *config.Config) Active { return Active{inventory.CountActive(c)} }

// Prefill is the mean number of parameters per token of a prompt under a plan, with logits of its last row only.
func (a Active) Prefill(p model.Plan, prompt int) int64 { return a.Active.Prefill(p.Query, prompt) }
