//go:build !amd64

package sample

import "math"

// weigh sets out[i] = weight(logits[i], top, scale).
func weigh(out []float64, logits []float32, top, scale float64) { weighAll(out, logits, top, scale) }

// scan returns the largest logit, or -Inf, and whether none is NaN or +Inf.
func scan(logits []float32) (top float32, usable bool) { return scanAll(logits, float32(math.Inf(-1))) }
